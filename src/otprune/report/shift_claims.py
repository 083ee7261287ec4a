"""Claims about thresholds shifted up and down, in the one network that the paper shows it of: as pruned, fine-tuned."""

from collections.abc import Callable, Mapping
from statistics import fmean

from otprune.experiments.reproduce.needed import lam_text
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.rows import row
from otprune.report.chance import CLOSE, spread_of_one
from otprune.report.points import VGG
from otprune.report.verdicts import Claim

ROW = "threshold-demo"
Gains = Mapping[float, float]
"""Points of accuracy that are gained, by shift."""


def threshold_at_the_edge(records: Records) -> Claim:
    """Without any training, next to nothing is lost up to it, and more at every shift past it.

    >>> from pathlib import Path
    >>> threshold_at_the_edge(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = (
        f"{_the_network()}, OT's threshold is at the edge: as pruned, without any training, at most {CLOSE:g} points "
        f"are lost up to it, and more than that at every shift past it."
    )
    return _claim("OT's threshold is at the edge: any higher does damage", text, records, _at_the_edge)


def past_mending(records: Records) -> Claim:
    """After fine-tuning, every shift past it is less accurate than any up to it.

    Those below it differ in channels that do not matter, so they tell how far chance reaches: it may explain what lies
    no lower than another of them may. OT's own, which the claim is about, is none of these.

    >>> from pathlib import Path
    >>> past_mending(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = (
        f"{_the_network()}, fine-tuning does not mend what goes past OT's threshold: at every shift past it, accuracy "
        f"after fine-tuning is lower than at any shift up to it."
    )
    return _claim("past OT's threshold, fine-tuning does not mend", text, records, _past_mending)


def _claim(name: str, text: str, records: Records, judge: Callable[[Record], tuple[bool | None, str]]) -> Claim:
    record = records.find(row(ROW).needs[0])
    if record is None:
        return Claim(name, text, {}, "", ROW, (VGG,))
    judged, evidence = judge(record)
    return Claim(name, text, {VGG: judged}, evidence, ROW, (VGG,))


def _the_network() -> str:
    return f"In the network of the demo, λ={lam_text(row(ROW).needs[0].experiment.training.lam)}"


def _at_the_edge(record: Record) -> tuple[bool, str]:
    up_to, past = _around(_gains(record, "pruned", record.content["accuracy_sparse"]))
    judged = min(up_to.values()) >= -CLOSE and all(gain < -CLOSE for gain in past.values())
    return judged, f"up to it {min(up_to.values()):+.2f} points at worst; past it {_listed(past)}"


def _past_mending(record: Record) -> tuple[bool | None, str]:
    up_to, past = _around(_gains(record, "finetuned", 0.0))
    least, below = min(up_to.values()), [gain for shift, gain in up_to.items() if shift]
    beside = {shift: gain - least for shift, gain in past.items()}
    evidence = (
        f"below it {min(below):.2f} to {max(below):.2f} %, at it {up_to[0]:.2f} %; past it, beside the least of these, "
        f"{_listed(beside)}"
    )
    if max(beside.values()) >= 0:
        return False, evidence
    return True if max(past.values()) < fmean(below) - spread_of_one(below) else None, evidence


def _gains(record: Record, stage: str, beside: float) -> Gains:
    return {one["shift"]: 100 * (one[f"accuracy_{stage}"] - beside) for one in record.content["shifts"]}


def _around(gains: Gains) -> tuple[Gains, Gains]:
    """Those up to the threshold, and those past it."""
    ordered = sorted(gains.items())
    return dict(one for one in ordered if one[0] <= 0), dict(one for one in ordered if one[0] > 0)


def _listed(gains: Gains) -> str:
    return ", ".join(f"{gain:+.2f} at {shift:+g}" for shift, gain in gains.items())
