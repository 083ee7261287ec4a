"""The grid of a sweep, the table of its runs, and the store that keeps them: what of a cluster needs no cluster."""

import os
import re
import socketserver
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch.utils.data import DataLoader

from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.cluster import connection
from otprune.experiments.cluster.connection import connected
from otprune.experiments.cluster.driver import Portion
from otprune.experiments.cluster.endings import told, why_unsaved
from otprune.experiments.cluster.mirror import Superseded
from otprune.experiments.cluster.store import IN_VAIN, Begun, Files, Store
from otprune.experiments.cluster.work import Assignment, Manner, Stopped, perform
from otprune.experiments.experiment import Experiment, Finetuning
from otprune.experiments.following import OnScreen
from otprune.experiments.grid import Grid, is_finished
from otprune.experiments.news import Began, Said, Stood
from otprune.experiments.runs_table import RunsTable, State, moving
from otprune.experiments.standing import Standing
from otprune.training.checkpoint import checkpoints
from otprune.training.run import Training
from otprune.training.stopping import how_to_go_on
from tests import streams
from tests.command_line import run_here
from tests.ray_sweeps import outcome
from tests.small_runs import EXPERIMENT, pipeline, read

SHORT = replace(EXPERIMENT, training=replace(EXPERIMENT.training, epochs=3), finetuning=Finetuning(epochs=2, rate=0.01))
STANDING = Standing("train", 1.5, 3, loss=0.25, accuracy=0.5, speed=100.0, left=200)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_several_networks_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    names = ["tests.small_runs:net", "tests.processes:net"]
    asked: dict[str, object] = {"data": "digits", "device": "cpu", "epochs": 1, "finetune_epochs": 0, "seeds": 2}
    done = run_here("sweep", **asked, model=",".join(names), lam="1e-3", out=tmp_path)
    assert done.code == 0, done.err
    found = {path.parent.name: read(path)["experiment"]["model"] for path in tmp_path.glob("*/record.json")}
    assert found == {f"{name.replace(':', '-')}-lam1e-3-seed{seed}": name for name in names for seed in (0, 1)}
    assert done.out.count("┃ network ") == 2  # in the table of runs, and in that of means
    groups = read(tmp_path / "summary.json")["over_seeds"]
    assert [(group["model"], group["seeds"]) for group in groups] == [(name, [0, 1]) for name in sorted(names)]


def test_runs_and_sweeps_have_folders_of_their_own(tmp_path: Path) -> None:
    """Where one lay in the other's, what each left could not be told apart."""
    flags = {"model": "digits_net", "data": "digits", "device": "cpu", "epochs": 0, "finetune_epochs": 0, "lam": "1e-4"}
    for verb, out in (("sweep", "sweep"), ("run", "run")):
        assert run_here(verb, **flags, out=tmp_path / out).code == 0
    within = run_here("run", **flags, out=tmp_path / "sweep")
    assert (within.code, within.err) == (
        1,
        f"{tmp_path / 'sweep'}: holds the runs lam1e-4-seed0, so it is no folder for a run itself. Use another one.\n",
    )
    around = run_here("sweep", **flags, out=tmp_path / "run")
    assert around.code == 1 and "run: holds a run of its own. Use another folder for a sweep." in around.err
    assert not (tmp_path / "sweep/config.json").exists() and not list((tmp_path / "run").glob("*-seed0"))


def test_a_run_is_known_by_what_its_stages_left_where_its_configuration_is_damaged(tmp_path: Path) -> None:
    flags = {"model": "digits_net", "data": "digits", "device": "cpu", "epochs": 0, "finetune_epochs": 0, "lam": "1e-4"}
    assert run_here("sweep", **flags, out=tmp_path).code == 0
    (tmp_path / "lam1e-4-seed0/config.json").write_text("{")
    within = run_here("run", **flags, out=tmp_path)
    assert within.code == 1 and "holds the runs lam1e-4-seed0" in within.err
    around = run_here("sweep", **flags, out=tmp_path / "lam1e-4-seed0")
    assert around.code == 1 and "lam1e-4-seed0: holds a run of its own" in around.err


def test_rounds_and_sweeps_have_folders_of_their_own(tmp_path: Path) -> None:
    """Else a round would count as a seed."""
    flags = {"model": "digits_net", "data": "digits", "device": "cpu", "epochs": 0, "finetune_epochs": 0, "lam": "1e-4"}
    assert run_here("sweep", **flags, out=tmp_path / "sweep").code == 0
    assert run_here("iterate", **flags, out=tmp_path / "rounds", rounds=1).code == 0
    around = run_here("sweep", **flags, out=tmp_path / "rounds")
    told = f"{tmp_path / 'rounds'}: has rounds.json, so it belongs to rounds. Use another folder for a sweep.\n"
    assert (around.code, around.err) == (1, told)
    within = run_here("iterate", **flags, out=tmp_path / "sweep", rounds=1)
    told = f"{tmp_path / 'sweep'}: holds the runs lam1e-4-seed0. Use another folder for rounds.\n"
    assert (within.code, within.err) == (1, told)
    for verb, out in (("sweep", "sweep"), ("iterate", "rounds")):
        assert run_here(verb, **flags, out=tmp_path / out).code == 0


def test_what_other_programs_call_a_configuration_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "project/bert").mkdir(parents=True)
    (tmp_path / "project/bert/config.json").write_text('{"model": "bert", "hidden_size": 768}')
    (tmp_path / "project/cifar-100-python").mkdir()
    (tmp_path / "project/cifar-100-python/train").touch()
    flags = {"model": "digits_net", "data": "digits", "device": "cpu", "epochs": 0, "finetune_epochs": 0}
    assert run_here("run", **flags, out=tmp_path / "project").code == 0


def test_a_grid_that_grows_by_a_network_goes_on_with_what_there_is(tmp_path: Path) -> None:
    first, second = "tests.small_runs:net", "tests.processes:net"
    asked: dict[str, object] = {"data": "digits", "device": "cpu", "epochs": 1, "finetune_epochs": 0, "lam": "1e-3"}
    assert run_here("sweep", **asked, model=first, out=tmp_path).code == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "lam1e-3-seed0").glob("*.safetensors")}
    done = run_here("sweep", **asked, model=f"{second},{first}", out=tmp_path)
    assert done.code == 0, done.err
    models = {path.parent.name: read(path)["experiment"]["model"] for path in tmp_path.glob("*/record.json")}
    assert models == {"lam1e-3-seed0": first, "tests.processes-net-lam1e-3-seed0": second}
    assert before and all(path.stat().st_mtime_ns == written for path, written in before.items())


@pytest.mark.parametrize(
    ("models", "lams", "said"),
    [
        (("a", "a"), ("1",), "networks of a sweep must differ, and a and a"),
        (("timm:a", "timm-a"), ("1",), "timm:a and timm-a are the same"),
        ((), ("1e-4", "0.0001"), "1e-4 and 0.0001 are the same"),
    ],
)
def test_what_would_share_a_folder_is_refused(models: tuple[str, ...], lams: tuple[str, ...], said: str) -> None:
    with pytest.raises(TrainingError, match=re.escape(said)):
        Grid(models, lams, seeds=1)


def test_no_name_of_a_network_leaves_the_folder() -> None:
    grid = Grid(("../../etc/net.py:build", "/abs/net.py:build", "."), ("1",), seeds=1)
    assert all(Path(name).name == name and not name.startswith(".") for name in grid.cells())


@pytest.mark.parametrize("model", [",", " "])
def test_no_network_at_all_is_refused(model: str, tmp_path: Path) -> None:
    done = run_here("sweep", model=model, data="digits", out=tmp_path / "sweep")
    assert done.code == 2 and "there is no name in it" in done.err


def test_a_run_is_finished_when_its_record_has_all_that_was_measured(tmp_path: Path) -> None:
    run = pipeline(tmp_path / "a", SHORT)
    stages.run([run])
    assert is_finished(run.folder, SHORT)
    assert not is_finished(run.folder, replace(SHORT, hold_out=0.1))
    run.note(accuracy_finetuned=0.5)
    assert not is_finished(run.folder, SHORT)


class Breaking(Store):
    """A store whose node is stopped after a task has sent so many times."""

    def __init__(self, out: Path, runs: list[str], after: int) -> None:
        super().__init__(out, runs)
        self.left = after

    def put(self, run: str, attempt: int, changed: Files, gone: Sequence[str]) -> bool:
        done = super().put(run, attempt, changed, gone)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return done


def test_a_run_that_is_broken_off_goes_on_from_its_last_checkpoint_elsewhere(tmp_path: Path) -> None:
    """Every stage and every checkpoint is a moment to break off at; what comes of it is the same to the last bit."""
    alone = pipeline(tmp_path / "alone" / "a", SHORT)
    stages.run([alone])
    assigned = Assignment(tmp_path / "store" / "a", SHORT, Manner("cpu", save_every=0.0))
    store = Breaking(tmp_path / "store", ["a"], after=1)
    began: list[Began] = []
    while True:
        try:
            assert perform(assigned, store, f"node-{len(began)}") is None
            break
        except Stopped:
            began += [news for news in store.news() if isinstance(news, Began)]
            store.left = 1
    assert len(began) >= 4 and [one.attempt for one in began] == list(range(1, len(began) + 1))
    assert began[0].reached == "" and all(one.reached for one in began[1:])
    reached = {one.reached.partition("/")[0] for one in began[1:]}
    assert reached == {"train", "sparse.safetensors", "pruned.safetensors", "finetune", "finetuned.safetensors"}
    assert outcome(assigned.folder) == outcome(alone.folder)
    assert len(checkpoints(assigned.folder / "train")) == 2  # older ones are gone here as well


def test_an_attempt_that_is_over_can_write_nothing(tmp_path: Path) -> None:
    class Overtaken(Store):
        def put(self, run: str, attempt: int, changed: Files, gone: Sequence[str]) -> bool:
            if attempt == 1:
                self.begin(run, "another node")
            return super().put(run, attempt, changed, gone)

    store = Overtaken(tmp_path, ["a"])
    with pytest.raises(Superseded):
        perform(Assignment(tmp_path / "a", SHORT), store, "node")
    assert not (tmp_path / "a" / "sparse.safetensors").exists()
    assert store.put("a", 2, {"results.json": b"{}"}, [])
    store.close()
    assert not store.put("a", 2, {"results.json": b"late"}, [])
    assert (tmp_path / "a" / "results.json").read_bytes() == b"{}"


def test_an_error_speaks_of_the_folder_that_the_user_knows(tmp_path: Path) -> None:
    hopeless = replace(SHORT, training=replace(SHORT.training, rate=1e30, proximal=False))
    error = perform(Assignment(tmp_path / "a", hopeless), Store(tmp_path, ["a"]), "node")
    assert error is not None and error.text.startswith(f"{tmp_path / 'a' / 'train'}: the loss is not a finite number")


def test_a_run_whose_process_always_dies_is_given_up(tmp_path: Path) -> None:
    store = Store(tmp_path, ["a"])
    for _ in range(IN_VAIN - 1):
        store.begin("a", "node")
    attempt = store.begin("a", "node").attempt
    store.put("a", attempt, {"train/at-00001-0000000.safetensors": b""}, [])  # it does get on
    for _ in range(IN_VAIN):
        store.begin("a", "node")
    with pytest.raises(TrainingError, match=f"a: its process ended {IN_VAIN} times before it had saved anything"):
        store.begin("a", "node")


@pytest.mark.parametrize("name", ["../b/results.json", "/etc/passwd", "train/../../x"])
def test_nothing_is_written_outside_of_a_run(name: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "sweep", ["a"])
    with pytest.raises(TrainingError, match="lies outside of its folder"):
        store.put("a", store.begin("a", "node").attempt, {name: b""}, [])


def test_a_store_that_is_being_stopped_lets_no_run_begin(tmp_path: Path) -> None:
    store = Store(tmp_path, ["a"])
    store.stop()
    with pytest.raises(TrainingError, match="is being stopped"):
        store.begin("a", "node")


def test_a_model_comes_after_its_measurements_and_hidden_files_stay(tmp_path: Path) -> None:
    """Broken off between two files, what is there must be what a run here would have left."""
    store = Store(tmp_path, ["a"])
    first = store.begin("a", "node")
    assert first == Begun(1, {})
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "results.json").mkdir()  # which no file can replace
    with pytest.raises(TrainingError, match=r"results\.json: is a directory\. .* on the machine that the sweep"):
        store.put("a", 1, {"record.json": b"{}", "sparse.safetensors": b"", "results.json": b"{}"}, [])
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TrainingError("layer 3 is odd:\nsee why"), "layer 3 is odd:\nsee why"),
        (ValueError("3 is odd\nFile work.py, line 5"), "ValueError: 3 is odd"),
        (
            torch.OutOfMemoryError("CUDA out of memory.\nTried"),
            "OutOfMemoryError: CUDA out of memory. Give",
        ),
    ],
)
def test_an_error_on_a_node_is_told_without_where_in_the_code_it_was(error: Exception, said: str) -> None:
    found = told(error)
    assert found.startswith(said) and found.count("\n") == said.count("\n")
    assert ("--gpus-per-run" in found) == isinstance(error, torch.OutOfMemoryError)


def test_runs_that_could_not_be_saved_when_they_were_stopped_are_named(tmp_path: Path) -> None:
    """One was saved, one had not begun, one found the disk full, and one had not ended in time."""
    store = Store(tmp_path, ["b"])
    store.stop()
    with pytest.raises(TrainingError) as refused:
        store.begin("b", "node")
    ends = {"a": Stopped("saved"), "b": refused.value, "c": OSError(28, "No space left on device")}
    unsaved = {run: why for run, error in ends.items() if (why := why_unsaved(error)) is not None}
    text = how_to_go_on(tmp_path, unsaved | {"d": ""})
    left = "by c (OSError: [Errno 28] No space left on device), d: give the same command"
    assert text.startswith(f"stopped and saved in {tmp_path}, but for what was done since") and left in text


@pytest.mark.parametrize(("cpus", "workers"), [(1.0, 1), (0.5, 1), (2.0, 2)])
def test_a_run_on_a_node_reads_with_as_many_processes_as_it_has_cpus(
    cpus: float, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    started: list[int] = []

    class Loader(DataLoader[Any]):
        def __init__(self, *arguments: Any, num_workers: int, **options: Any) -> None:
            started.append(num_workers)
            options |= {"persistent_workers": False, "prefetch_factor": None}
            super().__init__(*arguments, num_workers=0, **options)

    monkeypatch.setattr("otprune.training.data.stream.DataLoader", Loader)
    images = Experiment(
        *("tests.streams:net", str(streams.make_folder(tmp_path / "images"))),
        training=Training(epochs=1, batch=4),
        finetuning=Finetuning(epochs=0),
    )
    assert perform(Assignment(tmp_path / "a", images, Manner("cpu", cpus=cpus)), Store(tmp_path, ["a"]), "node") is None
    assert started and set(started) == {workers}


def test_gpus_are_shared_where_there_are_any() -> None:
    assert Portion(together=4).of({"GPU": 8.0}) == (1.0, 0.25) and Portion(together=4).of({}) == (1.0, 0.0)
    assert Portion(2.0, 0.5, 4).of({"GPU": 8.0}) == (2.0, 0.5)
    assert 3 * Portion(together=3).of({"GPU": 1.0})[1] <= 1
    with pytest.raises(TrainingError, match=r"--gpus-per-run must be part of a GPU, or a whole number .* not 1\.5"):
        Portion(gpus=1.5)


@pytest.mark.parametrize(
    ("address", "said"),
    [("ray://127.0.0.1:10001", "a client of Ray is none"), ("127.0.0.1:1", "no Ray cluster can be reached there")],
)
def test_a_cluster_that_cannot_be_used_is_told_at_once(address: str, said: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(TrainingError, match=said), connected(address):
        pass


class Silent(socketserver.BaseRequestHandler):
    """Says nothing to anybody, for a while."""

    def handle(self) -> None:
        time.sleep(3)


@pytest.mark.parametrize(
    ("kind", "said"), [(SimpleHTTPRequestHandler, "something else than Ray answers"), (Silent, "timed out")]
)
def test_what_is_no_cluster_at_an_address_is_told_soon(
    kind: type[socketserver.BaseRequestHandler], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(connection, "ANSWERING_SECONDS", 1.0)
    with socketserver.ThreadingTCPServer(("", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with (
            pytest.raises(TrainingError, match=rf"no Ray cluster can be reached .*{said}"),
            connected(f"127.0.0.1:{server.server_address[1]}"),
        ):
            pass
        server.shutdown()


def test_without_ray_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TrainingError, match=re.escape("pip install 'otprune[cluster]'")), connected("auto"):
        pass


def test_the_table_shows_what_matters_where_not_all_fits() -> None:
    table = RunsTable([f"run-{number}" for number in range(30)])
    table.ends("run-0", State.DONE)
    table.ends("run-25", State.FAILED)
    table.stands("run-20", STANDING, where="node-1")
    assert [row.run for row in table.shown(3)] == ["run-1", "run-20", "run-25"]
    assert table.counts() == "1 running, 1 failed, 27 waiting, 1 done"
    assert table.rows["run-20"].cells()[:7] == ("run-20", "node-1", "train", "1.5/3", "0.250", "50.00%", "0:00:02")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_cluster_is_followed_in_a_table_or_by_a_line_for_each_event(terminal: bool) -> None:
    text, table = StringIO(), RunsTable(["a", "b"])
    console = Console(file=text, force_terminal=terminal, width=120, height=20)
    follower = OnScreen(table, console)
    with moving(table, console):
        for news in (Began("a", "node-1", 1), Stood("a", STANDING), Said("a", "train", ["train a: epoch 3/3"])):
            follower.hear(news)
        follower.hear(Began("a", "node-2", 2, "train/at-00001-0000000.safetensors"))
        follower.ended("a", None)
        follower.ended("b", "it diverged")
    lines = text.getvalue().splitlines()
    events = ["a: started on node-1", "train a: epoch 3/3", "a: finished"]
    always = ["a: moved to node-2, goes on from train/at-00001-0000000.safetensors", "b: failed: it diverged"]
    if terminal:
        assert not any(event in lines for event in events) and "1 failed, 1 done" in text.getvalue()
        assert all(any(line.endswith(event) for line in lines) for event in always)
    else:
        assert lines == [*events[:2], always[0], events[2], always[1]]
