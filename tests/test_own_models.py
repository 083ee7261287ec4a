"""A model of the user's own: from a module or a file, and what is said when it cannot be had."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from otprune.errors import ModelError
from otprune.models.building import build_model
from tests.command_line import otprune

NET = """
from dataclasses import dataclass
from torch import nn
from beside import WIDTH

@dataclass
class Size:
    width: "int" = WIDTH

def build(num_classes):
    return nn.Linear(Size().width, num_classes)

def fixed():
    return nn.Linear(WIDTH, 7)

def anything(**options):
    return nn.Linear(WIDTH, options["num_classes"])

class Net(nn.Linear):
    def __init__(self, num_classes=3):
        super().__init__(WIDTH, num_classes)

SIZE = 3

def nothing():
    return SIZE

def broken():
    return nn.Linear(WIDTH)
"""


UNFIT = """
import torch
from torch import nn

class Failing(nn.Module):
    def forward(self, x):
        return undefined

class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).abs()

def net(last):
    norm = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*norm, Spectrum(), last, nn.Linear(288, 10))

def frozen(model):
    model[1].weight.requires_grad_(False)
    return model

"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of models and one that it imports; the current folder."""
    (tmp_path / "nets.py").write_text(NET)
    (tmp_path / "beside.py").write_text("WIDTH = 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("nets", "beside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("function", "outputs"), [("build", 4), ("fixed", 7), ("anything", 4), ("Net", 4)], ids=lambda given: str(given)
)
@pytest.mark.parametrize("source", ["nets", "nets.py", "{}/nets.py"])
def test_a_function_of_a_module_or_file_is_told_the_number_of_classes_if_it_takes_it(
    source: str, function: str, outputs: int, own: Path
) -> None:
    model = build_model(f"{source.format(own)}:{function}", num_classes=4)
    assert (model.in_features, model.out_features) == (5, outputs)


def test_the_installed_script_finds_modules_in_the_current_folder(own: Path) -> None:
    """It runs from another folder than the user's, and Python looks beside the script first."""
    script = Path(sys.executable).with_name("otprune")
    line = [script, "train", "--model", "nets:build", "--data", "digits", "--out", "run", "--device", "cpu"]
    done = subprocess.run(line, capture_output=True, text=True, encoding="utf-8", cwd=own)
    assert done.returncode == 1  # found, and of no use for images
    assert done.stderr.startswith("nets:build does not run on the images of digits, which are 1×8×8")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("vgg15", "there is no model named 'vgg15'; choose one of vgg14, .* or your own as module:function"),
        ("nowhere:build", "there is no module named 'nowhere', neither installed nor in .*: install it, or start the"),
        ("os.nowhere:build", "there is no module named 'os.nowhere'"),
        (
            "nowhere.py:build",
            "there is no file .*nowhere.py to take a model from: start the command in the folder that nowhere.py is",
        ),
        ("/no/where.py:build", "there is no file /no/where.py to take a model from: put it there, or name another one"),
        ("nets:", "the function after the colon is not there: it has build, fixed, anything, Net, nothing, broken"),
        ("nets:buidl", "nets:buidl: buidl is not there: it has build, "),
        ("nets.py:SIZE", "nets.py:SIZE: SIZE is not callable"),
        ("nets:nothing", "nets:nothing returns a int, not a torch.nn.Module"),
        ("nets:broken", r"nets:broken cannot be built: nets\.py:29 raises TypeError: .*out_features"),
    ],
)
def test_a_model_that_cannot_be_had_is_refused_with_the_reason(wanted: str, message: str, own: Path) -> None:
    with pytest.raises(ModelError, match=message):
        build_model(wanted, num_classes=4)


@pytest.fixture
def elsewhere(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another folder, which is the current one."""
    (own / "elsewhere").mkdir()
    monkeypatch.chdir(own / "elsewhere")
    return own / "elsewhere"


@pytest.mark.parametrize("run", ["runs/mine", "runs/sweep/lam1e-4-seed0", "."])
def test_the_folder_of_the_file_is_told_where_it_is_near_the_run(run: str, own: Path, elsewhere: Path) -> None:
    """And nothing in it is executed, since the folder may be a stranger's."""
    (own / "models").mkdir()
    (own / "models" / "net.py").write_text("raise SystemExit")
    here = re.escape(str(elsewhere / "models" / "net.py"))
    told = f"no file {here} to .*: models/net.py is in {own}, and if that is the one, start the command there"
    for place in (own / run, Path("..", run)):
        with pytest.raises(ModelError, match=told):
            build_model("models/net.py:build", run=place)


def test_a_file_that_is_nowhere_near_the_run_is_told_too(own: Path, elsewhere: Path) -> None:
    with pytest.raises(ModelError, match=r"start the command in the folder that net.py is named from"):
        build_model("net.py:build", run=own / "run")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\nimport nowhere\n", "faulty.py:2 raises ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1\ny = 1 / 0\n", "faulty.py:2 raises ZeroDivisionError: division by zero"),
        ("def build(:\n", "faulty.py:1: invalid syntax"),
    ],
    ids=["import", "error", "syntax"],
)
@pytest.mark.parametrize("wanted", ["faulty:build", "faulty.py:build"])
def test_a_module_that_fails_is_refused_with_its_line(wanted: str, text: str, message: str, own: Path) -> None:
    (own / "faulty.py").write_text(text)
    with pytest.raises(ModelError, match=f"cannot be imported: .*{re.escape(message)}"):
        build_model(wanted, num_classes=4)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))", "has no batch norm with scaling factors"),
        ("Failing()", r"1×8×8: .*name 'undefined' is not defined \(own\.py:\d+\)\. Choose a model for such images"),
        ("net(nn.Flatten())", r"none of its 8 batch-norm channels can go.*: aten\._fft_r2c.*no rule \(own\.py:\d+\)"),
        ("frozen(net(nn.Flatten()))", r"no scaling factor of its 1 batch norms is trained.*requires_grad_\(True\)"),
    ],
    ids=["no batch norm", "a mistake in forward", "nothing can go", "nothing is penalized"],
)
def test_what_cannot_be_trained_or_pruned_is_told_before_the_training(body: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"{UNFIT}def build(num_classes):\n    return {body}\n")
    done = otprune("train", model=f"{tmp_path / 'own.py'}:build", out=tmp_path / "run")
    assert done.code == 1 and re.search(told, done.err), done.err
    assert done.err.count("\n") == 1 and not (tmp_path / "run").exists()
