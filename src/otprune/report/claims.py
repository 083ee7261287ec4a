"""What the paper claims, and whether it holds here, by criteria that are written down."""

from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import PAIRS
from otprune.report.costs import pair
from otprune.report.other_claims import OTHER_CLAIMS
from otprune.report.sweep_claims import SWEEP_CLAIMS
from otprune.report.verdicts import Claim


def claims(records: Records) -> list[Claim]:
    """Every claim and what the records say of it.

    >>> from pathlib import Path
    >>> {claim.verdict.value for claim in claims(Records(Path("nowhere")))}
    {'not yet measured'}
    """
    pairs = [pair(records, data, model) for data, model in PAIRS]
    return [*(claim(pairs) for claim in SWEEP_CLAIMS), *(claim(records) for claim in OTHER_CLAIMS)]
