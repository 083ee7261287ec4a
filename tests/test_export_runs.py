"""`otprune export`: which model of a run, to which file, and what is measured of it there."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

import otprune as ot
from otprune.cli import app
from otprune.deploy.export import training_images
from otprune.deploy.exported import NOTE
from otprune.experiments import stages
from otprune.experiments.folder import FINETUNED, PRUNED
from otprune.training.data.pixels import normalized
from tests.command_line import Done, run_here
from tests.processes import DIGITS
from tests.small_runs import loaded, pipeline, read

FILES = {"onnx": "onnx", "openvino": "xml", "torch": "pt2", "safetensors": "safetensors"}
IMAGES = len(DIGITS.test)


def export(*arguments: object) -> Done:
    result = CliRunner().invoke(app, ["export", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def entry(folder: Path, file: str) -> dict[str, Any]:
    found: dict[str, Any] = read(folder / "export.json")["files"][file]
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that pruned something and was fine-tuned."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    stages.run([pipeline(folder)])
    results = read(folder / "results.json")
    assert results["cost_after"]["flops"] < results["cost_before"]["flops"]
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """The same before anything was exported."""
    return Path(shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("export*")))


@pytest.mark.parametrize("name", ["sparse.safetensors", "pruned.safetensors"])
def test_what_the_run_needs_is_not_written_over(name: str, run: Path) -> None:
    before = (run / name).read_bytes()
    done = export(run, "--to", "safetensors", "--out", run / "." / name)
    assert done.code == 1 and done.err.endswith(f"{name}: is a file of a run, which would be lost: name another file\n")
    assert (run / name).read_bytes() == before


@pytest.mark.parametrize("to", FILES)
def test_the_last_model_is_exported_and_measured_in_its_runtime(to: str, finished: Path) -> None:
    done = export(finished, "--to", to)
    name = f"export/finetuned.{FILES[to]}"
    assert done.code == 0 and str(finished / name) in done.out and not done.err, done
    assert len(done.out.splitlines()) == 3, done.out
    found = entry(finished, name)
    assert found["difference"] <= found["tolerance"] == 1e-4 and found["checked_with_images"] == [1, 3]
    expected = read(finished / "results.json")["accuracy_finetuned"]
    assert found["accuracy"] == pytest.approx(expected, abs=1.5 / IMAGES) and found["accuracy_of_run"] == expected
    files = [finished / name, *((finished / name).with_suffix(".bin") for _ in range(to == "openvino"))]
    assert found["bytes"] == sum(file.stat().st_size for file in files)
    assert found["provenance"]["torch"] == torch.__version__ and not found["int8"] and found["remarks"] == []


def test_an_exported_file_needs_nothing_of_otprune(finished: Path, tmp_path: Path) -> None:
    """As a user would feed it: by what the file itself says."""
    assert export(finished, "--to", "onnx", "--out", tmp_path / "net.onnx").code == 0
    note = json.loads(
        next(prop.value for prop in onnx.load(tmp_path / "net.onnx").metadata_props if prop.key == "otprune")
    )
    assert note["classes"] == list("0123456789") and note["stage"] == "finetuned"
    pixels = DIGITS.test.pixels.numpy().astype(np.float32) / 255
    mean, std = (np.array(note[name], np.float32).reshape(1, -1, 1, 1) for name in ("mean", "std"))
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (scores,) = session.run(None, {session.get_inputs()[0].name: (pixels - mean) / std})
    accuracy = float((scores.argmax(1) == DIGITS.test.labels.numpy()).mean())
    assert accuracy == entry(finished, str(tmp_path / "net.onnx"))["accuracy"] > 0.5


@pytest.mark.parametrize("to", ["onnx", "openvino"])
def test_eight_bits_make_it_smaller_and_hardly_worse(to: str, finished: Path) -> None:
    done = export(finished, "--to", to, "--int8")
    name = f"export/finetuned.int8.{FILES[to]}"
    assert done.code == 0 and "before quantization" in done.out and "warning" not in done.out, done
    found, before = entry(finished, name), entry(finished, name)["before_quantization"]
    assert found["int8"] and found["calibration_images"] == 300 and "nncf" in found["versions"]
    assert before["difference"] <= before["tolerance"] and 0 < found["difference"] < 1
    assert found["accuracy"] > before["accuracy"] - 0.05 and before["accuracy"] > 0.5
    assert quantizers(finished / name) > 1


def test_eight_bits_that_cost_much_are_warned_of(run: Path) -> None:
    """A channel 10,000 times as large as the others, and read as much less: the same network, but not in eight bits."""
    model = loaded(run / FINETUNED)
    with torch.no_grad():
        for parameter in (model[1].weight, model[1].bias):
            parameter[0] *= 1e4
        model[3].weight[:, 0] *= 1e-4
    ot.save(model, run / FINETUNED)
    done = export(run, "--to", "openvino", "--int8", "--calibration-images", "20")
    found = entry(run, "export/finetuned.int8.xml")
    lost = found["before_quantization"]["accuracy"] - found["accuracy"]
    assert done.code == 0 and lost > 0.01 and found["calibration_images"] == 20
    (remark,) = found["remarks"]
    assert remark.startswith(f"eight bits cost {100 * lost:.2f} points of accuracy: calibrate with more images")
    assert done.out.splitlines()[-1] == f"warning: {remark}"


@pytest.mark.parametrize("int8", [(), ("--int8",)], ids=["single", "int8"])
def test_a_model_that_is_no_longer_what_was_trained_is_warned_of(int8: tuple[str, ...], run: Path) -> None:
    """As if its code had changed: what the run measured is not what the file gives."""
    results = read(run / "results.json")
    other = {"accuracy_finetuned": results["accuracy_finetuned"] - 0.02}
    (run / "results.json").write_text(json.dumps(results | other))
    done = export(run, "--to", "onnx", *int8)
    (found,) = read(run / "export.json")["files"].values()
    assert done.code == 0 and "the model's code, or the images, may have changed" in found["remarks"][0]
    assert f"warning: {found['remarks'][0]}" in done.out.splitlines()


def quantizers(path: Path) -> int:
    if path.suffix == ".xml":
        return path.read_text(encoding="utf-8").count('type="FakeQuantize"')
    return sum(node.op_type == "QuantizeLinear" for node in onnx.load(path).graph.node)


def test_ranges_are_measured_on_training_images(finished: Path) -> None:
    held = pipeline(finished)
    images = np.concatenate(list(training_images(held, 300)))
    known = {image.tobytes() for image in normalized(held.data.train.pixels, held.data.mean, held.data.std).numpy()}
    assert len(images) == 300 and all(image.tobytes() in known for image in images)
    assert len({image.tobytes() for image in images}) > 290


def test_weights_load_into_the_model_and_say_how_to_feed_it(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    assert export(run, "--to", "safetensors", "--out", path).code == 0
    torch.testing.assert_close(loaded(path).state_dict(), loaded(run / FINETUNED).state_dict(), rtol=0, atol=0)
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()[NOTE])["mean"] == DIGITS.mean.tolist()


def test_without_fine_tuning_it_is_the_pruned_model_and_any_can_be_asked_for(run: Path) -> None:
    (run / FINETUNED).unlink()
    assert export(run, "--to", "torch").code == 0
    assert export(run, "--to", "torch", "--stage", "sparse").code == 0
    files = read(run / "export.json")["files"]
    assert list(files) == ["export/pruned.pt2", "export/sparse.pt2"]
    results = read(run / "results.json")
    for name, stage in (("pruned", "recalibrated"), ("sparse", "sparse")):
        assert files[f"export/{name}.pt2"]["accuracy_of_run"] == results[f"accuracy_{stage}"]
    assert files["export/pruned.pt2"]["bytes"] < files["export/sparse.pt2"]["bytes"]


def test_a_file_that_is_exported_again_has_one_entry_and_no_leftovers(run: Path) -> None:
    (run / "export").mkdir()
    (run / "export" / ".finetuned.pt2.0123456789abcdef").write_bytes(b"begun and killed")
    for _ in range(2):
        assert export(run, "--to", "torch").code == 0
    assert [path.name for path in (run / "export").iterdir()] == ["finetuned.pt2"]
    assert list(read(run / "export.json")["files"]) == ["export/finetuned.pt2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--to", "tflite"), "there is no format tflite: choose one of onnx, openvino, torch, safetensors"),
        (
            ("--to", "onnx", "--calibration-images", 20),
            "--calibration-images is of no use without eight bits: give --int8, or leave it out",
        ),
        (("--to", "torch", "--int8"), "torch is not quantized here: leave int8 out, or export to onnx or openvino"),
        (
            ("--to", "onnx", "--stage", "last"),
            "there is no stage last: choose one of finetuned, scratch, pruned, sparse",
        ),
        (("--to", "onnx", "--stage", "scratch"), "has no scratch.safetensors yet: make it with otprune scratch"),
        (("--to", "onnx", "--out", "net.xml"), "net.xml: a file for onnx has to end in .onnx"),
        (("--to", "onnx", "--out", "no/where/net.onnx"), "no/where/net.onnx: there is no folder no/where"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line(arguments: tuple[object, ...], words: str, finished: Path) -> None:
    done = export(finished, *arguments)
    assert done.code == 1 and words in done.err and len(done.err.splitlines()) == 1, done


def test_a_model_of_ones_own_that_is_not_here_is_told_with_the_folder_to_start_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text("from tests.small_runs import net as build\n")
    for name in ("trained", "exported"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    flags = {"epochs": 0, "finetune_epochs": 0, "out": "trained/run", "device": "cpu"}
    assert run_here("run", model="net.py:build", data="digits", **flags).code == 0
    monkeypatch.chdir(tmp_path / "exported")
    done = export("../trained/run", "--to", "safetensors")
    assert done.code == 1 and f"net.py is in {tmp_path}, and if that is the one, start the command there" in done.err
    monkeypatch.chdir(tmp_path)
    assert export("trained/run", "--to", "safetensors").code == 0


def test_a_package_that_is_missing_is_named_before_anything_is_done(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    done = export(run, "--to", "onnx", "--int8")
    assert done.code == 1 and done.err == "nncf is not installed: pip install 'otprune[deploy]'\n"
    assert not (run / "export").exists()


def test_a_run_without_a_pruned_model_is_refused(run: Path) -> None:
    for name in (FINETUNED, PRUNED):
        (run / name).unlink()
    done = export(run, "--to", "onnx")
    assert done.code == 1 and f"{run} has no pruned model yet: make one with otprune prune" in done.err
    assert not (run / "export").exists()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    done = export(tmp_path / "nothing", "--to", "onnx")
    assert done.code == 1 and "holds no run" in done.err


def test_a_model_that_gives_nothing_but_a_constant_is_not_exported(run: Path) -> None:
    model = loaded(run / FINETUNED)
    for parameter in model.parameters():
        parameter.data.zero_()
    ot.save(model, run / FINETUNED)
    done = export(run, "--to", "torch")
    assert done.code == 1 and "gives the same output for different images" in done.err
    assert not any((run / "export").iterdir()) and not (run / "export.json").exists()
