"""Files of models: plans, checkpoints, state dicts, trainings that were broken off. What is read is made use of."""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

import otprune as ot
from otprune.training.data import Dataset, Images
from otprune.training.run import Run, Training
from tests.parser_fuzz.target import Target, put
from tests.pruned_toys import CASES, Mask, planned
from tests.toy_nets import Toy, make

TOYS = [toy for toy, _ in CASES.values()]
TRAINING = Training(epochs=2, batch=2, augment=False)


def plan() -> Target:
    """Loaded and applied to the model that it was made for."""
    models = [make(toy) for toy in TOYS]
    samples = [_planned(model, case).to_json().encode() for model, case in zip(models, CASES.values(), strict=True)]

    def read(content: bytes, number: int, folder: Path) -> None:
        found = ot.PruningPlan.load(put(content, folder / "plan.json"))
        assert str(found)
        ot.prune(models[number], found)

    return Target("json", samples, read)


def checkpoint() -> Target:
    """With the plans inside, loaded into fresh models."""
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES.values():
            model = make(case[0])
            path = Path(folder, "small.safetensors")
            ot.save(ot.prune(model, _planned(model, case)), path)
            samples.append(path.read_bytes())
    return Target("safetensors", samples, _load)


def zipped_state_dict() -> Target:
    """As torch writes it."""
    return Target("zip", [_torch_saved(toy, zipped=True) for toy in TOYS], _load)


def legacy_state_dict() -> Target:
    """As torch once wrote it."""
    return Target("bytes", [_torch_saved(toy, zipped=False) for toy in TOYS], _load)


def training_checkpoint() -> Target:
    """Found in a folder by a training that goes on from it."""
    with tempfile.TemporaryDirectory() as folder:
        run = _run(Path(folder))
        run.begin_epoch()
        run.advance()
        run.save()
        samples = [path.read_bytes() for path in Path(folder).glob("at-*")]

    def read(content: bytes, number: int, folder: Path) -> None:
        shutil.rmtree(folder / "train", ignore_errors=True)
        put(content, folder / "train" / "at-00000-0000001.safetensors")
        run = _run(folder / "train")
        if not run.done:
            run.begin_epoch()
            if not run.epoch_done:
                run.advance()

    return Target("safetensors", samples, read)


def _planned(model: Toy, case: tuple[type[Toy], Mask]) -> ot.PruningPlan:
    return planned(model, case[0].example(), case[1])


def _torch_saved(toy: Any, zipped: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save(toy().state_dict(), buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def _load(content: bytes, number: int, folder: Path) -> None:
    ot.load(TOYS[number](), put(content, folder / "model"))


def _run(folder: Path) -> Run:
    images = Images(torch.arange(16, dtype=torch.uint8).view(4, 1, 2, 2), torch.tensor([0, 1, 0, 1]))
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    return Run(net, Dataset.of(images, images, ("a", "b")), TRAINING, folder)
