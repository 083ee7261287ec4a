"""Whatever a stage ran on is in the record under its name, though other stages ran on something else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from otprune.experiments import stages
from otprune.experiments.attribution import attributed, note, noted
from otprune.experiments.reproduce.records import Records
from otprune.provenance import provenance
from otprune.report.page import page
from tests import made_records
from tests.small_runs import CPU, BreakOff, pipeline, read


@pytest.fixture(autouse=True)
def _as_many_threads_afterwards() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def threads(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[int]]:
    return {stage: [one["threads"] for one in those] for stage, those in found.items()}


def test_stages_on_one_machine_share_what_the_record_says(tmp_path: Path) -> None:
    (record,) = stages.run([pipeline(tmp_path)])
    assert record["provenance"] == provenance(CPU) and "provenance_by_stage" not in record
    assert threads(noted(tmp_path)) == {"train": [1], "prune": [1], "finetune": [1]}


def test_a_stage_that_ran_elsewhere_is_told_apart(tmp_path: Path) -> None:
    run = pipeline(tmp_path)
    stages.train([run])
    torch.set_num_threads(2)
    (record,) = stages.run([run])
    assert record["provenance"]["threads"] == 2
    assert threads(record["provenance_by_stage"]) == {"train": [1], "prune": [2], "finetune": [2]}
    assert read(tmp_path / "record.json") == record
    torch.set_num_threads(1)
    assert stages.record(run) == record  # to look at it is not to measure it


@pytest.mark.parametrize(("epoch", "save_every", "ran_on"), [(2, 0, [1, 2]), (1, 3600, [2])], ids=["kept", "lost"])
def test_a_stage_that_moved_on_its_way_has_both_unless_nothing_was_kept_of_its_beginning(
    epoch: int, save_every: float, ran_on: list[int], tmp_path: Path
) -> None:
    run = pipeline(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        stages.train([run], BreakOff(tmp_path.name, "train", epoch), save_every=save_every)
    torch.set_num_threads(2)
    stages.train([run])
    assert threads(noted(tmp_path)) == {"train": ran_on}
    apart = stages.record(run).get("provenance_by_stage", {})
    assert threads(apart) == ({"train": ran_on} if len(ran_on) > 1 else {})


def test_a_stage_that_is_done_again_is_the_last_to_have_run(tmp_path: Path) -> None:
    for stage in ("train", "prune"):
        note(tmp_path, stage, CPU, anew=True)
    torch.set_num_threads(2)
    note(tmp_path, "train", CPU, anew=True)
    found = attributed(tmp_path, CPU)
    assert found["provenance"]["threads"] == 2 and threads(found["provenance_by_stage"]) == {"prune": [1], "train": [2]}


def test_a_gpu_that_is_not_used_is_not_named() -> None:
    assert provenance(torch.device("cpu"))["gpu"] is None and provenance(torch.device("cpu"))["cuda"] is None


def test_reports_name_every_machine_and_read_records_without_stages(tmp_path: Path) -> None:
    from otprune.experiments.reproduce.rows import row

    one, other = made_records.PROVENANCE, made_records.PROVENANCE | {"gpu": None, "cpu": "another processor"}
    needed = row("layer-distributions").needs[0]
    for stages_, machines in (({}, 1), ({"train": [one], "prune": [other], "finetune": [one]}, 2)):
        apart = {"provenance_by_stage": stages_} if stages_ else {}
        made_records.write(tmp_path, [needed], lambda needed, apart=apart: made_records.record(needed) | apart)  # type: ignore[misc]
        text = page(Records(tmp_path), tmp_path)
        assert "NVIDIA H200" in text and ("another processor" in text) == (machines == 2)
