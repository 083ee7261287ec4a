"""Ctrl-C and SIGTERM wait for the step to end, and are never forgotten."""

import signal
from pathlib import Path

import pytest

from otprune.training import stopping
from otprune.training.checkpoint import checkpoints
from otprune.training.loop import train, train_together
from otprune.training.run import EpochRecord, Run
from otprune.training.stopping import Interrupted
from tests.checkpoint_files import SHORT
from tests.processes import (
    DIGITS,
    net,
    training_run,
)


def test_ctrl_c_after_the_last_step_is_not_forgotten(tmp_path: Path) -> None:
    """What would follow the training does not begin."""

    def press(run: Run, epoch: EpochRecord) -> None:
        if epoch.epoch == SHORT.epochs:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match=f"saved in {tmp_path}: give the same command again"):
        train(training_run(tmp_path, SHORT), press)
    assert training_run(tmp_path, SHORT).done


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_step_to_end_and_a_second_one_does_not(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one at once is part of the first: who stops a process and its group sends it two."""
    before = signal.getsignal(number)

    def press(run: Run, epoch: EpochRecord) -> None:
        for _ in range(2):
            signal.raise_signal(number)

    runs = [training_run(tmp_path / name, SHORT) for name in ("a", "b")]
    with pytest.raises(Interrupted, match=f"saved in {tmp_path / 'a'}, {tmp_path / 'b'}"):
        train_together(runs, lambda run, epoch: press(run, epoch) if run is runs[1] else None)
    for run in runs:
        assert [path.name for path in checkpoints(run.folder or tmp_path)] == ["at-00001-0000000.safetensors"]
    monkeypatch.setattr(stopping, "ECHO_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt) as stopped:
        train(training_run(tmp_path / "a", SHORT), press)
    assert not isinstance(stopped.value, Interrupted)
    assert signal.getsignal(number) is before


def test_without_a_folder_ctrl_c_says_that_nothing_was_saved() -> None:
    with pytest.raises(Interrupted, match="nothing was saved"):
        train(Run(net(), DIGITS, SHORT), lambda run, epoch: signal.raise_signal(signal.SIGINT))
