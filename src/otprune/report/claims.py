"""What the paper claims, and whether it holds here, by criteria that are written down."""

from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import PAIRS
from otprune.report.costs import Pair, pair
from otprune.report.headline import headline
from otprune.report.one_training_claims import slimming_breaks
from otprune.report.other_claims import OTHER_CLAIMS, branches_go, rounds_are_stable
from otprune.report.seed_claims import better_over_seeds
from otprune.report.slimming_claims import SLIMMING_CLAIMS, above_slimming
from otprune.report.sweep_claims import SWEEP_CLAIMS, one_epoch_is_enough, scratch_above_finetuned
from otprune.report.verdicts import Claim


def first_claims(records: Records) -> list[Claim]:
    """What a reader in a hurry wants to know: the claims that the paper's abstract and conclusion rest on.

    >>> from pathlib import Path
    >>> len(first_claims(Records(Path("nowhere"))))
    8
    """
    pairs = _pairs(records)
    return [
        above_slimming(pairs),
        *(claim(records) for claim in (slimming_breaks, better_over_seeds)),
        *(claim(pairs) for claim in (one_epoch_is_enough, scratch_above_finetuned)),
        *(claim(records) for claim in (rounds_are_stable, branches_go, headline)),
    ]


def claims(records: Records) -> list[Claim]:
    """Every claim and what the records say of it.

    >>> from pathlib import Path
    >>> {claim.verdict.value for claim in claims(Records(Path("nowhere")))}
    {'not yet measured'}
    """
    pairs = _pairs(records)
    of_pairs = (*SLIMMING_CLAIMS, *SWEEP_CLAIMS)
    return [*(claim(pairs) for claim in of_pairs), *(claim(records) for claim in OTHER_CLAIMS)]


def _pairs(records: Records) -> list[Pair]:
    return [pair(records, data, model) for data, model in PAIRS]
