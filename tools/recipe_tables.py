"""Fill the tables of docs/recipes.md from the recipes and the settings themselves, so that they cannot go stale.

python -m tools.recipe_tables            rewrite the marked region of docs/recipes.md
python -m tools.recipe_tables --check    only say whether it is up to date, as an exit status
"""

import sys
from typing import Any

from otprune.experiments.experiment import Experiment
from otprune.experiments.explained import MEANINGS
from otprune.experiments.fields import flag, flat
from otprune.experiments.settings import recipe, recipes
from otprune.report.markdown import markdown_table
from tools.pages import ROOT, only_check, written_or_checked

PAGE = ROOT / "docs" / "recipes.md"
BEGIN, END = "<!-- settings:begin -->", "<!-- settings:end -->"
SECTIONS = {"": "Experiment", "training": "Training", "pruning": "Pruning", "finetuning": "Fine-tuning"}


def main() -> None:
    """Rewrite the page, or check it."""
    fresh = filled(PAGE.read_text(encoding="utf-8"))
    written_or_checked(PAGE, fresh, only_check(__doc__), "make readme")


def filled(page: str) -> str:
    """The text of the page with its region made anew."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"docs/recipes.md has lost its marks {BEGIN} and {END}: put them back around the tables")
    parts = ["## What each sets", side_by_side(), "## Every setting", *map(settings, SECTIONS)]
    return "\n".join([before + BEGIN, "\n\n".join(parts), END + after])


def side_by_side() -> str:
    """A row for each setting that some recipe sets, a column for each recipe."""
    said = {name: recipe(name) for name in recipes()}
    names = [name for name in MEANINGS if any(name in settings for settings in said.values())]
    rows = [(f"`{name}`", *(_cell(found[name]) if name in found else "" for found in said.values())) for name in names]
    return markdown_table(("setting", *(f"`{name}`" for name in said)), rows)


def settings(section: str) -> str:
    """What the settings of a section mean, their flags and defaults."""
    defaults = flat(Experiment("", "").to_dict())
    names = [name for name in MEANINGS if name.rpartition(".")[0] == section]
    rows = [(f"`{name}`", f"`{flag(name)}`", _cell(defaults[name]), MEANINGS[name]) for name in names]
    return f"### {SECTIONS[section]}\n\n" + markdown_table(("setting", "flag", "default", "meaning"), rows, texts=4)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
