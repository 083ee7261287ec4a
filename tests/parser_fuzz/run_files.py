"""Files of runs: settings, what was measured, records, tables of latencies; and what reports make of them."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from otprune import models
from otprune.deploy.latencies import LatencyTable
from otprune.deploy.layers import Layer, Shape
from otprune.deploy.subjects import subjects as timed
from otprune.experiments.attribution import attributed
from otprune.experiments.experiment import Experiment
from otprune.experiments.reproduce.records import Records
from otprune.experiments.run_facts import configuration
from otprune.experiments.settings import recipe, recipes, resolved
from otprune.provenance import provenance
from otprune.report.html.content import content as shown
from otprune.report.html.page import page
from otprune.report.html.subjects import subjects
from otprune.report.summary import summarize
from tests.html_reports import VGG, described, gammas_of, run_folder, with_drawn_gammas
from tests.parser_fuzz.target import Read, Target, put

SETTINGS = Experiment("digits_net", "digits").to_dict()
LINEAR = Shape(batch=1, size=(), kernel=(), stride=(), padding=(), dilation=(), groups=1)


def settings() -> Target:
    """A file of settings beside flags."""
    folder = Path(__file__).resolve().parents[2] / "src/otprune/experiments/recipes"
    samples = [path.read_bytes() for path in sorted(folder.glob("*.toml"))]
    assert len(samples) == len(recipes()) and recipe("digits")

    def read(content: bytes, number: int, folder: Path) -> None:
        path = put(content, folder / "my.toml")
        resolved({"model": "vgg14", "data": "cifar10"}, str(path))

    return Target("toml", samples, read)


def run_settings() -> Target:
    """The settings in the folder of a run, and the models that are timed by them."""

    def read(content: bytes, number: int, folder: Path) -> None:
        put(_json({"image_shape": [1, 8, 8], "classes": ["a"]}), folder / "data.json")
        put(content, folder / "config.json")
        configuration(folder)

    return Target("json", [_json(SETTINGS), _json({"model": "vgg14", "data": "cifar10"})], read)


def record() -> Target:
    """Reported on, with and without scaling factors, and found among others."""
    shifts = [{"shift": 0.5, "flops": 0.4, "accuracy_recalibrated": 0.8}]
    records = [described("digits_net") | {"experiment": SETTINGS}, {"experiment": SETTINGS, "shifts": shifts}]

    def read(content: bytes, number: int, folder: Path) -> None:
        path = put(content, folder / "cifar10" / "net" / "record.json")
        assert isinstance(Records(folder).all, dict)
        page(shown(subjects([path])))

    real = json.loads(VGG.read_bytes())
    del real["results"]["gammas"]
    return Target("json", [*map(_json, records), _json(real)], read)


def record_with_gammas() -> Target:
    """Planned with the scaling factors in it."""
    built = with_drawn_gammas(models.build("digits_net", num_classes=10))
    whole = described("digits_net", gammas=gammas_of(built)) | {"experiment": SETTINGS}

    def read(content: bytes, number: int, folder: Path) -> None:
        page(shown(subjects([put(content, folder / "record.json")])))

    return Target("json", [_json(whole)], read)


def summary() -> Target:
    """A record in the folder of a sweep."""
    costs = {f"cost_{when}": {"flops": 4e6, "parameters": 2e5, "macs": 2e6} for when in ("before", "after")}
    whole = {"experiment": SETTINGS, "results": {"accuracy_sparse": 0.9, "accuracy_finetuned": 0.8, **costs}}

    def read(content: bytes, number: int, folder: Path) -> None:
        put(_json(whole), folder / "seed0" / "record.json")
        put(content, folder / "seed1" / "record.json")
        summarize(folder)

    return Target("json", [_json(whole)], read)


def latencies() -> Target:
    """A table of latencies, asked and added to."""
    grid = {
        "layer": LINEAR.to_dict(),
        "inputs": [1, 3, 64],
        "outputs": [2, 16],
        "ms": [[1.0, 2.0], [2.0, 3.0], [3.0, 4]],
    }

    def read(content: bytes, number: int, folder: Path) -> None:
        file = put(content, folder / "latencies.json")
        table = LatencyTable(lambda shape, points: [1.0 for _ in points], file, "here")
        table.cover([Layer("b", LINEAR, 70, 20)])
        table.milliseconds([Layer("a", LINEAR, 2, 4)])

    return Target("json", [_json({"here": [grid], "elsewhere": []})], read)


def run_results() -> Target:
    """results.json of a run that is reported on."""
    return _of_run("results.json")


def run_data() -> Target:
    """data.json of a run that is reported on and timed."""

    def read(content: bytes, number: int, folder: Path) -> None:
        place = _run(folder, "data.json", content)
        timed([place / "sparse.safetensors"])
        page(shown(subjects([place])))

    return _of_run("data.json", read)


def run_bench() -> Target:
    """bench.json of a run that is reported on."""
    return _of_run("bench.json")


def run_exports() -> Target:
    """export.json of a run that is reported on."""
    return _of_run("export.json")


def run_check() -> Target:
    """What was measured at shifted thresholds, reported on."""
    return _of_run("threshold-check/record.json")


def run_provenance() -> Target:
    """What a run's stages ran on."""

    def read(content: bytes, number: int, folder: Path) -> None:
        put(content, folder / "provenance.json")
        attributed(folder, torch.device("cpu"))

    return Target("json", [_json({"train": [provenance()], "prune": [provenance()]})], read)


def _of_run(name: str, read: Read | None = None) -> Target:
    def report(content: bytes, number: int, folder: Path) -> None:
        page(shown(subjects([_run(folder, name, content)])))

    return Target("json", [_files()[name]], read or report)


def _run(folder: Path, name: str, content: bytes) -> Path:
    """The folder of a run, without weights unless it is timed: to plan takes a second."""
    for other, whole in _files().items():
        if name == "data.json" or other != "sparse.safetensors":
            put(whole, folder / "run" / other)
    put(content, folder / "run" / name)
    return folder / "run"


@functools.cache
def _files() -> Mapping[str, bytes]:
    """The files of a run."""
    with tempfile.TemporaryDirectory() as folder:
        place = run_folder(Path(folder, "run"))
        names = [path.relative_to(place) for path in place.rglob("*") if path.is_file()]
        return {str(name): (place / name).read_bytes() for name in names}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
