"""The command line under torchrun: what it does, what it refuses, and that a kill or Ctrl-C loses nothing."""

import json
import os
import re
import socket
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from otprune.cli.running import errors_in_one_line
from otprune.cli.together import run_together
from otprune.errors import TrainingError
from otprune.training import distributed, same_folder
from otprune.training.asking import EVERY_STEPS
from otprune.training.checkpoint import checkpoints
from otprune.training.holding import holding
from otprune.training.same_folder import require_same_folder
from tests.disturbed import FAILED, INTERRUPT_AT, INTERRUPTED, KILLED, restarts, train_disturbed
from tests.groups import difference, finished, found, otprune_together, together, torchrun
from tests.processes import command

SMALL = ("--model", "tests.small_runs:net", "--data", "digits", "--device", "cpu")
DISTURBED = ("--model", "tests.disturbed:net", "--data", "digits", "--device", "cpu", "--epochs", "2")


def test_a_command_in_two_processes_trains_what_it_trains_in_one(tmp_path: Path) -> None:
    for size in (1, 2):
        how = ("--epochs", "3", "--rate", "0.05", "--lam", "1e-2", "--sync-batch-norm", "--device", "cpu")
        network = ("--model", "tests.groups:net_in_double", "--data", "digits")
        ends = otprune_together(size, tmp_path, "train", *network, *how, "--out", f"{tmp_path / str(size)}")
        assert [done.code for done in ends] == [0] * size, ends
    one, two = (load_file(tmp_path / size / "sparse.safetensors") for size in "12")
    assert one["0.weight"].dtype == torch.float64  # in which the order of a sum does not show
    assert difference(one, two) < 1e-12


def test_the_whole_pipeline_runs_in_two_processes_and_only_the_first_speaks(tmp_path: Path) -> None:
    how = ("--epochs", "3", "--lam", "0.3", "--proximal", "--finetune-epochs", "2", "--finetune-rate", "0.01")
    leader, other = otprune_together(2, tmp_path, "run", *SMALL, *how, "--out", f"{tmp_path / 'run'}")
    assert (leader.code, other.code) == (0, 0), (leader, other)
    assert "the model is" in leader.out and other.out == other.err == ""
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["results"]["accuracy_finetuned"] > 0.8
    assert record["results"]["cost_after"]["flops"] < record["results"]["cost_before"]["flops"]
    assert record["provenance"]["processes"] == 2


def test_a_killed_process_is_started_again_and_the_weights_are_those_of_a_training_without(tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    ended = torchrun("tests.disturbed", f"{tmp_path / 'killed'}", options=("--max-restarts", "1"), **{KILLED: "1:30"})
    assert ended.returncode == 0, ended.stderr
    assert restarts(tmp_path / "killed") == 1
    (tmp_path / "whole").mkdir()
    together(2, train_disturbed, tmp_path / "whole")
    assert difference(found(tmp_path / "killed"), found(tmp_path / "whole")) == 0


def test_ctrl_c_stops_both_and_the_same_command_goes_on_to_the_same_end(tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    stopped = torchrun("otprune", "train", *DISTURBED, "--out", f"{run}", **{INTERRUPTED: "1"})
    assert stopped.returncode != 0
    assert stopped.stderr.count(f"stopped and saved in {run / 'train'}: give the same command again to go on") == 1
    [saved] = [path.name for path in checkpoints(run / "train")]
    assert saved in [f"at-00000-{INTERRUPT_AT + later:07d}.safetensors" for later in range(EVERY_STEPS + 1)]
    for folder in (run, whole):
        ends = otprune_together(2, tmp_path, "train", *DISTURBED, "--out", f"{folder}")
        assert [done.code for done in ends] == [0, 0], ends
    assert difference(*(load_file(folder / "sparse.safetensors") for folder in (run, whole))) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", *SMALL, "--batch", "33"), "--batch must be a multiple of 2, the processes that share it, not 33"),
        (("prune",), "otprune prune is for one process, and torchrun started 2"),
        (("train", "--model", "tests.small_runs:net", "--data", "nowhere"), "nowhere is neither a folder nor one of"),
        (("train", *SMALL, "--device", "gpu"), "there is no device named 'gpu'"),
    ],
    ids=["a batch that cannot be shared", "a verb that does not train", "data that there is not", "no device"],
)
def test_what_cannot_be_done_together_is_told_once(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ends = otprune_together(2, tmp_path, *arguments, "--out", f"{tmp_path / 'run'}")
    assert [done.code for done in ends] == [1, 1]
    assert sorted(said in done.err for done in ends) == [False, True]
    assert "".join(done.err for done in ends).count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_that_only_the_first_process_sees_is_refused_before_training(tmp_path: Path) -> None:
    for rank in "01":
        (tmp_path / rank).mkdir()
    assert finished(2, command_in_a_folder_of_its_own, ("train", *SMALL, "--out", "run"), tmp_path) == [1, 1]
    errors = [(tmp_path / f"err-{rank}").read_text() for rank in "01"]
    said = f"run is not the same folder for the processes that train together: .* number 1 on {socket.gethostname()}"
    assert re.match(said, "".join(errors)) and "a folder that all of them see" in "".join(errors)
    assert sorted(error.count("\n") for error in errors) == [0, 1]
    assert [path.name for path in (tmp_path / "0" / "run").iterdir()] == [".lock"]  # nothing is claimed, no file stays


def command_in_a_folder_of_its_own(arguments: tuple[str, ...], place: Path) -> None:
    """As on machines that share no disk."""
    rank = os.environ["RANK"]
    os.chdir(place / rank)
    command(arguments, place / f"out-{rank}", place / f"err-{rank}")


def test_the_file_that_shows_a_folder_to_all_goes_with_what_kills_leave(tmp_path: Path) -> None:
    together(2, leave_what_a_kill_leaves, tmp_path)
    [left] = tmp_path.glob(".seen.*")
    with holding([tmp_path]):
        assert not left.exists()


def leave_what_a_kill_leaves(folder: Path) -> None:
    """A check that goes well and leaves nothing, and then the file of one that never ended."""

    def leave() -> None:
        assert not list(folder.iterdir())
        same_folder._left_in(folder)

    require_same_folder(folder)
    distributed.led(leave)


def test_a_verb_for_one_process_is_refused_aloud_though_the_others_could_end_before_the_first_speaks() -> None:
    """torchrun ends all processes as soon as it has seen one end."""
    ended = torchrun("tests.late_leader", "prune", "--out", "nowhere")
    assert ended.returncode != 0
    assert ended.stderr.count("otprune prune is for one process, and torchrun started 2") == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("a name"), ("Traceback", "in failing", "KeyError: 'a name'")),
        (OSError(28, "No space left", "disk"), ("disk: no space left. What was finished is kept: mend this, then",)),
        (TrainingError("layer 3 is odd"), ("layer 3 is odd\n",)),
    ],
    ids=["unexpected", "of the system", "of the library"],
)
def test_what_the_leader_fails_at_is_for_the_leader_to_tell(
    error: Exception, told: tuple[str, ...], tmp_path: Path
) -> None:
    assert finished(2, fail_in_the_leader, error, tmp_path) == [1, 1]
    leader, other = ((tmp_path / f"{rank}.txt").read_text() for rank in (0, 1))
    assert all(part in leader for part in told), leader
    assert other == ""


def fail_in_the_leader(error: Exception, folder: Path) -> None:
    """A command whose leader takes its time between the error, which the other hears of at once, and telling it."""

    def failing() -> None:
        raise error

    def command() -> None:
        with errors_in_one_line():
            try:
                distributed.led(failing)
            finally:
                time.sleep(distributed.leads())

    with (folder / f"{os.environ['RANK']}.txt").open("w") as file:
        os.dup2(file.fileno(), 2)
    run_together(command, ["train"])


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_in_one_process_ends_all_and_is_told_once(rank: int, tmp_path: Path) -> None:
    out = ("--out", f"{tmp_path / 'run'}")
    ends = otprune_together(2, tmp_path, "train", *DISTURBED, *out, **{FAILED: f"{rank}"})
    assert [done.code for done in ends] == [1, 1]
    assert [done.err for done in ends] == [
        "" if number != rank else f"process {rank} cannot go on\n" for number in (0, 1)
    ]
