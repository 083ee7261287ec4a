"""Models in every runtime give the same; `otprune bench` times runs beside their originals."""

import json
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from typer.testing import CliRunner

import otprune as ot
from otprune.cli import app
from otprune.cli.benching import latency_table
from otprune.deploy import runtimes
from otprune.deploy.exported import to_torch
from otprune.deploy.onnx import to_onnx
from otprune.deploy.openvino import to_openvino
from otprune.deploy.runtimes import RUNTIMES, Runtime, file_in_runtime, in_runtime
from otprune.deploy.subjects import subjects
from otprune.errors import DeployError
from otprune.experiments import stages
from otprune.report.html import deployed
from otprune.report.html import subjects as reported
from tests.command_line import Done
from tests.gpu import needs_gpu
from tests.small_runs import pipeline
from tests.unchanged import unchanged

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Branching(nn.Module):
    """A sum, a concatenation and a batch norm that nothing can take in."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.joined = nn.BatchNorm2d(16)
        self.last = nn.Linear(16, 5)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        first = torch.relu(self.norm(self.first(images)))
        both = torch.cat([first, first + self.depthwise(first)], 1)
        return self.last(torch.relu(self.joined(both)).mean((2, 3)))


def net() -> nn.Module:
    torch.manual_seed(0)
    made = Branching()
    for norm in (made.norm, made.joined):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 2.0)
    made.norm.weight.data[::2] = 1e-7
    return made.eval()


def pruned() -> nn.Module:
    small = ot.prune(net(), ot.plan(net(), IMAGES)).eval()
    assert ot.cost(small, IMAGES).macs < ot.cost(net(), IMAGES).macs
    return small


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_pruned_model_gives_the_same_in_every_runtime(runtime: Runtime) -> None:
    model = pruned()
    with torch.no_grad():
        expected = model(IMAGES).numpy()
    assert np.ptp(expected, axis=0).min() > 1e-4  # it depends on the images
    with unchanged(model):
        ready = in_runtime(model, IMAGES, runtime)
    np.testing.assert_allclose(ready.output(), expected, rtol=1e-4, atol=1e-5)
    assert ready.seconds() > 0


def test_compiled_models_stay_compiled_however_many_there_are() -> None:
    """After some compilations of one function torch gives up on it, and runs it as it is."""
    torch._dynamo.utils.counters.clear()
    with torch._dynamo.config.patch(recompile_limit=1):
        ready = [in_runtime(nn.Softplus(), torch.randn(1, n), "torch-compile") for n in (2, 3, 4)]
        for one in (*ready, *ready):
            one.run()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3


def test_exported_files_run_in_the_runtimes_they_are_for(tmp_path: Path) -> None:
    model = pruned()
    with torch.no_grad():
        expected = model(IMAGES).numpy()
    to_onnx(model, IMAGES, tmp_path / "net.onnx")
    to_openvino(model, IMAGES, tmp_path / "net.xml")
    to_torch(model, IMAGES, tmp_path / "net.pt2")
    fitting = [(path, runtime) for path in tmp_path.glob("net.[!b]*") for runtime in runtimes.runtimes_of(path)]
    assert len(fitting) == 5
    for path, runtime in fitting:
        output = file_in_runtime(path, IMAGES, runtime).output()
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5, err_msg=f"{path} {runtime}")
    found = subjects(tmp_path / name for name in ("net.onnx", "net.xml", "net.pt2"))
    assert {subject.image_shape for subject in found} == {(3, 8, 8)}
    assert {subject.original for subject in found} == {None}


@needs_gpu
@pytest.mark.parametrize("runtime", ["torch", "torch-compile"])
def test_a_model_gives_the_same_on_a_gpu(runtime: Runtime) -> None:
    model = net()
    with torch.no_grad():
        expected = model(IMAGES).numpy()
    np.testing.assert_allclose(in_runtime(model, IMAGES, runtime, "cuda").output(), expected, rtol=1e-2, atol=1e-2)


def test_openvino_is_refused_on_a_gpu_of_nvidia() -> None:
    with pytest.raises(DeployError, match="openvino does not run on NVIDIA's GPUs"):
        in_runtime(net(), IMAGES, "openvino", "cuda")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    one = pipeline(folder)
    stages.train([one])
    stages.prune(one)
    return folder


def bench(*arguments: object) -> Done:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    return Done(result.exit_code, result.stdout, result.stderr)


def test_a_run_is_timed_beside_its_original(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "latency.json"
    done = bench(run, "--runtime", "torch,onnxruntime", "--iters", "12", "--json", str(file))
    assert done.code == 0, done.err
    record = json.loads(file.read_text())
    assert list(record["latencies"]) == ["torch", "onnxruntime"]
    original = "tests.small_runs:net for digits, unpruned"
    for latencies in record["latencies"].values():
        assert list(latencies) == [original, str(run)]
        own, before = latencies[str(run)], latencies[original]
        assert own["times_faster"] == before["mean"] / own["mean"] and own["runs"] == before["runs"] == 12
        assert own["times_faster_p50"] == before["p50"] / own["p50"] and "times_faster" not in before
    costs = json.loads((run / "results.json").read_text())
    assert record["models"][str(run)]["flops"] == costs["cost_after"]["flops"]
    assert record["models"][original]["flops"] == costs["cost_before"]["flops"] > costs["cost_after"]["flops"]
    assert record["settings"]["threads"] == 1 and "onnxruntime" in record["versions"] and record["provenance"]["cpu"]
    assert "times faster" in done.out and f"everything is in {file}" in done.out


def test_an_original_of_several_is_timed_once_and_exported_files_have_it_too(run: Path) -> None:
    small = ot.load(subjects([run])[0].source, run / "pruned.safetensors")
    (run / "export").mkdir(exist_ok=True)
    to_onnx(small, torch.zeros(1, 1, 8, 8), run / "export" / "pruned.onnx")
    found = subjects([run, run / "pruned.safetensors", run / "export" / "pruned.onnx"])
    originals = [subject for subject in found if subject.original is None]
    assert len(originals) == 1 and found[0] is originals[0] and len(found) == 4
    assert {subject.original for subject in found[1:]} == {originals[0].name}
    assert found[3].runtimes == ("onnxruntime", "openvino") and found[3].image_shape == (1, 8, 8)


def test_what_cannot_be_timed_is_refused_with_the_reason(run: Path, tmp_path: Path) -> None:
    for arguments, said in (
        ((tmp_path / "nowhere",), f"{tmp_path / 'nowhere'}: is neither the folder of a run"),
        ((run, "--runtime", "tensorrt"), "there is no runtime 'tensorrt': choose one of torch"),
        ((run, "--runtime", "openvino", "--device", "cuda"), "openvino does not run on NVIDIA's GPUs"),
        ((run, "--device", "tpu"), "there is no device 'tpu': choose one of cpu, cuda"),
        ((run / "scratch.safetensors",), f"{run / 'scratch.safetensors'}: no such file"),
        ((run, "--threads", "5000"), "threads is 5000, and this process may use"),
    ):
        done = bench(*arguments)
        assert done.code == 1 and done.err.startswith(said), done.err


def test_a_file_in_no_runtime_that_was_asked_for_is_refused(run: Path, tmp_path: Path) -> None:
    to_onnx(net(), IMAGES, tmp_path / "net.onnx")
    done = bench(tmp_path / "net.onnx", "--runtime", "torch")
    assert done.code == 1 and done.err.startswith(f"{tmp_path / 'net.onnx'}: runs in onnxruntime or openvino, not in")


def test_names_of_folders_are_no_markup(run: Path, tmp_path: Path) -> None:
    places = [shutil.copytree(run, tmp_path / name) for name in ("[red]x", "x[/b]", ":bomb:")]
    done = bench(*places, "--iters", "1", "--json", tmp_path / "bench.json")
    assert done.code == 0, done.err
    text = StringIO()
    Console(file=text, width=1000).print(latency_table(json.loads((tmp_path / "bench.json").read_text())))
    assert all(str(place) in text.getvalue() for place in places)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_timed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "mine.py").touch()
    for target, why in (
        (tmp_path / "mine.py", "is there, and no .json that could be written anew: name another file"),
        (run / "config.json", "is a file of a run, which would be lost: name another file"),
        (tmp_path, "is a folder: name the file to write"),
        (tmp_path / "file" / "x.json", f"cannot be written, since {tmp_path / 'file'} is no folder: name another file"),
        (tmp_path / ("x" * 250), "cannot be written (File name too long): nothing was done yet"),
    ):
        done = bench(run, "--iters", 10**9, "--json", target)  # which would take weeks
        assert done.code == 1 and done.err.startswith(f"{target}: {why}") and len(done.err.splitlines()) == 1, done.err
    assert {path.name for path in tmp_path.iterdir()} == {"file", "mine.py"}


def test_a_folder_that_is_missing_is_made_for_the_measurement(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "no" / "dir" / "x.json"
    assert bench(run, "--iters", "1", "--json", target).code == 0
    assert str(run) in json.loads(target.read_text())["models"]


def copy_with(run: Path, folder: Path, **fed: object) -> Path:
    """The same run on other data."""
    shutil.copytree(run, folder)
    data = folder / "data.json"
    data.write_text(json.dumps(json.loads(data.read_text()) | fed))
    return folder


def test_originals_for_other_images_are_told_apart_and_equal_ones_are_shared(run: Path, tmp_path: Path) -> None:
    """The small network takes images of 9×9 pixels as well."""
    wide = copy_with(run, tmp_path / "wide", image_shape=[1, 9, 9])
    alike = [run, copy_with(run, tmp_path / "same"), copy_with(run, tmp_path / "again")]
    by_name = {subject.name: subject for subject in subjects([*alike, wide])}
    small, large = (f"tests.small_runs:net for digits, 1×{size}×{size}, 10 classes, unpruned" for size in (8, 9))
    assert list(by_name) == [small, large, *map(str, alike), str(wide)]
    assert {by_name[str(place)].original for place in alike} == {small} and by_name[str(wide)].original == large
    for name in (small, large):
        flops = by_name[name].cost()["flops"]
        assert flops == ot.cost(by_name[name].source, torch.zeros(1, *by_name[name].image_shape)).flops
    assert by_name[small].cost()["flops"] < by_name[large].cost()["flops"]


def test_originals_with_other_classes_are_told_apart(run: Path, tmp_path: Path) -> None:
    fewer = copy_with(run, tmp_path / "fewer", classes=["0", "1"])
    exported = fewer / "net.onnx"  # since the weights are for ten
    exported.touch()
    names = [f"tests.small_runs:net for digits, 1×8×8, {count} classes, unpruned" for count in (10, 2)]
    assert [(subject.name, subject.original) for subject in subjects([run, exported])] == [
        *((name, None) for name in names),
        *zip(map(str, (run, exported)), names, strict=True),
    ]


def test_a_folder_in_a_run_is_refused_with_the_files_to_name(run: Path, tmp_path: Path) -> None:
    copied = copy_with(run, tmp_path / "run")
    shutil.rmtree(copied / "export", ignore_errors=True)
    (copied / "export").mkdir()
    done = bench(copied / "export")
    assert done.code == 1 and done.err.endswith("Name the run, or a model's file in it.\n")
    for name in ("a.onnx", "b.xml", "b.bin"):
        (copied / "export" / name).touch()
    done = bench(copied / "export")
    said = f"{copied / 'export'}: is no run, but a folder in the run {copied}. Name files in it: a.onnx, b.xml.\n"
    assert (done.code, done.err) == (1, said)


def shown(run: Path) -> list[tuple[float, float]]:
    """The medians before and after that the report of a run has."""
    (subject,) = reported.subjects([run])
    return [(row["before"], row["after"]) for row in deployed.latencies(subject)]


def medians(file: Path, name: object) -> tuple[float, float]:
    record = json.loads(file.read_text())
    timed, original = record["latencies"]["torch"], record["models"][str(name)]["original"]
    return timed[original]["p50"], timed[str(name)]["p50"]


def test_a_report_shows_what_was_timed_of_its_own_run(run: Path, tmp_path: Path) -> None:
    mine, other = (copy_with(run, tmp_path / name / "seed0") for name in ("s1", "s2"))
    file = mine / "bench.json"
    assert bench(mine, other, "--iters", "3", "--json", file).code == 0
    assert shown(mine) == [medians(file, mine)]
    shutil.copy(file, other)
    assert shown(other) == [medians(file, other)]
    moved = shutil.move(mine, tmp_path / "elsewhere" / "seed0")
    shutil.rmtree(tmp_path / "s2")
    assert medians(moved / "bench.json", mine) in shown(moved)


def test_a_report_of_the_folder_that_one_is_in_shows_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy_with(run, tmp_path / "run"))
    assert bench(".", "--iters", "3", "--json", "bench.json").code == 0
    assert shown(Path()) == [medians(Path("bench.json"), ".")]
