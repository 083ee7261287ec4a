"""The file of a checkpoint: others can read it, it is replaced as a whole, and nothing is unpickled."""

import ast
import json
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
from torch import nn

import otprune as ot
from tests.comes_back import PRUNINGS, assert_same, pruned_by
from tests.toy_nets import Sequential, make

ROOT = Path(__file__).parent.parent


class TestFile:
    def test_other_tools_can_read_it(self, tmp_path: Path) -> None:
        small = pruned_by(make(Sequential), Sequential.example(), PRUNINGS[Sequential])
        ot.save(small, tmp_path / "small.safetensors")
        with safetensors.safe_open(tmp_path / "small.safetensors", "pt") as file:
            names, metadata = set(file.keys()), file.metadata()
        assert names == set(small.state_dict())
        assert metadata["otprune.model"] == "Sequential"
        assert [plan["fingerprint"] for plan in json.loads(metadata["otprune.plans"])]

    def test_replaces_the_old_one_and_leaves_nothing_beside_it(self, tmp_path: Path) -> None:
        target = tmp_path / "model.safetensors"
        target.write_bytes(b"old")
        ot.save(make(Sequential), target)
        assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
        assert_same(ot.load(Sequential(), str(target)), make(Sequential), Sequential.example())

    def test_a_reader_of_the_old_one_goes_on_reading_it(self, tmp_path: Path) -> None:
        target = tmp_path / "model.safetensors"
        target.write_bytes(b"old")
        with target.open("rb") as reader:
            ot.save(make(Sequential), target)
            assert reader.read() == b"old"

    def test_has_the_permissions_that_new_files_have(self, tmp_path: Path) -> None:
        (tmp_path / "ordinary").touch()
        ot.save(nn.Linear(2, 2), tmp_path / "model.safetensors")
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert len(modes) == 1

    def test_a_relative_path_without_a_folder_works(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        ot.save(nn.Linear(2, 2), "model.safetensors")
        assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


class TestNoPickle:
    def test_neither_saving_nor_loading_unpickles(self, tmp_path: Path) -> None:
        """Python itself reports every class that a pickle names."""
        script = """
            import sys
            import torch
            import otprune as ot
            from tests.toy_nets import Sequential, make

            model = make(Sequential)
            model.bn1.weight.data[0] = 0
            seen = []
            sys.addaudithook(lambda event, args: seen.append(args) if event.startswith("pickle.") else None)
            small = ot.prune(model, ot.plan(model, model.example()))
            ot.save(small, sys.argv[1])
            ot.load(Sequential(), sys.argv[1])
            torch.save(model.state_dict(), sys.argv[1])
            ot.load(Sequential(), sys.argv[1])
            assert not seen, seen
            torch.save(model, sys.argv[1])
            torch.load(sys.argv[1], weights_only=False)
            assert seen
        """
        command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "model")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_no_source_file_imports_a_pickler(self) -> None:
        for path in (ROOT / "src").rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    names = {getattr(node, "module", None), *(alias.name for alias in node.names)}
                    assert not names & {"pickle", "cloudpickle", "dill", "shelve", "joblib", "marshal"}, path
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                    assert "weights_only=True" in ast.unparse(node), path
