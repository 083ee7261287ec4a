"""No source file has a way to execute what a file from outside holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "otprune"
PICKLERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "joblib", "marshal", "yaml", "jsonpickle"}
EXECUTING = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.jit.load", "torch.hub.load"),
    *("np.load", "numpy.load", "pd.read_pickle", "runpy.run_path", "runpy.run_module", "code.interact"),
}
# What imports a module whose name is not written there: the user's own model, packages that may be missing, own parts.
IMPORTING = {"models/building.py", "models/libraries.py", "deploy/packages.py", "cli/app.py"}
CHECKED = {"deploy/pt2.py"}  # looks through a file before torch opens it


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Every call: in which file, of what, and how."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield path.relative_to(SOURCE).as_posix(), ast.unparse(node.func), node


def given(call: ast.Call, name: str) -> str | None:
    return next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == name), None)


def test_nothing_is_imported_that_unpickles() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {module.partition(".")[0] for module in modules} & PICKLERS, path


def test_nothing_is_called_that_executes_a_text_or_a_file() -> None:
    assert [(path, called) for path, called, _ in calls() if called in EXECUTING] == []


def test_torch_loads_weights_alone() -> None:
    found = [(path, call) for path, called, call in calls() if called == "torch.load"]
    assert {path for path, _ in found} == {"checkpoint.py", "deploy/pt2.py"}
    assert all(given(call, "weights_only") == "True" for _, call in found)


def test_exported_programs_are_opened_in_one_place() -> None:
    assert {path for path, called, _ in calls() if called.endswith(("export.load", "load_pt2"))} == CHECKED


def test_archives_are_never_unpacked_as_a_whole() -> None:
    assert [called for _, called, _ in calls() if called.endswith((".extractall", ".unpack_archive"))] == []


def test_no_shell_is_started() -> None:
    assert [path for path, _, call in calls() if given(call, "shell") is not None] == []


def test_modules_are_imported_by_name_in_few_places() -> None:
    importing = ((path, call) for path, called, call in calls() if called.endswith(("import_module", "exec_module")))
    found = {path for path, call in importing if not isinstance(call.args[0], ast.Constant)}
    assert found <= IMPORTING, found - IMPORTING


def test_json_from_outside_is_read_in_one_place() -> None:
    """`json.loads` itself is for what was written a moment ago: by this process, another of the group, a runtime."""
    found = {path for path, called, _ in calls() if called in ("json.loads", "json.load", "tomllib.load")}
    within = {"training/run.py", "experiments/experiment.py", "checkpoint.py", "deploy/profiling.py"}
    within |= {"training/distributed.py", "training/meeting.py"}
    assert found <= {"jsons.py", *within}, found
