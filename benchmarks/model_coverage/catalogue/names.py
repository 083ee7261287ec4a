"""The names of models with batch norm, found once by `model_coverage.finding`, since building them all is slow."""

import json
from pathlib import Path

PATH = Path(__file__).with_name("names.json")


def names_of(library: str) -> list[str]:
    """The models of a library that are tried, those with few parameters first."""
    names: list[str] = json.loads(PATH.read_text(encoding="utf-8"))[library]
    return names
