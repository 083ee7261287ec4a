"""One process at a time in the folder of a run, and what is left there by one that was killed."""

import gc
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.iterate import iterate
from otprune.experiments.thresholds import verify_thresholds
from otprune.files import remove_leftovers
from otprune.training.holding import LOCK, hold, is_held
from otprune.training.loop import train
from otprune.training.run import EpochRecord, Run
from tests.command_line import otprune, run_here
from tests.processes import DIGITS, command, start, training_run
from tests.small_runs import CPU, EXPERIMENT, pipeline, read

LEFTOVERS = (".sparse.safetensors.0123456789abcdef", ".results.json.00112233445566ff")
DIGITS_NET = ("--model", "digits_net", "--data", "digits", "--device", "cpu")


def open_and_wait(folder: Path, ready: Path) -> None:
    opened = pipeline(folder)
    opened.note(accuracy_sparse=0.5)
    ready.touch()
    time.sleep(60)


def train_and_wait(folder: Path, ready: Path) -> None:
    def wait(run: Run, epoch: EpochRecord) -> None:
        ready.touch()
        time.sleep(60)

    train(training_run(folder), wait)


@contextmanager
def at_work(target: Callable[[Path, Path], None], folder: Path) -> Iterator[None]:
    """Another process works in the folder, and is killed in the end."""
    ready = folder.with_name("ready")
    process = start(target, folder, ready)
    while process.is_alive() and not ready.exists():
        time.sleep(0.01)
    try:
        yield
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL


def test_a_folder_that_another_process_works_in_is_refused_but_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with at_work(open_and_wait, folder):
        for name in LEFTOVERS:
            (folder / name).touch()
        with pytest.raises(TrainingError, match=f"^{folder}: another process is at work in this folder"):
            pipeline(folder)
        done = otprune("run", model=EXPERIMENT.model, epochs=3, out=folder)
        assert done.code == 1 and done.err.startswith(f"{folder}: another process") and done.err.count("\n") == 1
        assert read(folder / "results.json") == {"accuracy_sparse": 0.5}
        assert all((folder / name).exists() for name in LEFTOVERS)  # it may still be writing them
    assert pipeline(folder).results == {"accuracy_sparse": 0.5}  # the kill let go of it
    assert not any((folder / name).exists() for name in LEFTOVERS)


def test_a_run_at_work_is_not_exported_but_can_be_reported(tmp_path: Path) -> None:
    folder, page = tmp_path / "run", tmp_path / "report.html"
    run = pipeline(folder)
    stages.train([run])
    stages.prune(run)
    stages.record(run)
    del run
    gc.collect()
    with at_work(open_and_wait, folder):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        refused = run_here("export", folder, "--to", "safetensors")
        assert refused.code == 1 and refused.err.startswith(f"{folder}: another process is at work in this folder")
        assert run_here("report", folder, "--out", page).code == 0 and page.stat().st_size > 1000
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert run_here("export", folder, "--to", "safetensors").code == 0


def test_of_two_sweeps_in_one_folder_the_second_is_refused(tmp_path: Path) -> None:
    sweep = ("sweep", *DIGITS_NET, "--lam", "1e-3,1e-2", "--epochs", "1000", "--out", tmp_path / "runs")
    first = start(command, tuple(map(str, sweep)), tmp_path / "out", tmp_path / "err")
    begun = [tmp_path / "runs" / f"lam{lam}-seed0" for lam in ("1e-3", "1e-2")]
    while first.is_alive() and not all((folder / "provenance.json").exists() for folder in begun):
        time.sleep(0.01)
    second = run_here(*sweep)
    first.kill()
    first.join()
    assert first.exitcode == -signal.SIGKILL
    assert second.code == 1 and second.err.startswith(f"{begun[0]}: another process is at work in this folder")


def test_a_sweep_removes_what_a_kill_left_of_its_summary(tmp_path: Path) -> None:
    leftovers = [tmp_path / f".summary.{suffix}.0123456789abcdef" for suffix in ("json", "md")]
    for path in leftovers:
        path.touch()
    sweep = ("sweep", *DIGITS_NET, "--lam", "1e-3", "--epochs", "0", "--finetune-epochs", "0", "--out", tmp_path)
    assert run_here(*sweep).code == 0
    assert not any(path.exists() for path in leftovers) and (tmp_path / "summary.md").exists()


def test_what_a_kill_left_in_the_folder_of_a_training_inside_is_removed_too(tmp_path: Path) -> None:
    inside, held = tmp_path / "run" / "train", tmp_path / "run" / "held"
    for folder in (inside, held):
        folder.mkdir(parents=True)
        (folder / ".at-00001-0000002.safetensors.0123456789abcdef").touch()
    (held / LOCK).touch()  # its own holder removes it
    hold(tmp_path / "run")()
    assert not list(inside.iterdir()) and len(list(held.iterdir())) == 2


def test_a_training_alone_keeps_others_out_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with at_work(train_and_wait, folder), pytest.raises(TrainingError, match=f"^{folder}: another process"):
        train(training_run(folder))
    train(training_run(folder))
    assert not is_held(folder)


def test_a_process_may_open_a_folder_more_than_once(tmp_path: Path) -> None:
    first, second = pipeline(tmp_path), pipeline(tmp_path)
    del first
    gc.collect()
    assert is_held(tmp_path)
    del second
    gc.collect()
    assert not is_held(tmp_path)


def test_a_forked_process_has_not_got_the_folders_of_its_parent(tmp_path: Path) -> None:
    let_go = hold(tmp_path)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_exit_by_whether_held, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == 3
    let_go()


def _exit_by_whether_held(folder: Path) -> None:
    try:
        hold(folder)
    except TrainingError:
        raise SystemExit(3) from None


def test_only_what_was_being_written_is_removed(tmp_path: Path) -> None:
    others = {".lock", ".hidden", "note.0123456789abcdef", ".note.0123456789abcdeg", "note"}
    for name in (*others, *LEFTOVERS):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == others


def test_rounds_and_checks_of_thresholds_leave_nothing_half_written(tmp_path: Path) -> None:
    run = pipeline(tmp_path / "run")
    stages.train([run])
    for folder in (tmp_path / "rounds", run.folder / "threshold-check"):
        folder.mkdir()
        (folder / ".record.json.0123456789abcdef").touch()
    verify_thresholds(run, (0.0,), finetune_epochs=0)
    iterate(EXPERIMENT, tmp_path / "rounds", DIGITS, CPU, rounds=1)
    assert not list(tmp_path.rglob(".record.json.*"))


def test_a_lock_that_cannot_be_opened_keeps_everybody_out(tmp_path: Path) -> None:
    """As another user's may be: a folder in its place stands for it, which nobody can open to write, root neither."""
    (tmp_path / LOCK).mkdir()
    with pytest.raises(TrainingError, match=r"\.lock: cannot be opened .* delete it when none is"):
        hold(tmp_path)
    assert not is_held(tmp_path)
