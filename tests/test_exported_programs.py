"""An exported program is looked through before torch opens it: torch.export.load executes what it finds in one."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from otprune.deploy.exported import to_torch
from otprune.deploy.pt2 import load_program
from otprune.errors import DeployError


class Executed:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("exported") / "net.pt2"
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
        ("Symbol('s", "__import__('pathlib').Path('executed').touch() or Symbol('s"),
        ("torch.ops.aten.relu.default", "torch.hub.load"),
        ("torch.ops.aten.relu.default", "torch.ops.aten.from_file.default"),
        ('"name": "relu"', '"name": "relu\\nimport os"'),
        ("builtins.tuple", "collections.defaultdict"),
        ("positive=True", "positive=9**9**9"),
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
