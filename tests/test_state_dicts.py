"""Ordinary state dicts are loaded, and those of another model refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.errors import CheckpointError
from tests.comes_back import PRUNINGS, assert_same, pruned_by
from tests.toy_nets import Sequential, TwoReaders, make
from tests.unchanged import unchanged


class TestOrdinaryStateDicts:
    def write(self, model: nn.Module, kind: str, folder: Path) -> Path:
        path = folder / "model"
        if kind == "safetensors":
            safetensors.torch.save_file(model.state_dict(), path)
        else:
            torch.save(model.state_dict(), path, _use_new_zipfile_serialization=kind == "zip")
        return path

    @pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
    def test_load(self, kind: str, tmp_path: Path) -> None:
        model, fresh = make(Sequential), Sequential()
        path = self.write(model, kind, tmp_path)
        with unchanged(fresh):
            loaded = ot.load(fresh, path)
        assert_same(loaded, model, Sequential.example())

    @pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
    def test_load_into_a_pruned_model_which_stays_as_it_was(self, kind: str, tmp_path: Path) -> None:
        small = pruned_by(make(TwoReaders), TwoReaders.example(), PRUNINGS[TwoReaders])
        other = copy.deepcopy(small)
        other.get_parameter("conv1.weight").data += 1
        path = self.write(other, kind, tmp_path)
        with unchanged(small):
            loaded = ot.load(small, path)
        assert_same(loaded, other, TwoReaders.example())

    @pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda state: state.pop("bn1.weight"), r"has no bn1\.weight"),
            (lambda state: state.update({"bn9.weight": torch.ones(1)}), r"has a bn9\.weight that the model does not"),
            (lambda state: state.update({"bn1.weight": torch.ones(3)}), r"bn1\.weight of shape \(3,\).* has \(6,\)"),
            (lambda state: state.clear(), "has no "),
        ],
        ids=["missing", "foreign", "shape", "empty"],
    )
    def test_that_do_not_match_are_refused(self, change: Any, message: str, kind: str, tmp_path: Path) -> None:
        model = make(Sequential)
        state = dict(model.state_dict())
        change(state)
        path = tmp_path / "model"
        if kind == "safetensors":
            safetensors.torch.save_file(state, path)
        else:
            torch.save(state, path, _use_new_zipfile_serialization=kind == "zip")
        with unchanged(model), pytest.raises(CheckpointError, match=message) as caught:
            ot.load(model, path)
        assert str(path) in str(caught.value) and "Sequential" in str(caught.value)


class TestClassMismatch:
    def test_a_class_with_the_same_tensors_is_refused(self, tmp_path: Path) -> None:
        class Other(Sequential):
            def forward(self, x: Tensor) -> Tensor:
                return -super().forward(x)

        ot.save(make(Sequential), tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match="saved from a Sequential, not a Other"):
            ot.load(Other(), tmp_path / "model.safetensors")

    def test_the_same_class_with_other_arguments_is_refused(self, tmp_path: Path) -> None:
        def net(width: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Conv2d(width, 2, 1))

        small = pruned_by(net(8), torch.zeros(1, 3, 8, 8), {"1": [0, 1]})
        ot.save(small, tmp_path / "small.safetensors")
        for width in (6, 16):
            fresh = net(width)
            with unchanged(fresh), pytest.raises(CheckpointError, match=r"0\.weight of shape \(8, 3, 3, 3\)") as caught:
                ot.load(fresh, tmp_path / "small.safetensors")
            assert "with the arguments it was trained with" in str(caught.value)

    def test_a_pruned_model_in_place_of_a_fresh_one_is_refused(self, tmp_path: Path) -> None:
        small = pruned_by(make(Sequential), Sequential.example(), {"bn1": [0]})
        ot.save(small, tmp_path / "small.safetensors")
        with unchanged(small), pytest.raises(CheckpointError, match="does not fit this Sequential"):
            ot.load(small, tmp_path / "small.safetensors")
