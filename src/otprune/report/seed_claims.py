"""The paper's claims about its statistics over seeds, where OT and Network Slimming prune the same trainings."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from otprune.experiments import paper
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.rows import seeds
from otprune.report.chance import leans, reach
from otprune.report.columns import MODEL
from otprune.report.one_training import Trained, of_record
from otprune.report.points import DATA_NAMES, counted, subject
from otprune.report.pruned_by_both import ASKED, ROW, Both, judged, on_average, pruned_by_both, too_few
from otprune.report.verdicts import ROUNDING, Claim, listed


def cheaper_over_seeds(records: Records) -> Claim:
    """By what NS would leave with as many channels, from the γ that are recorded; what it was asked to is told, too.

    >>> from pathlib import Path
    >>> cheaper_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "Over the seeds, with as many channels, OT's VGG-14 has fewer FLOPs than NS's."
    trained = {data: [one for record in _telling(records, data) if (one := of_record(record))] for data in DATA_NAMES}
    shares = {data: list(map(_share_as_narrow, those)) for data, those in trained.items() if those}
    told = judged(shares, {data: leans([100 - share for share in one]) for data, one in shares.items()})
    asked = {data: f"; as they were pruned, {_costs(data, those)}" for data, those in pruned_by_both(records).items()}
    evidence = [f"{DATA_NAMES[data]}: {_told(one)}{asked.get(data, '')}" for data, one in shares.items()]
    return Claim("same λ, over seeds: OT has fewer FLOPs than NS", text, told, listed(evidence), ROW, ASKED)


def better_over_seeds(records: Records) -> Claim:
    """More accurate on average over the seeds; it is not where the paper's lead is further off than chance reaches.

    >>> from pathlib import Path
    >>> better_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    gains = {data: list(map(_gain, those)) for data, those in pruned_by_both(records).items()}
    return on_average(
        "same λ, over seeds: OT is more accurate than NS",
        "Over the seeds, OT's VGG-14 is more accurate than NS's.",
        gains,
        lambda data, one: _leads(one, _papers_lead(data)),
        lambda data: f" (the paper: {_papers_lead(data):+.2f})",
    )


def slimming_breaks_over_seeds(records: Records) -> Claim:
    """What NS's threshold would leave of each layer with as many channels as OT keeps, from the γ that are recorded.

    >>> from pathlib import Path
    >>> slimming_breaks_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "Over the seeds, with as many channels as OT leaves, NS would remove an entire layer of some."
    where = [data for data in DATA_NAMES if _papers_slimming_is_wider(data)]
    narrowest = {data: [_narrowest(one) for one in _telling(records, data)] for data in where}
    found = {data: those for data, those in narrowest.items() if those}
    evidence = [
        f"{DATA_NAMES[data]}: in {sum(not least for least in those)} of {counted(len(those), 'seed')}, the narrowest "
        f"layer {_channels_left(those)}{too_few(those)}"
        for data, those in found.items()
    ]
    told = judged(found, {data: min(those) == 0 for data, those in found.items()})
    name = "same λ, over seeds: as narrow as OT's, NS's would lose layers"
    return Claim(name, text, told, listed(evidence), ROW, [subject(data, MODEL) for data in where])


def _papers_slimming_is_wider(data: str) -> bool:
    """Where the paper's NS keeps more channels, which it says is why."""
    ours, theirs = (paper.statistics(data, rule).total.mean for rule in ("ot", "ns"))
    return theirs > ROUNDING * ours


def _leads(gains: Sequence[float], least: float) -> bool | None:
    """Whether they are above zero on average, by more than chance; not so where they surely stay below the least."""
    if leans(gains):
        return True
    return False if fmean(gains) + reach(gains) < least else None


def _papers_lead(data: str) -> float:
    ours, theirs = (paper.statistics(data, rule).accuracy.mean for rule in ("ot", "ns"))
    return ours - theirs


def _share(both: Both, kind: str) -> float:
    ours, theirs = (float(one["cost_after"][kind]) for one in both)
    return 100 * ours / theirs


def _share_as_narrow(trained: Trained) -> float:
    return 100 * (100 - trained.taken) / (100 - trained.taken_as_narrow)


def _told(shares: Sequence[float]) -> str:
    ends = f"{min(shares):.1f} to {max(shares):.1f}"
    return f"{fmean(shares):.1f} % of NS's FLOPs on average of {counted(len(shares), 'seed')} ({ends}){too_few(shares)}"


def _costs(data: str, those: Sequence[Both]) -> str:
    """The shares of NS's FLOPs and parameters, and the paper's, and how many channels both have."""
    parts = []
    for kind, name in (("flops", "FLOPs"), ("parameters", "parameters")):
        ours, theirs = (getattr(paper.statistics(data, rule), kind).mean for rule in ("ot", "ns"))
        here = fmean(_share(both, kind) for both in those)
        parts.append(f"{here:.1f} % of its {name} (the paper: {100 * ours / theirs:.1f} %)")
    left = [fmean(_kept(one) for one in rule) for rule in zip(*those, strict=True)]
    return f"{' and '.join(parts)} with {left[0]:,.0f} channels against {left[1]:,.0f}"


def _gain(both: Both) -> float:
    ours, theirs = (100 * float(one["accuracy_finetuned"]) for one in both)
    return ours - theirs


def _telling(records: Records, data: str) -> Iterator[Record]:
    """OT's seeds whose records have the scaling factors that were pruned by; older ones have not."""
    for needed in seeds(data, "ot"):
        record = records.find(needed)
        if record is not None and record.gammas and "layers" in record.results:
            yield record


def _narrowest(record: Record) -> int:
    """The channels of the narrowest layer if one threshold for all left as many in total as OT did."""
    layers = [list(map(abs, gamma)) for gamma in record.gammas.values()]
    threshold = sorted((one for layer in layers for one in layer), reverse=True)[_kept(record.results) - 1]
    return min(sum(one >= threshold for one in layer) for layer in layers)


def _channels_left(narrowest: Sequence[int]) -> str:
    least, most = min(narrowest), max(narrowest)
    return f"keeps {least} to {most} channels" if least < most else f"keeps {counted(least, 'channel')}"


def _kept(results: Mapping[str, Any]) -> int:
    return sum(int(layer["kept"]) for layer in results["layers"])
