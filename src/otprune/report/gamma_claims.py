"""The observation that OT rests on: important and negligible scaling factors lie far apart."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from otprune.experiments import paper
from otprune.experiments.reproduce.needed import lam_text
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import PAIRS, sweep
from otprune.report.points import counted, subject
from otprune.report.verdicts import Claim, listed

SEVERAL = 1e3  # as a factor: orders of magnitude, more than two
OUTLIERS = 0.05  # of either group, which the paper leaves out without saying how many
LEAST = 20  # channels in either group, of which one in twenty can be left out


def groups_lie_apart(records: Records) -> Claim:
    """In most layers, of all seeds at every λ of the paper's table.

    >>> from pathlib import Path
    >>> groups_lie_apart(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    low, high = paper.table("points")["separation"]["alpha"]
    text = (
        f"The smallest important scaling factor of a layer is several orders of magnitude larger than the largest "
        f"negligible one (the paper: α from {_written(low)} to {_written(high)}), but for outliers: "
        f"{100 * OUTLIERS:g} % of either."
    )
    found = {subject(data, model): list(_alphas(records, data, model)) for data, model in PAIRS}
    told = {name: alphas for name, alphas in found.items() if alphas}
    evidence = [f"{name}: {_spread(alphas)}" for name, alphas in told.items()]
    judged = {name: float(np.median(alphas)) >= SEVERAL for name, alphas in told.items()}
    name = "scaling factors part by orders of magnitude"
    return Claim(name, text, judged, listed(evidence), "layer-distributions", tuple(found))


def alpha(gammas: Sequence[float], threshold: float) -> float | None:
    """How many times as large as the largest negligible the smallest important one is, but for outliers.

    >>> alpha([1e-6] * 20 + [0.5] * 20, threshold=0.5)
    500000.0
    """
    magnitudes = np.abs(np.asarray(gammas))
    negligible, important = magnitudes[magnitudes < threshold], magnitudes[magnitudes >= threshold]
    if min(len(negligible), len(important)) < LEAST:
        return None
    smallest, largest = np.quantile(important, OUTLIERS), np.quantile(negligible, 1 - OUTLIERS)
    return float(smallest / largest) if largest else None


def _alphas(records: Records, data: str, model: str) -> Iterator[float]:
    for needed in sweep(data, model):
        for record in records.of_any_seed(needed):
            for layer in record.results.get("layers", ()):
                found = _alpha(layer, record.gammas)
                if found is not None:
                    yield found


def _alpha(layer: Mapping[str, Any], gammas: Mapping[str, Sequence[float]]) -> float | None:
    return alpha(gammas[layer["name"]], layer["threshold"]) if layer["name"] in gammas else None


def _spread(alphas: Sequence[float]) -> str:
    low, middle, high = np.quantile(alphas, (0.25, 0.5, 0.75))
    ends = f"{_written(low)} to {_written(high)}"
    return f"median {_written(middle)}, {ends} in the middle half of {counted(len(alphas), 'layer')}"


def _written(factor: float) -> str:
    return lam_text(float(f"{factor:.1e}"))
