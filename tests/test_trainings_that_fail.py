"""A training whose numbers leave the numbers stops, and what was good is kept."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.pipeline import open_pipelines
from otprune.training.checkpoint import checkpoints
from otprune.training.failures import RunsFailed
from otprune.training.loop import train, train_together
from otprune.training.run import Run
from tests.checkpoint_files import SHORT, contents
from tests.processes import (
    DIGITS,
    net,
    training_run,
)
from tests.small_runs import CPU, EXPERIMENT


class Fuse(nn.Module):
    """Counts batches, and at a certain one gives a loss, or only a gradient, that is not a number."""

    def __init__(self, burns_at: int, what: str) -> None:
        super().__init__()
        self.burns_at, self.what = burns_at, what
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        if self.seen != self.burns_at:
            return x
        return x * torch.nan if self.what == "loss" else x + 0 * (x - x.detach()).sqrt()


@pytest.mark.parametrize("save_every", [0, 3600])
def test_a_loss_that_is_no_number_stops_with_its_step_and_keeps_the_last_good_checkpoint(
    save_every: float, tmp_path: Path
) -> None:
    model = nn.Sequential(net(), Fuse(burns_at=30, what="loss"))
    said = rf"^{tmp_path}: the loss is not a finite number at step 30 \(epoch 2\)"
    with pytest.raises(TrainingError, match=said) as stopped:
        train(Run(model, DIGITS, SHORT, tmp_path), save_every=save_every)
    left = checkpoints(tmp_path)
    if save_every:
        assert not left and "No checkpoint was written before" in str(stopped.value)
        return
    assert [path.name for path in left] == [f"at-00001-000000{step}.safetensors" for step in (7, 8)]
    assert f"The last good checkpoint is {left[-1]}" in str(stopped.value)
    tensors, _ = contents(left[-1])
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())


@pytest.mark.parametrize("folder", [True, False], ids=["saved", "not saved"])
def test_weights_that_are_no_numbers_are_never_saved(folder: bool, tmp_path: Path) -> None:
    """The last step's loss is a number, but its gradient is not: no later loss tells."""
    last = Fuse(burns_at=63, what="gradient")
    run = Run(nn.Sequential(net(), last), DIGITS, SHORT, tmp_path if folder else None)
    with pytest.raises(TrainingError, match="is not finite after step 63"):
        train(run, save_every=0)
    assert [path.name[:16] for path in checkpoints(tmp_path)] == ["at-00002-0000019", "at-00002-0000020"] * folder


def test_an_error_that_is_kept_keeps_no_runs(tmp_path: Path) -> None:
    """Each may have images and weights on a GPU, and the others are to have that."""
    wild = replace(EXPERIMENT, training=replace(EXPERIMENT.training, rate=1e30))
    asked = {tmp_path / "tame": EXPERIMENT, tmp_path / "wild": wild}
    before = {id(one) for one in gc.get_objects() if type(one) is Run}
    with pytest.raises(RunsFailed, match="loss is not a finite number") as failed:
        stages.train(open_pipelines(asked, CPU))
    gc.collect()
    assert failed.value and not [one for one in gc.get_objects() if type(one) is Run and id(one) not in before]


@pytest.mark.parametrize("save_every", [0, 3600])
def test_of_runs_side_by_side_one_that_fails_is_set_aside(save_every: float, tmp_path: Path) -> None:
    """The others end as they do alone; then the error comes, with the run that it is of."""
    alone = training_run(None, SHORT)
    train(alone)
    first, last = (training_run(tmp_path / name, SHORT) for name in ("first", "last"))
    burning = Run(nn.Sequential(net(), Fuse(burns_at=30, what="loss")), DIGITS, SHORT, tmp_path / "burning")
    with pytest.raises(RunsFailed, match=rf"^{tmp_path / 'burning'}: the loss .* at step 30 .*folder\.$") as failed:
        train_together([first, burning, last], save_every=save_every)
    assert [run for run, _ in failed.value.errors] == [burning] and not burning.done
    for run in (first, last):
        torch.testing.assert_close(run.model.state_dict(), alone.model.state_dict(), rtol=0, atol=0)
        assert run.folder is not None and checkpoints(run.folder)[-1].name == "at-00003-0000000.safetensors"
