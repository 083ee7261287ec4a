"""A bit that flips in a file is noticed: a digest says so, and what is damaged is never gone on with."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import otprune as ot
from otprune.errors import CheckpointError, OtpruneError
from otprune.experiments import stages
from otprune.sealing import KEY, sealed
from otprune.training.checkpoint import Checkpoint, at, checkpoints, newest
from otprune.training.loop import train
from tests.checkpoint_files import SHORT, assert_same_end, assert_same_file, broken_off
from tests.command_line import run_here
from tests.processes import training_run
from tests.small_runs import EXPERIMENT, pipeline

STATE = {"history": [{"epoch": 1, "loss": 0.25}]}


def flipped(content: bytes) -> Iterator[bytes]:
    """The content with one bit changed, for every byte of it."""
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        yield bytes(damaged)


def test_no_bit_of_a_training_checkpoint_can_flip_unnoticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tensors = {"model.weight": torch.arange(20.0), "model.steps": torch.tensor(3)}
    path = at(tmp_path, 1, 5)
    Checkpoint(path, tensors, {"lam": 0.1}, STATE).write()
    content, unharmed = path.read_bytes(), 0
    for damaged in flipped(content):
        path.write_bytes(damaged)
        with caplog.at_level(logging.WARNING):
            found = newest(tmp_path)
        if found is not None:  # a space that pads the header, or the name of the digest itself
            unharmed += 1
            assert (found.settings, found.state) == ({"lam": 0.1}, STATE)
            torch.testing.assert_close(dict(found.tensors), tensors, rtol=0, atol=0)
    assert unharmed < len(KEY) + 10
    assert caplog.text.count(f"does not match the digest in it, {KEY}") > 100


def test_no_bit_of_a_model_can_flip_unnoticed(tmp_path: Path) -> None:
    model, path = nn.Linear(3, 5), tmp_path / "model.safetensors"
    ot.save(model, path)
    content, refused = path.read_bytes(), 0
    for damaged in flipped(content):
        path.write_bytes(damaged)
        try:
            found = ot.load(nn.Linear(3, 5), path)
        except OtpruneError as error:
            refused += str(path) in str(error)
        else:
            torch.testing.assert_close(found.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert refused > len(content) - len(KEY) - 10


def test_a_training_goes_on_from_the_checkpoint_before_the_damaged_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(training_run(tmp_path / "whole", SHORT))
    broken_off(tmp_path / "run", after=2)
    before, last = checkpoints(tmp_path / "run")
    content = bytearray(last.read_bytes())
    content[-100] ^= 1
    last.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        run = training_run(tmp_path / "run", SHORT)
    assert f"{last} is damaged (its content does not match the digest in it, {KEY}" in caplog.text
    assert f"going on from {before}" in caplog.text
    train(run, save_every=0)
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_a_checkpoint_from_before_there_were_digests_is_gone_on_with(tmp_path: Path) -> None:
    tensors = {"model.weight": torch.arange(20.0)}
    metadata = {"training": json.dumps({"lam": 0.1}), "state": json.dumps(STATE)}
    at(tmp_path, 1, 5).write_bytes(safetensors.torch.save(tensors, metadata))
    found = newest(tmp_path)
    assert found is not None and (found.settings, found.state) == ({"lam": 0.1}, STATE)


def test_a_model_that_is_no_checkpoint_of_a_training_is_not_set_aside(tmp_path: Path) -> None:
    ot.save(nn.Linear(2, 2), at(tmp_path, 1, 5))
    with pytest.raises(CheckpointError, match="is no checkpoint of a training"):
        newest(tmp_path)
    assert checkpoints(tmp_path)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool])
def test_tensors_of_every_kind_and_shape_have_a_digest(kind: torch.dtype) -> None:
    tensors = {"wide": torch.ones(4, 3).to(kind).t(), "lone": torch.ones((), dtype=kind), "none": torch.ones(0, 3)}
    found = safetensors.torch.load(sealed(tensors, {}))
    torch.testing.assert_close(found, tensors)


def test_the_digest_depends_on_names_shapes_and_what_is_said_beside() -> None:
    def digest_in(tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> str:
        content = sealed(tensors, metadata)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return str(header["__metadata__"][KEY])

    zeros = torch.zeros(4)
    different = [
        digest_in({"a": zeros}, {}),
        digest_in({"b": zeros}, {}),
        digest_in({"a": zeros.view(2, 2)}, {}),
        digest_in({"a": zeros.int()}, {}),
        digest_in({"a": zeros}, {"plans": "[]"}),
    ]
    assert len(set(different)) == len(different)


def test_a_damaged_model_of_a_stage_is_named_and_the_stage_makes_it_again(tmp_path: Path) -> None:
    """What the message says to do is done, and helps."""
    folder, copy = tmp_path / "run", tmp_path / "copy.safetensors"
    run = pipeline(folder)
    stages.train([run])
    del run
    model = folder / "sparse.safetensors"
    copy.write_bytes(model.read_bytes())
    content = bytearray(copy.read_bytes())
    content[-10] ^= 64
    model.write_bytes(content)
    done = run_here("prune", out=folder)
    assert done.code == 1 and done.err.startswith(f"{model}: is damaged: ") and done.err.count("\n") == 1
    assert "delete it and make it again" in done.err and not (folder / "pruned.safetensors").exists()
    model.unlink()
    stages.train([pipeline(folder, EXPERIMENT)])
    assert_same_file(model, copy)
