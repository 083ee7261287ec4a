"""Our seeds of the statistics one by one: how each began, and what became of it."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from statistics import correlation, fmean
from typing import Any

from otprune.errors import TrainingError
from otprune.experiments import paper
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds
from otprune.jsons import read_object
from otprune.report.markdown import NONE, markdown_table, percent
from otprune.report.points import DATA_NAMES, counted

ENOUGH = 3  # seeds: through two points there is always a line
FILE = "first_epoch.json"


def seed_by_seed(records: Records, data: str) -> Iterator[str]:
    """How each seed of OT began and what became of it, and whether the one goes with the other.

    >>> from pathlib import Path
    >>> list(seed_by_seed(Records(Path("nowhere")), "cifar10"))
    []
    """
    done = [needed for needed in seeds(data, "ot") if not records.lacks(needed)]
    there = [record for needed in done if (record := records.find(needed)) and _tells_how_it_began(record.results)]
    found = {record.experiment.training.seed: record.results for record in there}
    if len(found) < ENOUGH:
        return
    exact = {seed: loss for seed, loss in _in_fp32(records, data).items() if seed in found}
    columns = {"loss of the first epoch": [_shown(_first_loss(results)) for results in found.values()]}
    if exact:
        columns["the same in fp32"] = [_shown(exact.get(seed)) for seed in found]
    became = zip(*map(_became, found.values()), strict=True)
    columns |= dict(zip(("channels", "FLOPs (M)", "unpruned", "fine-tuned"), map(list, became), strict=True))
    names = [f"seed {seed}" for seed in found]
    yield markdown_table((f"{DATA_NAMES[data]}, OT", *columns), list(zip(names, *columns.values(), strict=True)))
    began = [_first_loss(results) for results in found.values()]
    channels = _correlation(began, [_channels(results) for results in found.values()])
    accuracy = _correlation(began, [results["accuracy_sparse"] for results in found.values()])
    yield (
        f"Over these {counted(len(found), 'seed')} the loss of the first epoch correlates with the channels left by "
        f"{channels} and with the accuracy before pruning by {accuracy}."
    )
    if exact:
        yield _apart([loss - _first_loss(found[seed]) for seed, loss in exact.items()])


def _tells_how_it_began(results: Mapping[str, Any]) -> bool:
    first = (results.get("training") or [{}])[0].get("loss")
    return first is not None and isfinite(first) and results.get("accuracy_sparse") is not None


def _channels(results: Mapping[str, Any]) -> int:
    return sum(layer["kept"] for layer in results["layers"])


def _became(results: Mapping[str, Any]) -> tuple[str, ...]:
    accuracies = (percent(100 * results[f"accuracy_{stage}"]) for stage in ("sparse", "finetuned"))
    return str(_channels(results)), f"{results['cost_after']['flops'] / 1e6:.2f}", *accuracies


def _shown(loss: float | None) -> str:
    return NONE if loss is None else f"{loss:.3f}"


def _in_fp32(records: Records, data: str) -> dict[int, float]:
    """The loss of the first epoch where it was trained in fp32, too, by seed."""
    path, asked = records.folder / FILE, paper.table("statistics")
    if not path.exists():
        return {}
    found = read_object(path, lambda why: TrainingError(f"{path}: is no record of first epochs: {why}. Measure again."))
    settings = {"data": data, "model": asked["model"], "lam": asked["lam"], "device": "cpu"}
    if any(found["configuration"].get(name) != value for name, value in settings.items()):
        return {}
    return {int(seed): measured["loss"] for seed, measured in found["results"].items()}


def _apart(differences: Sequence[float]) -> str:
    """How far fp32 is from bf16."""
    reach = f"{min(differences):+.3f} to {max(differences):+.3f}"
    above = sum(one > 0 for one in differences)
    return (
        f"Of {counted(len(differences), 'seed')} the first epoch was also trained in fp32, on a CPU, by "
        f"benchmarks/first_epoch.py: from the same weights on the same images in the same order, its loss is "
        f"{fmean(differences):+.3f} away from that in bf16 on average ({reach}), and higher for {above} of them."
    )


def _correlation(ones: Sequence[float], others: Sequence[float]) -> str:
    """Undefined where either never changes."""
    return NONE if len(set(ones)) == 1 or len(set(others)) == 1 else f"{correlation(ones, others):+.2f}"


def _first_loss(results: Mapping[str, Any]) -> float:
    loss: float = results["training"][0]["loss"]
    return loss
