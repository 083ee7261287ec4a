"""Commands killed at random moments lose nothing; the long run of the same kills two hundred times."""

import json
import random
import shutil
from pathlib import Path

import pytest
from torch import nn

import otprune as ot
from otprune.experiments.folder import PRUNED, SPARSE, write_json
from otprune.training.holding import LOCK
from tests.chaos import looking
from tests.chaos.__main__ import run, started
from tests.chaos.commands import VERBS, Case, Usual, tell_of
from tests.chaos.killing import Moment, drawn
from tests.chaos.record import Record
from tests.chaos.rounds import Killed, Round
from tests.chaos.sameness import differences
from tests.processes import finish

QUICK = ("train", "prune", "finetune", "sweep", "export-safetensors")


def test_ten_kills_over_all_verbs_lose_nothing(tmp_path: Path) -> None:
    record = run(10, seed=1, path=tmp_path / "chaos.json", cases=QUICK)
    assert record.failures == []
    assert record.kills == record.survived == 10
    assert record.kills_by_verb == dict.fromkeys(VERBS, 2)
    assert record.resumed == record.resumed_the_same >= 5


MOMENT = Moment(0.001, "write results.json", 2)


def usual(folder: Path, operations: tuple[str, ...] = ("write a", "rename a", "write b")) -> Usual:
    return Usual(Case(("train",)), None, folder, 3.0, operations)


class TestRecord:
    def test_counts(self) -> None:
        record = Record(seed=0, code="", provenance={})
        record.add(Round("train", [Killed(MOMENT, ["results.json"]), Killed(Moment(0.5), [])], same=True))
        record.add(Round("export-onnx", [Killed(Moment(0.5), [])], problems=["lost"], same=False))
        record.add(Round("prune", same=True))
        assert (record.kills, record.survived, record.rounds) == (3, 2, 3)
        assert (record.resumed, record.resumed_the_same) == (2, 1)
        assert record.kills_by_verb == {"train": 2, "export": 1}
        assert record.kills_by_moment == {"write results.json": 1, "time": 2}
        assert record.kills_while_writing == {"results.json": 1, "nothing": 2}
        (failure,) = record.failures
        assert (failure["round"], failure["case"], failure["problems"]) == (1, "export-onnx", ["lost"])
        assert record.next_verb() == "prune"

    def test_goes_on_from_its_own_record_and_from_no_other(self, tmp_path: Path) -> None:
        path = tmp_path / "chaos.json"
        record = started(0, path)
        record.add(Round("train", [Killed(MOMENT, [])], same=True))
        record.write(path)
        assert started(0, path) == record
        assert started(1, path).kills == 0
        path.write_text(json.dumps(json.loads(path.read_text()) | {"code": "other"}))
        assert started(0, path).kills == 0


class TestMoments:
    def test_are_drawn_by_time_and_by_every_operation(self, tmp_path: Path) -> None:
        chance = random.Random(0)
        found = [drawn(chance, usual(tmp_path)) for _ in range(300)]
        assert {moment.operation for moment in found} == {None, "write a", "rename a", "write b"}
        assert all(moment.seconds < 3 for moment in found)

    def test_a_process_tells_what_it_does_with_files(self, tmp_path: Path) -> None:
        """And of nothing that it only reads, or that lies elsewhere."""
        (tmp_path / "run").mkdir()
        finish(use_files, tmp_path)
        assert (tmp_path / "told").read_text().splitlines() == ["write note", "rename at-*.json", "remove at-*.json"]


def use_files(place: Path) -> None:
    told, folder = (place / "told").open("w"), place / "run"
    tell_of(folder, lambda text: told.write(f"{text}\n"))
    note = folder / ".note.0123456789abcdef"
    note.write_text("whole")
    note.read_text()
    (place / "elsewhere").write_text("unheard")
    note.replace(folder / "at-00001-0000002.json")
    (folder / "at-00001-0000002.json").unlink()
    told.close()


class TestLooking:
    """The checks find what they are for."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "run"
        (folder / "train").mkdir(parents=True)
        (folder / LOCK).touch()
        for name in (SPARSE, PRUNED, "train/at-00001-0000000.safetensors"):
            ot.save(nn.Linear(2, 2), folder / name)
        for name in ("plan.json", "results.json"):
            write_json(folder / name, {"seconds": {"train": 1.0}, "accuracy": 0.5})
        return folder

    def test_a_half_file_is_damaged(self, folder: Path) -> None:
        assert not list(looking.damaged(folder))
        for name in (SPARSE, "results.json"):
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(content[:-5])
        assert [path.split(":")[0] for path in looking.damaged(folder)] == [
            str(folder / name) for name in ("results.json", SPARSE)
        ]
        (folder / "strange.txt").touch()
        assert any("nothing is known of such files" in found for found in looking.damaged(folder))

    def test_a_stage_is_lost_where_its_file_is_gone_or_another(self, folder: Path) -> None:
        finished = looking.finished(folder)
        assert finished.keys() == {SPARSE, PRUNED, "plan.json"} and not looking.lost(finished, folder)
        (folder / PRUNED).unlink()
        ot.save(nn.Linear(2, 2), folder / SPARSE)
        assert looking.lost(finished, folder) == [SPARSE, PRUNED]

    def test_a_leftover_is_forgotten_where_the_run_was_gone_on_with(self, folder: Path) -> None:
        leftover, before = folder / "train" / ".at-00001-0000001.safetensors.0123456789abcdef", looking.marks(folder)
        leftover.touch()
        assert looking.leftovers(folder) == {leftover}
        assert not looking.forgotten({leftover}, looking.changed(before, looking.marks(folder)))
        write_json(folder / "results.json", {})
        changed = looking.changed(before, looking.marks(folder))
        assert changed == {folder / "results.json"} and looking.forgotten({leftover}, changed) == [leftover]
        leftover.unlink()
        assert not looking.forgotten({leftover}, changed)

    def test_results_differ_but_for_times(self, folder: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        shutil.copytree(folder, other)
        for name in ("train/at-00001-0000000.safetensors", "plan.json"):
            (other / name).unlink()
            (folder / name).unlink()
        write_json(other / "results.json", {"seconds": {}, "accuracy": 0.5})
        assert not list(differences(folder, other))
        write_json(other / "results.json", {"seconds": {}, "accuracy": 0.25})
        ot.save(nn.Linear(2, 2), other / SPARSE)
        (other / "new.json").touch()
        assert [found.split()[0] for found in differences(folder, other)] == ["new.json", "results.json", SPARSE]
