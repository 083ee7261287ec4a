"""A node of a cluster that fails its runs, its disk full or the data missing there: others do what it could not."""

import os
import re
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch import nn

from otprune.errors import CheckpointError, DataError, OtpruneError, TrainingError
from otprune.experiments.cluster.endings import why_unsaved
from otprune.experiments.cluster.failing import Failure, Suspects, failure
from otprune.experiments.cluster.store import Elsewhere, Files, Store
from otprune.experiments.cluster.work import Assignment, perform
from otprune.training.checkpoint import Checkpoint, at
from tests.chaos.looking import leftovers
from tests.ray_cluster import ray_cluster
from tests.ray_sweeps import BEGAN, Sweep
from tests.small_runs import EXPERIMENT, net
from tests.test_faults_disk import FITS_NO_MODEL, room_for

RUN, COPY = Path("runs/a"), Path("/tmp/otprune-x/a")
BAD = "OTPRUNE_TEST_BAD_NODE"
FULL = Failure("no space left on device", "host/one", of_node=True)


def unsaved(folder: Path) -> CheckpointError:
    """What a training says that has no room for a checkpoint."""
    folder.write_text("a file, where no folder can be made")
    with pytest.raises(CheckpointError) as caught:
        Checkpoint(at(folder, 1, 0), {}, {}, {}).write()
    return caught.value


def test_a_failure_that_may_be_the_nodes_names_the_node_and_its_own_file(tmp_path: Path) -> None:
    copy = tmp_path / "a"
    errors = [unsaved(copy), OSError(28, "No space left on device", f"{copy}/x"), DataError("no images in x")]
    for error in errors:
        found = failure(error, "host/one", RUN, copy)
        assert found.of_node and found.text.startswith("runs/a: on host/one: ")
        assert (str(copy) in found.text) == (not isinstance(error, DataError))
        assert "last good checkpoint" not in found.text  # which is here, not there


@pytest.mark.parametrize("error", [TrainingError(f"{COPY}/train: the loss is nan"), CheckpointError(f"{COPY} is odd")])
def test_a_failure_of_the_run_itself_speaks_of_the_users_folder_alone(error: OtpruneError) -> None:
    found = failure(error, "host/one", RUN, COPY)
    assert not found.of_node and found.text == str(error).replace(str(COPY), "runs/a")


def test_a_run_is_tried_once_more_and_only_where_there_is_another_node() -> None:
    suspects, nodes = Suspects(), ["one", "two", "three"]
    assert not suspects.lets_try_again("a", Failure("the loss is nan", "host/one"), nodes) and not suspects.nodes
    assert suspects.lets_try_again("a", FULL, nodes) and suspects.nodes == {"one"}
    again = Failure("no images", "host/two", of_node=True)
    assert not suspects.lets_try_again("a", again, nodes) and suspects.nodes == {"one", "two"}
    assert suspects.told("a", again) == "no images. It failed on host/one before."
    assert suspects.lets_try_again("b", FULL, nodes)  # on the third
    assert not suspects.lets_try_again("c", Failure("no images", "host/three", of_node=True), nodes)
    assert suspects.told("c", FULL) == "no space left on device. It failed on host/three before."


def test_a_run_that_was_handed_out_before_does_not_begin_on_a_node_to_be_avoided(tmp_path: Path) -> None:
    store = Store(tmp_path, ["a"])
    store.avoid("one")
    with pytest.raises(Elsewhere) as refused:
        store.begin("a", "host/one")
    assert why_unsaved(refused.value) is None  # it has not begun
    assert store.begin("a", "host/two").attempt == 1
    assert store.begin("a", "host/one", known=["one"]).attempt == 2  # nobody else is left


def test_a_node_without_room_fails_its_run_even_before_it_begins(tmp_path: Path) -> None:
    store = Store(tmp_path, ["a"])
    store.put("a", store.begin("a", "host/two").attempt, {"train/at-1.safetensors": bytes(FITS_NO_MODEL * 2)}, [])
    with room_for(FITS_NO_MODEL):
        found = perform(Assignment(tmp_path / "a", EXPERIMENT), store, "host/one")
    assert found is not None and found.of_node
    assert re.match(rf"{tmp_path}/a: on host/one: \S+/otprune-\w+/a: file too large\.", found.text)


def test_a_full_disk_of_the_store_is_not_the_nodes_fault(tmp_path: Path) -> None:
    class Full(Store):
        def put(self, run: str, attempt: int, changed: Files, gone: Sequence[str]) -> bool:
            with room_for(1):
                return super().put(run, attempt, changed, gone)

    found = perform(Assignment(tmp_path / "a", EXPERIMENT), Full(tmp_path, ["a"]), "host/one")
    assert found is not None and not found.of_node
    assert re.match(rf"{tmp_path}/a/\S+: file too large\. .* on the machine that the sweep was", found.text)


def net_of_a_full_node(num_classes: int = 10) -> nn.Module:
    """A network; from then on its process has no room for a model, if it is one of a certain node."""
    import ray

    if ray.is_initialized() and ray.get_runtime_context().get_node_id().startswith(Path(os.environ[BAD]).read_text()):
        resource.setrlimit(resource.RLIMIT_FSIZE, (FITS_NO_MODEL, resource.RLIM_INFINITY))
    return net(num_classes)


def test_the_runs_of_a_node_whose_disk_is_full_go_well_on_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv(BAD, str(tmp_path / "bad"))
    asked = {"model": f"{__name__}:net_of_a_full_node", "data": "digits", "device": "cpu", "epochs": 4}
    with ray_cluster() as cluster:
        bad = sorted(cluster.nodes)[0]
        (tmp_path / "bad").write_text(bad)
        sweep = Sweep(
            tmp_path / "streams",
            **asked,
            finetune_epochs=4,
            lam=0.3,
            seeds=8,
            out=tmp_path / "runs",
            ray=cluster.address,
        )
        done = sweep.ended()
    assert done.code == 0, (done.out, done.err)
    failed = re.findall(r"^(\S+) is tried once more, .*: \S+: on \S+/(\w+): .*ile too large", done.out, re.MULTILINE)
    assert failed and {node for _, node in failed} == {bad}
    began = BEGAN.findall(done.out)
    assert len(began) == 8 + len(failed) and len([node for _, node in began if node == bad]) == len(failed) < 4
    assert len(list((tmp_path / "runs").glob("*/record.json"))) == 8 and not leftovers(tmp_path / "runs")
