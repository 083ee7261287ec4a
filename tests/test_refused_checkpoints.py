"""Files that are no checkpoint of the model: truncated, foreign, of another class; no pickle is executed."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import otprune as ot
from otprune.errors import CheckpointError
from tests.checking import shrink
from tests.refusals import busy, refused
from tests.toy_nets import PreActivation, Sequential, make


class TestCheckpoints:
    @pytest.fixture
    def saved(self, tmp_path: Path) -> Path:
        model = make(PreActivation)
        shrink(model, {"bn1": [0, 2], "bn2": [1]})
        ot.save(ot.prune(model, ot.plan(model, model.example())), tmp_path / "small.safetensors")
        return tmp_path / "small.safetensors"

    @pytest.mark.parametrize("share", [0, 0.001, 0.02, 0.3, 0.6, 0.9, 0.999])
    @pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
    def test_truncated(self, kind: str, share: float, saved: Path, tmp_path: Path) -> None:
        model, path = busy(make(PreActivation)), tmp_path / "model"
        if kind == "safetensors":
            content = saved.read_bytes()
        else:
            torch.save(model.state_dict(), path, _use_new_zipfile_serialization=kind == "zip")
            content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])
        refused(CheckpointError, str(path), models=(model,), call=lambda: ot.load(model, path))

    @pytest.mark.parametrize(
        "content", [b"", b"{}", b"PK\3\4 no archive", b"\x89PNG\r\n", b"\x80\x02\x95", b"x" * 10000]
    )
    def test_foreign(self, content: bytes, tmp_path: Path) -> None:
        model, path = busy(make(Sequential)), tmp_path / "model"
        path.write_bytes(content)
        refused(CheckpointError, str(path), "state dict", models=(model,), call=lambda: ot.load(model, path))

    def test_missing(self, tmp_path: Path) -> None:
        model = make(Sequential)
        for path in (tmp_path / "nothing", tmp_path):
            refused(CheckpointError, f"{path}: no such file", models=(model,), call=lambda p=path: ot.load(model, p))

    def test_of_another_class(self, saved: Path) -> None:
        model = busy(make(Sequential))
        refused(
            CheckpointError, str(saved), "saved from a PreActivation, not a Sequential", "Build the model",
            models=(model,), call=lambda: ot.load(model, saved),
        )  # fmt: skip

    @pytest.mark.parametrize("plans", ["", "5", "null", "[5]", '"a"', "[{}]", '[{"format": 1}]', '[{"format": 99}]'])
    def test_with_a_damaged_plan(self, plans: str, tmp_path: Path) -> None:
        model, path = busy(make(Sequential)), tmp_path / "model"
        safetensors.torch.save_file(make(Sequential).state_dict(), path, {"otprune.plans": plans})
        refused(
            CheckpointError, str(path), "plan inside is damaged", models=(model,), call=lambda: ot.load(model, path)
        )

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_a_pickle_is_not_executed(self, protocol: int, tmp_path: Path) -> None:
        model, path = busy(make(Sequential)), tmp_path / "model.pt"
        path.write_bytes(pickle.dumps(Executed(tmp_path / "executed"), protocol))
        refused(CheckpointError, str(path), "state dict", models=(model,), call=lambda: ot.load(model, path))
        assert not (tmp_path / "executed").exists()

    @pytest.mark.parametrize("zipped", [True, False])
    @pytest.mark.parametrize("beside_weights", [True, False])
    def test_a_pickle_that_torch_wrote_is_not_executed(
        self, zipped: bool, beside_weights: bool, tmp_path: Path
    ) -> None:
        model, path = busy(make(Sequential)), tmp_path / "model.pt"
        bomb = Executed(tmp_path / "executed")
        content = {**model.state_dict(), "bomb": bomb} if beside_weights else bomb
        torch.save(content, path, _use_new_zipfile_serialization=zipped)
        refused(CheckpointError, str(path), "state dict", models=(model,), call=lambda: ot.load(model, path))
        assert not (tmp_path / "executed").exists()

    def test_the_pickle_would_have_been_executed(self, tmp_path: Path) -> None:
        pickle.loads(pickle.dumps(Executed(tmp_path / "executed")))
        assert (tmp_path / "executed").exists()

    def test_a_whole_model_saved_by_torch(self, tmp_path: Path) -> None:
        model, path = make(Sequential), tmp_path / "model.pt"
        torch.save(model, path)
        refused(
            CheckpointError, str(path), "torch.save(model.state_dict(), path)",
            models=(model,), call=lambda: ot.load(model, path),
        )  # fmt: skip

    def test_a_training_checkpoint_says_to_save_the_state_dict_alone(self, tmp_path: Path) -> None:
        model, path = make(Sequential), tmp_path / "model.pt"
        torch.save({"model": model.state_dict(), "epoch": 3}, path)
        refused(
            CheckpointError,
            str(path),
            "Save model.state_dict() alone",
            models=(model,),
            call=lambda: ot.load(model, path),
        )


class Executed:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)
