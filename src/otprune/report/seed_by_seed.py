"""Our seeds of the statistics one by one: how each began, and what became of it."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from statistics import correlation, fmean
from typing import Any, TypedDict

from otprune.experiments import paper
from otprune.experiments.reproduce.needed import trained
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds
from otprune.report.benchmarks import benchmark
from otprune.report.chance import ENOUGH
from otprune.report.markdown import NONE, markdown_table, percent
from otprune.report.points import DATA_NAMES, counted

FILE = "first_epoch.json"
IMAGES = 50_000  # to train on, in CIFAR-10 and in CIFAR-100
BEGAN, BECAME = ("loss of the first epoch", "the same in fp32"), ("channels", "FLOPs (M)", "unpruned", "fine-tuned")


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
    header = (f"{DATA_NAMES[data]}, OT", *BEGAN[: 1 + bool(exact)], *BECAME)
    yield markdown_table(header, [_row(seed, results, exact) for seed, results in found.items()])
    yield _correlated(list(found.values()))
    if exact:
        yield _apart([loss - _first_loss(found[seed]) for seed, loss in exact.items()])


def _row(seed: int, results: Mapping[str, Any], exact: Mapping[int, float]) -> tuple[str, ...]:
    began = [_shown(_first_loss(results)), _shown(exact.get(seed))]
    accuracies = (percent(100 * results[f"accuracy_{stage}"]) for stage in ("sparse", "finetuned"))
    flops = f"{results['cost_after']['flops'] / 1e6:.2f}"
    return f"seed {seed}", *began[: 1 + bool(exact)], str(_channels(results)), flops, *accuracies


def _correlated(found: Sequence[Mapping[str, Any]]) -> str:
    began = list(map(_first_loss, found))
    channels = _correlation(began, list(map(_channels, found)))
    accuracy = _correlation(began, [results["accuracy_sparse"] for results in found])
    return (
        f"Over these {counted(len(found), 'seed')} the loss of the first epoch correlates with the channels left by "
        f"{channels} and with the accuracy before pruning by {accuracy}."
    )


def _tells_how_it_began(results: Mapping[str, Any]) -> bool:
    first = (results.get("training") or [{}])[0].get("loss")
    return first is not None and isfinite(first) and all(name in results for name in ("accuracy_sparse", "layers"))


def _channels(results: Mapping[str, Any]) -> int:
    return sum(layer["kept"] for layer in results["layers"])


def _shown(loss: float | None) -> str:
    return NONE if loss is None else f"{loss:.3f}"


def _in_fp32(records: Records, data: str) -> dict[int, float]:
    """The loss of the first epoch where it was trained in fp32, too, by seed."""
    found = benchmark(records.folder / FILE, _FirstEpochs, "first epochs")
    if found is None or not _fits(found, data):
        return {}
    return {int(seed): measured["loss"] for seed, measured in found["results"].items()}


def _fits(found: Mapping[str, Any], data: str) -> bool:
    """Whether it is whole epochs of the same training, in fp32."""
    asked = paper.table("statistics")
    settings = {"data": data, "model": asked["model"], "lam": asked["lam"], "device": "cpu"}
    steps = IMAGES // trained(data, asked["model"], asked["lam"]).training.batch
    configuration = found["configuration"]
    same = all(configuration.get(name) == value for name, value in settings.items())
    return same and configuration.get("steps", 0) >= steps


class _Measured(TypedDict):
    loss: float


class _FirstEpochs(TypedDict):
    configuration: dict[str, Any]
    results: dict[str, _Measured]


def _apart(differences: Sequence[float]) -> str:
    """How far fp32 is from bf16."""
    reach = f" on average ({min(differences):+.3f} to {max(differences):+.3f})" if len(differences) > 1 else ""
    above = sum(one > 0 for one in differences)
    return (
        f"Of {counted(len(differences), 'seed')} the first epoch was also trained in fp32, on a CPU, by "
        f"benchmarks/first_epoch.py: from the same weights on the same images in the same order, its loss is "
        f"{fmean(differences):+.3f} away from that in bf16{reach}, and higher for {above} of them."
    )


def _correlation(ones: Sequence[float], others: Sequence[float]) -> str:
    """Undefined where either never changes."""
    return NONE if len(set(ones)) == 1 or len(set(others)) == 1 else f"{correlation(ones, others):+.2f}"


def _first_loss(results: Mapping[str, Any]) -> float:
    loss: float = results["training"][0]["loss"]
    return loss
