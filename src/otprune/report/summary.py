"""What came of a sweep: each of its runs, and mean and spread over the seeds of each λ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from otprune.errors import OtpruneError
from otprune.experiments import cells
from otprune.experiments.contents import Record, well_formed
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import RECORD, read_json, write_json
from otprune.files import write_atomically
from otprune.report.markdown import markdown_table
from otprune.report.points import spread

JSON, MARKDOWN = "summary.json", "summary.md"
PREFIX = "accuracy_"

Row = Mapping[str, Any]
Names = Mapping[str, Callable[[Row], str]]


@dataclass(frozen=True)
class Shown:
    """A table of texts, the first of its columns names."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def summarize(folder: Path, unreadable: Callable[[Path], None] | None = None) -> dict[str, Any]:
    """Write what came of all runs in a sweep's folder, also of those of a sweep before: summary.json, summary.md.

    A run whose record cannot be read is left out, which `unreadable` is told of; without that, it is an error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summarize(Path(folder))
    ...     sorted(path.name for path in Path(folder).iterdir())
    {'runs': [], 'over_seeds': []}
    ['summary.json', 'summary.md']
    """
    records = {}
    for path in sorted(folder.glob(f"*/{RECORD}")):
        try:
            records[path.parent.name] = _record(path)
        except (OtpruneError, OSError):  # the latter where it is no file at all
            if unreadable is None:
                raise
            unreadable(path.parent)
    found = summary(records)
    write_json(folder / JSON, found)
    write_atomically(folder / MARKDOWN, _page(found).encode())
    return found


def summary(records: Mapping[str, Row]) -> dict[str, Any]:
    """A row for each run, by name of its folder, and one for all runs that differ in their seed alone.

    `std` is the standard deviation over seeds, and missing where there is one seed.

    >>> def record(seed: int, share: float) -> Row:
    ...     training = {"lam": 1e-4, "target_flops": None, "seed": seed}
    ...     return {"experiment": {"training": training}, "results": {"accuracy_sparse": share}}
    >>> summary({"a": record(0, 0.5), "b": record(1, 1.0)})["over_seeds"][0]["accuracy"]
    {'sparse': {'mean': 0.75, 'std': 0.25}}
    """
    runs = sorted((_run(name, record) for name, record in records.items()), key=_by_settings)
    groups: dict[str, list[Row]] = {}
    for run in runs:
        groups.setdefault(_but_seed(records[run["run"]]), []).append(run)
    return {"runs": runs, "over_seeds": [_over_seeds(group) for group in groups.values()]}


def over_seeds(found: Row) -> Shown | None:
    """The table of means, where some λ has more than one seed.

    >>> over_seeds(summary({}))
    """
    groups = found["over_seeds"]
    if all(len(group["seeds"]) < 2 for group in groups):
        return None
    several = len({group["model"] for group in groups}) > 1
    network: Names = {"network": itemgetter("model")} if several else {}
    seeds: Names = {"λ": cells.lam, "seeds": lambda group: str(len(group["seeds"]))}
    return _shown(groups, {**network, **seeds}, _mean, _mean_gain)


def _record(path: Path) -> Row:
    found = well_formed(Record, read_json(path), path)
    experiment = Experiment.from_dict(found.get("experiment", {}), str(path))
    return {"experiment": experiment.to_dict(), "results": found.get("results", {})}


def _run(name: str, record: Row) -> dict[str, Any]:
    training, results = record["experiment"]["training"], record["results"]
    row = {
        "run": name,
        "model": record["experiment"].get("model"),
        **{setting: training[setting] for setting in ("lam", "target_flops", "seed")},
    }
    measured = {key: value for key, value in results.items() if key.startswith(PREFIX) and value is not None}
    row["accuracy"] = {key.removeprefix(PREFIX): value for key, value in measured.items()}
    if {"cost_before", "cost_after"} <= results.keys():
        row |= {kind: {when: results[f"cost_{when}"][kind] for when in ("before", "after")} for kind in cells.COSTS}
    return row


def _by_settings(run: Row) -> tuple[Any, ...]:
    return run["model"] or "", run["lam"], run["seed"], run["run"]


def _but_seed(record: Row) -> str:
    experiment = record["experiment"]
    return repr({**experiment, "training": {**experiment["training"], "seed": None}})


def _over_seeds(runs: Sequence[Row]) -> dict[str, Any]:
    row = {name: runs[0][name] for name in ("model", "lam", "target_flops")} | {"seeds": [run["seed"] for run in runs]}
    measured = [stage for stage in runs[0]["accuracy"] if all(stage in run["accuracy"] for run in runs)]
    row["accuracy"] = {stage: _spread([run["accuracy"][stage] for run in runs]) for stage in measured}
    for kind in cells.COSTS:
        if all(kind in run for run in runs):
            after = _spread([run[kind]["after"] for run in runs])
            row[kind] = {"before": runs[0][kind]["before"], "after": after}
    return row


def _spread(values: Sequence[float]) -> dict[str, float]:
    found = spread(values)._asdict()
    return found if len(values) > 1 else {"mean": found["mean"]}


def _page(found: Row) -> str:
    names: Names = {"run": itemgetter("run"), "λ": cells.lam, "seed": lambda run: str(run["seed"])}
    runs = _shown(found["runs"], names, cells.percent, lambda cost: cells.gain(**cost))
    parts = ["# Runs", "Accuracy on the test images, after each stage.", markdown_table(runs.header, runs.rows)]
    if means := over_seeds(found):
        parts += ["# Over seeds", "Mean and standard deviation.", markdown_table(means.header, means.rows)]
    return "\n\n".join(parts) + "\n"


def _shown(
    rows: Sequence[Row],
    names: Names,
    accuracy: Callable[[Any], str],
    cost: Callable[[Any], str],
) -> Shown:
    """Accuracies and costs that some row has, after its names; cells of rows that lack them are empty."""
    stages = [stage for stage in cells.STAGES if any(stage in row["accuracy"] for row in rows)]
    costs = [kind for kind in cells.COSTS if any(kind in row for row in rows)]
    shown = []
    for row in rows:
        accuracies = [accuracy(row["accuracy"][stage]) if stage in row["accuracy"] else "" for stage in stages]
        gains = [cost(row[kind]) if kind in row else "" for kind in costs]
        shown.append([*(name(row) for name in names.values()), *accuracies, *gains])
    return Shown([*names, *stages, *(cells.COSTS[kind] for kind in costs)], shown)


def _mean(found: Mapping[str, float]) -> str:
    std = f" ± {100 * found['std']:.2f}" if "std" in found else ""
    return f"{100 * found['mean']:.2f}{std}%"


def _mean_gain(cost: Row) -> str:
    before, after = cost["before"], cost["after"]
    text = cells.gain(before, after["mean"])
    return text.replace("%)", f" ± {100 * after['std'] / before:.1f}%)") if "std" in after else text
