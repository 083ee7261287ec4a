"""How a run does where it is deployed: what `otprune bench --json RUN/bench.json` and `otprune export` left in it.

A bench that is written elsewhere, or called otherwise than bench*.json, is not looked for.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from otprune.experiments.contents import Bench, Exports, well_formed
from otprune.experiments.folder import read_json
from otprune.report.html.points import UNPRUNED, which_before
from otprune.report.html.subjects import Subject

FILES, EXPORTED = "bench*.json", "export.json"


def latencies(subject: Subject) -> list[dict[str, Any]]:
    """Milliseconds before and after: what was measured to prune it to a latency, and medians, bench by bench.

    >>> from otprune.experiments.experiment import Experiment
    >>> latencies(Subject("run", Path("nowhere"), Experiment("vgg14", "cifar10"), {}))
    []
    """
    return [*_when_pruned(subject), *(_benches(subject) if subject.place.is_dir() else ())]


def _benches(subject: Subject) -> list[dict[str, Any]]:
    """Originals are timed unpruned, whichever network the run began with."""
    found = [well_formed(Bench, read_json(path), path) for path in sorted(subject.place.glob(FILES))]
    rows = [row for record in found for row in _rows(record, subject.place)]
    began = which_before(subject.results)
    return rows if began == UNPRUNED else [{**row, "name": f"{row['name']}, before: {UNPRUNED}"} for row in rows]


def exported(subject: Subject) -> list[tuple[str, float]]:
    """The accuracies of exported files, in the runtimes that they are for.

    >>> from otprune.experiments.experiment import Experiment
    >>> exported(Subject("run", Path("nowhere"), Experiment("vgg14", "cifar10"), {}))
    []
    """
    path = subject.place / EXPORTED
    found = well_formed(Exports, read_json(path), path).get("files", {}) if path.is_file() else {}
    return [(f"exported, {PurePath(name).name}", entry["accuracy"]) for name, entry in found.items()]


def _when_pruned(subject: Subject) -> Iterator[dict[str, Any]]:
    pruning, found = subject.experiment.pruning, subject.results.get("latency", {})
    if pruning.latency is not None and {"unpruned_ms", "measured_ms"} <= found.keys():
        name = f"{pruning.latency_runtime}, cpu{_threads(pruning.latency_threads)}, when pruned"
        yield {"name": name, "before": found["unpruned_ms"], "after": found["measured_ms"]}


def _threads(count: int) -> str:
    return f", {count} threads" if count != 1 else ""


def _rows(record: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Of the models in the record that are of this run: others may have been timed along with it."""
    settings, models = record.get("settings", {}), record.get("models", {})
    for runtime, timed in record.get("latencies", {}).items():
        for name, own in timed.items():
            model = models.get(name, {})
            original = timed.get(model.get("original") or "")
            if original is not None and _is_of(folder.resolve(), name, model):
                said = [runtime, str(settings.get("device", "")), *_file(name), _batch(settings)]
                yield {"name": ", ".join(filter(None, said)), "before": original["p50"], "after": own["p50"]}


def _is_of(folder: Path, name: str, model: Mapping[str, Any]) -> bool:
    """Whether a model is of the run in a folder.

    Older records have nothing but the name that the model was given by. A run that is not where it was timed was moved,
    or timed on another machine: it is known by its folder's name.
    """
    if "run" not in model:
        return folder.name in PurePath(name).parts
    run = Path(model["run"] or "")
    return run == folder or (run.name == folder.name and not _is_there(run))


def _is_there(run: Path) -> bool:
    """Somebody else's folder, which one may not look at, counts as none."""
    with suppress(OSError):
        return run.exists()
    return False


def _file(name: str) -> list[str]:
    """An exported file or a checkpoint by its name: a run as a whole needs none."""
    return [PurePath(name).name] if PurePath(name).suffix else []


def _batch(settings: Mapping[str, Any]) -> str:
    return f"batch {settings['batch']}" if settings.get("batch", 1) != 1 else ""
