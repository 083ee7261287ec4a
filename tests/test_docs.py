"""The documentation: its code runs, its commands exist, its names resolve, its tables are fresh, and it builds."""

import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
from typer.main import get_group

import otprune.public
import otprune.training
from otprune.channels.graph import Affine, Carry, ChannelGraph, Mix, Pointwise
from otprune.channels.rules import RULES
from otprune.cli.app import MODULES, app
from otprune.experiments.choosing import TARGETS
from otprune.experiments.settings import recipes, resolved
from tools import recipe_tables

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# Made by other programs, whose tests see to them.
GENERATED = {"reproduction.md", "coverage.md"}
WRITTEN = sorted(path for path in DOCS.glob("*.md") if path.name not in GENERATED)
PAGES = {path.name: path.read_text(encoding="utf-8") for path in WRITTEN}
# What the Python of a page needs beyond what the tests have anyway.
NEEDS = {"deploying.md": ("onnx", "onnxscript", "onnxruntime")}
SHOWN_ELSEWHERE = "--8<--"  # a file that is put in when the site is built
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
UsageError = typer.BadParameter.__mro__[1]  # of click, or of the one inside typer
PLACEHOLDER = re.compile(r"[A-Z]+…?$")  # MODEL, RUN, NAME


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\b[^\n]*\n(.*?)^```", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    return [block for block in found if SHOWN_ELSEWHERE not in block]


def run_python(page: str) -> dict[str, Any]:
    """Run the Python of a page from top to bottom, compare what it shows, and return the names it leaves."""
    names: dict[str, Any] = {"__name__": page}
    for number, block in enumerate(blocks(page, "python")):
        where = f"{page}, block {number}"
        if not block.startswith(">>>"):
            exec(compile(block, where, "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(block, names, where, page, 0)
        runner = doctest.DebugRunner(optionflags=FLAGS)
        runner.run(example, clear_globs=False)
        names.update(example.globs)
    return names


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in NEEDS.get(page, ()):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    rules = dict(RULES)
    try:
        assert run_python(page)
    finally:
        RULES.clear()
        RULES.update(rules)


def test_the_figure_has_the_labels_that_the_trace_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_python("labels.md")
    graph: ChannelGraph = names["graph"]
    svg = ElementTree.parse(DOCS / "images" / "labels.svg")
    texts = [t for t in svg.iter("{http://www.w3.org/2000/svg}text") if t.get("class") in ("kept", "gone")]
    written = [node.writes.ravel().tolist() for node in graph.of(Mix, Affine, Pointwise, Carry)]
    assert [int(text.text or "") for text in texts] == [label for labels in written for label in labels]
    stays = {cut.tensor: set(cut.keep[0]) for cut in names["plan"].cuts}
    gone = [
        label
        for node in graph.of(Mix, Affine)
        for place, label in enumerate(node.writes.ravel().tolist())
        if place not in stays.get(node.weight, {place})
    ]
    assert set(gone) <= {int(text.text or "") for text in texts if text.get("class") == "gone"}
    assert len(gone) == 8


def commands(page: str) -> Iterator[str]:
    """What stands in shell blocks, line by line, and what is said of otprune within sentences."""
    for block in blocks(page, "sh"):
        yield from filter(None, block.replace("\\\n", " ").splitlines())
    prose = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`((?:otprune|make) [a-z][^`]*)`", prose)


@pytest.mark.parametrize(("page", "command"), [(page, command) for page in PAGES for command in commands(page)])
def test_a_command_exists(page: str, command: str) -> None:
    program, *arguments = shlex.split(command, comments=True)
    CHECKS[program](arguments)


def verbs() -> dict[str, Any]:
    for module in MODULES:
        importlib.import_module(f"otprune.cli.{module}")
    return dict(get_group(app).commands)


def check_otprune(arguments: list[str]) -> None:
    """Parsed as the command line would parse it; a placeholder, or nothing at all, stands for what is left out."""
    verb, *rest = arguments
    command = verbs()[verb]
    context = command.make_context(verb, list(rest), resilient_parsing=not rest or bool(PLACEHOLDER.match(rest[-1])))
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known
    config = context.params.get("config")
    assert config is None or config in recipes() or config.endswith(".toml")


def check_make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in (word for word in arguments if "=" not in word):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"no target {target}"


def check_pip(arguments: list[str]) -> None:
    assert arguments[0] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for wanted in arguments[1:]:
        found = re.fullmatch(r"(?:\.|otprune)(?:\[([\w,]+)\])?", wanted)
        assert found is not None, wanted
        assert set((found[1] or "").split(",")) - {""} <= extras.keys()


def check_python(arguments: list[str]) -> None:
    assert (ROOT / arguments[0]).is_file()


def check_torchrun(arguments: list[str]) -> None:
    """Its own options, then a command of ours."""
    module = arguments.index("-m")
    assert arguments[module + 1] == "otprune"
    assert {word for word in arguments[:module] if word.startswith("--")} <= {"--nproc-per-node", "--max-restarts"}
    check_otprune(arguments[module + 2 :])


CHECKS = {
    "otprune": check_otprune,
    "make": check_make,
    "pip": check_pip,
    "python": check_python,
    "torchrun": check_torchrun,
}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("otprune prun --out x", KeyError),
        ("otprune prune --out x --flop 0.4", UsageError),
        ("otprune prune --flops 0.4", UsageError),
        ("otprune run --out x --epochs many", UsageError),
        ("otprune run --out x --config bset", AssertionError),
        ("make tset", AssertionError),
        ("pip install '.[tset]'", AssertionError),
        ("python examples/tset.py", AssertionError),
        ("torchrun --nproc-per-node 2 -m otprune tran --out x", KeyError),
    ],
)
def test_a_command_that_does_not_exist_is_found(wrong: str, error: type[Exception]) -> None:
    program, *arguments = shlex.split(wrong)
    with pytest.raises(error):
        CHECKS[program](arguments)


def test_every_verb_has_an_example() -> None:
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    shown = {line.split()[1] for line in lines if line.startswith("otprune ")}
    assert "iterate" in verbs() and verbs().keys() - shown == set()


@pytest.mark.parametrize("page", [DOCS / "start.md", DOCS / "paper.md", ROOT / "README.md"], ids=lambda page: page.name)
def test_a_table_that_has_one_way_to_choose_thresholds_has_all(page: Path) -> None:
    """By a loss of accuracy, by FLOPs, by parameters and by latency."""
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    told = {name for name in TARGETS if any(re.search(rf"`--{name.replace('_', '-')}\b", row) for row in rows)}
    assert told == set(TARGETS)


def named(page: str) -> list[str]:
    return re.findall(r"`(otprune(?:\.\w+)+)`", PAGES[page]) + re.findall(r"^::: ([\w.]+)$", PAGES[page], re.MULTILINE)


def thing(dotted: str) -> object:
    """The module, or what a module has, that a dotted name means."""
    module, _, name = dotted.rpartition(".")
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("page", [page for page in PAGES if named(page)])
def test_names_are_those_of_the_code(page: str) -> None:
    for dotted in named(page):
        assert thing(dotted) is not None


def test_files_that_are_named_are_there() -> None:
    for page in PAGES:
        for name in re.findall(r"`((?:otprune|tests|tools|examples)/[\w/.]+)`", PAGES[page]):
            assert (ROOT / name).exists() or (ROOT / "src" / name).exists(), f"{page}: {name}"


@pytest.mark.parametrize(("page", "package"), [("api.md", otprune.public), ("api-training.md", otprune.training)])
def test_the_reference_has_every_public_name(page: str, package: Any) -> None:
    documented = [thing(dotted) for dotted in named(page)]
    missing = [name for name in package.__all__ if all(getattr(package, name) is not found for found in documented)]
    assert missing == []


def test_the_tables_of_recipes_are_fresh() -> None:
    assert recipe_tables.filled(PAGES["recipes.md"]) == PAGES["recipes.md"]


def test_every_recipe_is_described_and_shown() -> None:
    described = re.findall(r"^\| `(\w+)` \|", PAGES["recipes.md"], flags=re.MULTILINE)
    assert sorted(set(described) & set(recipes())) == recipes()
    assert sorted(re.findall(r"recipes/(\w+)\.toml", PAGES["recipes.md"])) == recipes()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")])
def test_settings_shown_as_a_file_are_taken(page: str, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        (tmp_path / "my.toml").write_text(block, encoding="utf-8")
        assert resolved({}, str(tmp_path / "my.toml")).model


@pytest.mark.parametrize("tool", ["docs_links", "docs_doctests"])
def test_the_examples_of_the_tools_run(tool: str) -> None:
    if tool == "docs_doctests" and find_spec("griffe") is None:
        pytest.skip("griffe is not installed")
    ran = doctest.testmod(importlib.import_module(f"tools.{tool}"), optionflags=FLAGS)
    assert ran.attempted and not ran.failed


class Resources(HTMLParser):
    """What a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        place = found.get("href") if tag == "link" else found.get("src")
        if place is not None:
            self.loaded.append(place)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed")
@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="mkdocstrings is not installed")
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # about what becomes of mkdocs
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=quiet)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    loaded = {page: resources(page) for page in pages}
    assert sum(map(bool, loaded.values())) > len(PAGES)  # a page that holds all it needs loads nothing
    assert not [(page, place) for page, places in loaded.items() for place in places if "//" in place]


def resources(page: Path) -> list[str]:
    parser = Resources()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.loaded
