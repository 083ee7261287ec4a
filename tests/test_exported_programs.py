"""An exported program is looked through before torch opens it: torch.export.load executes what it finds in one."""

from __future__ import annotations

import io
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from otprune.deploy.exported import to_torch
from otprune.deploy.expressions import is_expression
from otprune.deploy.pt2 import load_program
from otprune.errors import DeployError

TOUCHED = "__import__('pathlib').Path('executed').touch()"


class Executed:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("exported") / "net.pt2"
    torch.manual_seed(0)  # with some weights nothing is above zero, and the export refuses a constant
    to_torch(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU()).eval(), torch.ones(1, 1, 2, 2), path)
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def opened(members: dict[str, bytes], folder: Path) -> Any:
    with zipfile.ZipFile(folder / "net.pt2", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return load_program(folder / "net.pt2")


def root(members: dict[str, bytes]) -> str:
    return next(iter(members)).partition("/")[0]


def test_a_network_is_opened(members: dict[str, bytes], tmp_path: Path) -> None:
    assert opened(members, tmp_path).module()(torch.ones(3, 1, 2, 2)).shape == (3, 1, 2, 2)


class Named(nn.Module):
    """Takes and gives tensors by name, as networks for segmentation do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)

    def forward(self, given: dict[str, Tensor]) -> OrderedDict[str, Tensor]:
        found = self.conv(given["left image"])
        up = nn.functional.interpolate(found, scale_factor=2.0, mode="bilinear")
        return OrderedDict(up=up, products=torch.einsum("bchw,bdhw->bcd", found, found))


def test_inputs_and_outputs_with_names_are_opened(tmp_path: Path) -> None:
    assert to_torch(Named().eval(), ({"left image": torch.ones(1, 1, 2, 2)},), tmp_path / "net.pt2") < 1e-4
    opened = load_program(tmp_path / "net.pt2").module()({"left image": torch.ones(3, 1, 2, 2)})
    assert {name: tensor.shape for name, tensor in opened.items()} == {"up": (3, 1, 4, 4), "products": (3, 1, 1)}


@pytest.mark.parametrize("place", ["sample_inputs", "constants", "weights"])
def test_pickled_objects_are_refused(place: str, members: dict[str, bytes], tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(Executed(tmp_path / "executed"), buffer)
    with pytest.raises(DeployError, match="cannot be opened"):
        opened(members | {f"{root(members)}/data/{place}/model.pt": buffer.getvalue()}, tmp_path)
    assert not (tmp_path / "executed").exists()
    with pytest.raises(Exception, match=r"."):  # the file is made, and is then no input of a network
        torch.export.load(tmp_path / "net.pt2")
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Symbol('s", f"{TOUCHED} or Symbol('s"),
        ("torch.ops.aten.relu.default", "torch.hub.load"),
        ("torch.ops.aten.relu.default", "torch.ops.aten.from_file.default"),
        ('"name": "relu"', '"name": "relu\\nimport os"'),
        ("builtins.tuple", "collections.defaultdict"),
        ("positive=True", "positive=9**9**9"),
        ("Symbol('s", rf"Max(\"{TOUCHED}\", 1) + Symbol('s"),
        ("positive=True", "positive='exit'"),
        ('"guards_code": []', rf'"guards_code": ["L[\" + str({TOUCHED}) + \"]"]'),
        ('"guards_code": []', '"guards_code": {"first": "Max"}'),
        (r"\"[]\"", r"\"[\\\"'+exit()+'\\\"]\""),  # a key of the inputs, which torch writes into code
        ("torch.ops.aten.relu.default", "torch.ops.aten.relu.__class__"),
        ("torch.ops.aten.relu.default", "torch.ops.aten.__class__.__subclasses__"),
    ],
)
def test_programs_inside_are_refused(
    old: str, new: str, members: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"{root(members)}/models/model.json"
    text = members[name].decode()
    assert old in text
    with pytest.raises(DeployError, match="which may be a program"):
        opened(members | {name: text.replace(old, new).encode()}, tmp_path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s77', positive=True, integer=True)",
        "Add(Mul(Integer(2), Symbol('s0')), Integer(-1)) // 2",
        "L['x'].size()[0] <= 8 and not L['args'][0]['left image'].stride()[1] % 2 == 1",
        "Max(L['x'].size(0), 1.5) != L['n']",
    ],
)
def test_sizes_are_expressions(text: str) -> None:
    assert is_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        *("Max('exit', 1)", "Mod('1', 2)", "Integer('1')", "Max(1, evaluate='exit')", "Symbol('exit()')"),
        *("Symbol('s', positive='exit')", "Symbol(Symbol('s'))", "Symbol('a', 'b')", "'s' + Symbol('s')"),
        *("exit", "exit()", "L", "L()", "L.size()", "L['x'].item()", "L['x']()", "L['x'].size", "x['y'].size()[0]"),
        *("L['x'].size('exit')", "L['x(y)']", "L['x'][L['y']]", 'L["x"]', "L['x'].size()['y']", "Max.size()"),
        *("9**9", "1e999", "1j", "b'1'", "f'{1}'", "None", "...", "(1, 2)", "[1]", "Max(*L['x'])", "Max(**L['x'])"),
        *("1 # 2", "(1\n+ 2)", "1 if 1 else 2", "(x := 1)", "lambda: 1", "\uff2c['x'].size()", r"L['\x27']"),
    ],
)
def test_everything_else_is_none(text: str) -> None:
    assert not is_expression(text)
