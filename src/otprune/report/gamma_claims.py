"""The observation that OT rests on: important and negligible scaling factors lie far apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from otprune.experiments import paper
from otprune.experiments.reproduce.needed import lam_text
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import PAIRS, sweep
from otprune.report.chance import ENOUGH
from otprune.report.points import counted, subject
from otprune.report.verdicts import Claim, listed

SEVERAL = 1e3  # as a factor: orders of magnitude, more than two
OUTLIERS = 0.05  # of either group, which the paper leaves out without saying how many
FEWER_OUTLIERS = (0.02, 0.01)
LEAST = 20  # channels in either group, of which one in twenty can be left out


@dataclass(frozen=True)
class Groups:
    """The negligible and the important scaling factors of a layer, each from the smallest to the largest.

    >>> Groups([1e-6] * 19 + [0.4], [0.5] * 20).apart(0.05)
    500000.0
    """

    negligible: Sequence[float]
    important: Sequence[float]

    @property
    def tell(self) -> bool:
        """Whether both are large enough to have outliers, and the ratio is finite."""
        return min(len(self.negligible), len(self.important)) >= LEAST and self._largest(OUTLIERS) > 0

    def apart(self, outliers: float) -> float:
        """How many times as large as the largest negligible the smallest important one is, but for outliers."""
        return self.important[int(outliers * len(self.important))] / self._largest(outliers)

    def _largest(self, outliers: float) -> float:
        return self.negligible[-1 - int(outliers * len(self.negligible))]


def groups_lie_apart(records: Records) -> Claim:
    """In the median layer of all seeds, at every λ of the paper's table that enough layers tell of.

    >>> from pathlib import Path
    >>> groups_lie_apart(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    low, high = paper.table("points")["separation"]["alpha"]
    text = (
        f"At every λ, the smallest important scaling factor of a layer is several orders of magnitude larger than the "
        f"largest negligible one (the paper: α from {_written(low)} to {_written(high)}), but for outliers: in the "
        f"median layer at least {SEVERAL:,.0f} times as large, with {100 * OUTLIERS:g} % of either left out."
    )
    found = {subject(data, model): _by_lam(records, data, model) for data, model in PAIRS}
    told = {name: those for name, by_lam in found.items() if (those := _that_tell(by_lam))}
    evidence = [f"{name}: {_spread(those)} of {_layers(found[name])}" for name, those in told.items()]
    judged = {
        name: all(_median(groups, OUTLIERS) >= SEVERAL for groups in those.values()) for name, those in told.items()
    }
    if told:
        evidence.append(f"of those whose γ are recorded, the ones with at least {LEAST} channels of either")
    name = "at every λ, scaling factors part by orders of magnitude"
    return Claim(name, text, judged, listed(evidence), "layer-distributions", tuple(found))


def _by_lam(records: Records, data: str, model: str) -> dict[float, list[Groups]]:
    found: dict[float, list[Groups]] = {}
    for needed in sweep(data, model):
        for record in records.of_any_seed(needed):
            for layer in record.results.get("layers", ()):
                if layer["name"] in record.gammas:
                    groups = grouped(record.gammas[layer["name"]], layer["negligible"])
                    found.setdefault(needed.experiment.training.lam, []).append(groups)
    return found


def _that_tell(by_lam: Mapping[float, Sequence[Groups]]) -> dict[float, list[Groups]]:
    """Layers that tell, at each λ of which there are enough of these."""
    telling = {lam: [one for one in groups if one.tell] for lam, groups in by_lam.items()}
    return {lam: groups for lam, groups in telling.items() if len(groups) >= ENOUGH}


def grouped(gammas: Sequence[float], negligible: int) -> Groups:
    """The scaling factors of a layer of which so many are negligible.

    Records have them to six digits, and the threshold, which is one of them, in full: it cannot tell them apart.

    >>> grouped([-0.5, 1e-6, 0.4], negligible=1)
    Groups(negligible=[1e-06], important=[0.4, 0.5])
    """
    magnitudes = sorted(map(abs, gammas))
    return Groups(magnitudes[:negligible], magnitudes[negligible:])


def _median(groups: Sequence[Groups], outliers: float) -> float:
    return median(one.apart(outliers) for one in groups)


def _spread(by_lam: Mapping[float, Sequence[Groups]]) -> str:
    """The median at each λ, then that of all layers together, what lies around it, and what fewer outliers give."""
    at_each = ", ".join(
        f"{_written(_median(groups, OUTLIERS))} at λ={lam_text(lam)} ({len(groups)})" for lam, groups in by_lam.items()
    )
    groups = [one for those in by_lam.values() for one in those]
    low, high = np.quantile([one.apart(OUTLIERS) for one in groups], (0.25, 0.75))
    fewer = (f"{_written(_median(groups, share))} with {100 * share:g} %" for share in FEWER_OUTLIERS)
    papers = paper.table("points")["separation"]["alpha"][0]
    share = fmean(one.apart(OUTLIERS) >= papers for one in groups)
    ends = f"{_written(low)} to {_written(high)} in the middle half, at least {_written(papers)} in {100 * share:.0f} %"
    return f"median {at_each}; of all, {ends}; {' and '.join(fewer)} left out; in {len(groups)}"


def _layers(by_lam: Mapping[float, Sequence[Groups]]) -> str:
    return counted(sum(map(len, by_lam.values())), "layer")


def _written(factor: float) -> str:
    if factor >= SEVERAL:
        return lam_text(float(f"{factor:.1e}"))
    return f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}"
