"""How far Network Slimming can go, and what sets OT apart from it, on one and the same training, by its γ."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

from otprune.experiments import paper
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import slimming
from otprune.report.columns import MODEL
from otprune.report.one_training import ROW, Trained, trainings
from otprune.report.points import DATA_NAMES, counted, points, subject
from otprune.report.pruned_by_both import ASKED
from otprune.report.slimming_limit import papers_limit
from otprune.report.verdicts import Claim, listed

NEARLY_ALL = 95.0  # percent of the channels
LIKE = 5.0  # percent of the FLOPs


def slimming_breaks(records: Records) -> Claim:
    """Of trainings with the λ that NS has in the paper; whether the networks that it pruned agree is told beside it.

    >>> from pathlib import Path
    >>> slimming_breaks(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    own = paper.slimming_lam(MODEL)
    found = {data: [one.limit for one in trainings(records, data) if one.lam == own] for data in DATA_NAMES}
    here = {data: fmean(those) for data, those in found.items() if those}
    judged = {subject(data, MODEL): abs(limit - papers_limit(data)) <= LIKE for data, limit in here.items()}
    evidence = [
        f"{DATA_NAMES[data]}: {limit:.1f} % (the paper: {papers_limit(data):g} %){_pruned(records, data)}"
        for data, limit in here.items()
    ]
    stated = ", ".join(f"{papers_limit(data):g} % of {subject(data, MODEL)}" for data in DATA_NAMES)
    text = (
        f"At its own λ, NS can prune no more FLOPs than {stated}: whole layers would go. By the scaling factors, to "
        f"within {LIKE:g} % of the FLOPs."
    )
    return Claim("past the paper's limits, NS empties whole layers", text, judged, listed(evidence), ROW, ASKED)


def slimming_reaches_as_far(records: Records) -> Claim:
    """On every training, whatever its λ.

    >>> from pathlib import Path
    >>> slimming_reaches_as_far(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = (
        "New: trained with OT's λ, NS can take as many FLOPs as OT does and empty no layer: its limit is one of its λ."
    )
    name = "New: at the same λ, NS can go as far as OT and empty no layer"
    return _claim(name, text, records, lambda one: one.limit >= one.taken, _told_limits)


def slimming_keeps_the_same(records: Records) -> Claim:
    """On every training, whatever its λ.

    >>> from pathlib import Path
    >>> slimming_keeps_the_same(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = (
        f"New: trained with OT's λ, and told how many channels to keep, NS keeps the ones that OT keeps: at least "
        f"{NEARLY_ALL:g} % of them."
    )
    name = "New: at the same λ, NS keeps the channels that OT keeps"
    return _claim(name, text, records, lambda one: one.shared >= NEARLY_ALL, _told_shared)


ONE_TRAINING_CLAIMS: tuple[Callable[[Records], Claim], ...] = (
    slimming_breaks,
    slimming_reaches_as_far,
    slimming_keeps_the_same,
)


def _claim(
    name: str,
    text: str,
    records: Records,
    holds: Callable[[Trained], bool],
    told: Callable[[Sequence[Trained]], str],
) -> Claim:
    found = {data: those for data in DATA_NAMES if (those := trainings(records, data))}
    evidence = [f"{DATA_NAMES[data]}: {told(those)} of {_number(those)}" for data, those in found.items()]
    judged: Mapping[str, bool] = {subject(data, MODEL): all(map(holds, those)) for data, those in found.items()}
    return Claim(name, text, judged, listed(evidence), ROW, ASKED)


def _pruned(records: Records, data: str) -> str:
    """How many layers are emptied in the networks that NS pruned."""
    found = [(one.cost("flops").mean, int(one.emptied)) for one in points(records, slimming(data, MODEL))]
    whole = [flops for flops, emptied in found if not emptied]
    told = [f"no layer is emptied up to {max(whole):.1f} %"] if whole else []
    told += [f"{counted(emptied, 'layer')} at {flops:.1f} %" for flops, emptied in found if emptied]
    return f", as pruned {', '.join(told)}" if told else ""


def _number(those: Sequence[Trained]) -> str:
    return f"{counted(len(those), 'training')} at {len({one.lam for one in those})} λ"


def _told_limits(those: Sequence[Trained]) -> str:
    further = [one.limit - one.taken for one in those]
    ends = f"{min(further):.1f} to {max(further):.1f}"
    reaching = sum(one.limit >= one.taken for one in those)
    return f"{median(further):.1f} points of the FLOPs further in the median ({ends}), as far in {reaching}"


def _told_shared(those: Sequence[Trained]) -> str:
    shared = [one.shared for one in those]
    return f"{median(shared):.1f} % in the median ({min(shared):.1f} to {max(shared):.1f})"
