"""Checkpoints: written whole, read strictly, nothing in them executed, and every bit comes back."""

import ast
import copy
import json
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.errors import CheckpointError
from tests.checking import MaskRule, shrink
from tests.net_layers import conv, norm
from tests.toy_nets import (
    AuxiliaryHead,
    DictOutputs,
    Grouped,
    InPlace,
    PreActivation,
    ResidualIdentity,
    Sequential,
    SharedTowers,
    Toy,
    Transposed,
    TwoReaders,
    conv3,
    make,
)
from tests.unchanged import unchanged

ROOT = Path(__file__).parent.parent
# Each pruning here leaves something else behind: selections, removed branches, a ReLU no longer in place, fewer groups.
PRUNINGS: dict[type[Toy], dict[str, list[int]]] = {
    Sequential: {"bn1": [0, 3], "bn2": [1]},
    TwoReaders: {"bn1": [0, 1], "bn2": [2, 3]},
    PreActivation: {"bn1": [0, 1, 2], "bn2": [5], "bn_final": [3]},
    ResidualIdentity: {"bn1": [0], "bn3": [0, 1, 2, 3, 4, 5]},
    InPlace: {"bn1": [0], "bn2": [0, 1, 2, 3, 4, 5]},
    Grouped: {"bn1": [0, 2, 4], "bn2": [0, 3, 6]},
    Transposed: {"bn1": [5], "bn2": [0]},
    SharedTowers: {"bn1": [1, 2]},
    AuxiliaryHead: {"bn1": [2], "bn2": [0]},
    DictOutputs: {"bn2": [0, 4]},
}


def pruned(model: nn.Module, inputs: Any, mask: dict[str, list[int]]) -> nn.Module:
    shrink(model, mask)
    return ot.prune(model, ot.plan(model, inputs, MaskRule()))


def assert_same(left: nn.Module, right: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """The same tensors under the same names, and the same outputs, bit for bit."""
    ours, theirs = left.state_dict(), right.state_dict()
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name]), name
    found = torch.utils._pytree.tree_leaves(left.eval()(*inputs))
    assert all(map(torch.equal, found, torch.utils._pytree.tree_leaves(right.eval()(*inputs))))


@pytest.mark.parametrize("toy", PRUNINGS)
class TestPruned:
    def test_comes_back_bit_for_bit(self, toy: type[Toy], tmp_path: Path) -> None:
        small = pruned(make(toy), toy.example(), PRUNINGS[toy])
        with unchanged(small):
            ot.save(small, tmp_path / "small.safetensors")
        fresh = toy()
        with unchanged(fresh):
            loaded = ot.load(fresh, tmp_path / "small.safetensors")
        assert type(loaded) is toy
        assert_same(loaded, small, toy.example())

    def test_twice_comes_back_and_can_be_pruned_on(self, toy: type[Toy], tmp_path: Path) -> None:
        once = pruned(make(toy), toy.example(), PRUNINGS[toy])
        norms = {n: m for n, m in once.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
        twice = pruned(once, toy.example(), {n: [0] for n, m in norms.items() if m.num_features > 2})
        assert sum(p.numel() for p in twice.parameters()) < sum(p.numel() for p in once.parameters())
        ot.save(twice, tmp_path / "twice.safetensors")
        loaded = ot.load(toy(), tmp_path / "twice.safetensors")
        assert_same(loaded, twice, toy.example())
        plan = ot.plan(loaded, toy.example(), MaskRule())
        assert plan == ot.plan(twice, toy.example(), MaskRule())

    def test_plan_survives_json(self, toy: type[Toy], tmp_path: Path) -> None:
        model = make(toy)
        shrink(model, PRUNINGS[toy])
        plan = ot.plan(model, toy.example(), MaskRule())
        plan.save(tmp_path / "plan.json")
        read = ot.PruningPlan.load(tmp_path / "plan.json")
        assert read == plan
        assert str(read) == str(plan)
        assert_same(ot.prune(model, read), ot.prune(model, plan), toy.example())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_is_kept(dtype: torch.dtype, tmp_path: Path) -> None:
    small = pruned(make(TwoReaders), TwoReaders.example(), PRUNINGS[TwoReaders]).to(dtype)
    ot.save(small, tmp_path / "small.safetensors")
    for fresh in (TwoReaders(), TwoReaders().double(), TwoReaders().to(dtype)):
        loaded = ot.load(fresh, tmp_path / "small.safetensors")
        assert_same(loaded, small, tuple(tensor.to(dtype) for tensor in TwoReaders.example()))
        assert all(p.requires_grad for p in loaded.parameters())


def test_mixed_precision_is_kept(tmp_path: Path) -> None:
    model = make(Sequential).bfloat16()
    model.bn1.float()
    ot.save(model, tmp_path / "model.safetensors")
    loaded = ot.load(Sequential(), tmp_path / "model.safetensors")
    assert {n: t.dtype for n, t in loaded.state_dict().items()} == {n: t.dtype for n, t in model.state_dict().items()}


def test_channels_last_weights_come_back(tmp_path: Path) -> None:
    small = pruned(make(Sequential), Sequential.example(), PRUNINGS[Sequential]).to(memory_format=torch.channels_last)
    ot.save(small, tmp_path / "small.safetensors")
    fresh = Sequential().to(memory_format=torch.channels_last)
    loaded = ot.load(fresh, tmp_path / "small.safetensors")
    assert_same(loaded, small, Sequential.example())
    assert loaded.get_parameter("conv2.weight").is_contiguous(memory_format=torch.channels_last)


def test_frozen_parameters_stay_frozen(tmp_path: Path) -> None:
    small = pruned(make(Sequential), Sequential.example(), {"bn1": [0]})
    ot.save(small, tmp_path / "small.safetensors")
    fresh = Sequential()
    fresh.conv1.requires_grad_(False)
    loaded = ot.load(fresh, tmp_path / "small.safetensors")
    assert {n for n, p in loaded.named_parameters() if not p.requires_grad} == {"conv1.weight"}


def test_a_loaded_model_trains(tmp_path: Path) -> None:
    small = pruned(make(InPlace), InPlace.example(), PRUNINGS[InPlace])
    ot.save(small, tmp_path / "small.safetensors")
    loaded = ot.load(InPlace(), tmp_path / "small.safetensors").train()
    before = copy.deepcopy(loaded.state_dict())
    optimizer = torch.optim.SGD(loaded.parameters(), lr=0.1)
    loaded(*InPlace.example()).square().mean().backward()
    optimizer.step()
    assert all(not torch.equal(p, before[n]) for n, p in loaded.named_parameters())


class TiedHeads(Toy):
    """Two heads that are one parameter."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head, self.other = conv(2, 6, 4), conv(2, 6, 4)
        if tied:
            self.other.weight = self.head.weight

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x) + self.other(-x).sigmoid()


class TestTiedWeights:
    @pytest.mark.parametrize("mask", [{}, {"bn1": [0, 2]}])
    def test_stay_tied(self, mask: dict[str, list[int]], tmp_path: Path) -> None:
        model = make(TiedHeads)
        small = pruned(model, TiedHeads.example(), mask)
        assert small.get_parameter("other.weight") is small.get_parameter("head.weight")
        ot.save(small, tmp_path / "small.safetensors")
        loaded = ot.load(TiedHeads(), tmp_path / "small.safetensors")
        assert loaded.get_parameter("other.weight") is loaded.get_parameter("head.weight")
        assert_same(loaded, small, TiedHeads.example())

    def test_do_not_load_into_a_model_without_the_tie(self, tmp_path: Path) -> None:
        ot.save(make(TiedHeads), tmp_path / "model.safetensors")
        fresh = TiedHeads(tied=False)
        with unchanged(fresh), pytest.raises(CheckpointError, match=r"has no other\.weight"):
            ot.load(fresh, tmp_path / "model.safetensors")

    def test_load_from_an_ordinary_state_dict(self, tmp_path: Path) -> None:
        model = make(TiedHeads)
        torch.save(model.state_dict(), tmp_path / "model.pt")
        assert_same(ot.load(TiedHeads(), tmp_path / "model.pt"), model, TiedHeads.example())


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
        small = pruned(make(TwoReaders), TwoReaders.example(), PRUNINGS[TwoReaders])
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

        small = pruned(net(8), torch.zeros(1, 3, 8, 8), {"1": [0, 1]})
        ot.save(small, tmp_path / "small.safetensors")
        for width in (6, 16):
            fresh = net(width)
            with unchanged(fresh), pytest.raises(CheckpointError, match=r"0\.weight of shape \(8, 3, 3, 3\)") as caught:
                ot.load(fresh, tmp_path / "small.safetensors")
            assert "with the arguments it was trained with" in str(caught.value)

    def test_a_pruned_model_in_place_of_a_fresh_one_is_refused(self, tmp_path: Path) -> None:
        small = pruned(make(Sequential), Sequential.example(), {"bn1": [0]})
        ot.save(small, tmp_path / "small.safetensors")
        with unchanged(small), pytest.raises(CheckpointError, match="does not fit this Sequential"):
            ot.load(small, tmp_path / "small.safetensors")


class TestFile:
    def test_other_tools_can_read_it(self, tmp_path: Path) -> None:
        small = pruned(make(Sequential), Sequential.example(), PRUNINGS[Sequential])
        ot.save(small, tmp_path / "small.safetensors")
        with safetensors.safe_open(tmp_path / "small.safetensors", "pt") as file:
            names, metadata = set(file.keys()), file.metadata()
        assert names == set(small.state_dict())
        assert metadata["otprune.model"] == "Sequential"
        assert [plan["fingerprint"] for plan in json.loads(metadata["otprune.plans"])]

    def test_replaces_the_old_one_and_leaves_nothing_beside_it(self, tmp_path: Path) -> None:
        target = tmp_path / "model.safetensors"
        target.write_bytes(b"old")
        ot.save(make(Sequential), target)
        assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
        assert_same(ot.load(Sequential(), str(target)), make(Sequential), Sequential.example())

    def test_a_reader_of_the_old_one_goes_on_reading_it(self, tmp_path: Path) -> None:
        target = tmp_path / "model.safetensors"
        target.write_bytes(b"old")
        with target.open("rb") as reader:
            ot.save(make(Sequential), target)
            assert reader.read() == b"old"

    def test_has_the_permissions_that_new_files_have(self, tmp_path: Path) -> None:
        (tmp_path / "ordinary").touch()
        ot.save(nn.Linear(2, 2), tmp_path / "model.safetensors")
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert len(modes) == 1

    def test_a_relative_path_without_a_folder_works(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        ot.save(nn.Linear(2, 2), "model.safetensors")
        assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


class TestNoPickle:
    def test_neither_saving_nor_loading_unpickles(self, tmp_path: Path) -> None:
        """Python itself reports every class that a pickle names."""
        script = """
            import sys
            import torch
            import otprune as ot
            from tests.toy_nets import Sequential, make

            model = make(Sequential)
            model.bn1.weight.data[0] = 0
            seen = []
            sys.addaudithook(lambda event, args: seen.append(args) if event.startswith("pickle.") else None)
            small = ot.prune(model, ot.plan(model, model.example()))
            ot.save(small, sys.argv[1])
            ot.load(Sequential(), sys.argv[1])
            torch.save(model.state_dict(), sys.argv[1])
            ot.load(Sequential(), sys.argv[1])
            assert not seen, seen
            torch.save(model, sys.argv[1])
            torch.load(sys.argv[1], weights_only=False)
            assert seen
        """
        command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "model")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_no_source_file_imports_a_pickler(self) -> None:
        for path in (ROOT / "src").rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    names = {getattr(node, "module", None), *(alias.name for alias in node.names)}
                    assert not names & {"pickle", "cloudpickle", "dill", "shelve", "joblib", "marshal"}, path
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                    assert "weights_only=True" in ast.unparse(node), path
