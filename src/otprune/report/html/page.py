"""The page: one file with its style, its program and its data inside, which asks for nothing from anywhere."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from otprune.files import write_atomically

# In the order that they need each other.
SCRIPTS = (
    *("numbers", "dom", "thresholds", "widths", "chart", "summary"),
    *("layers", "tower", "curves", "runs", "pruned", "page"),
)


def write_page(shown: Mapping[str, Any], path: Path) -> None:
    """Write the page that shows this content, whole or not at all.

    >>> import tempfile
    >>> shown = {"version": "1", "runs": [{"title": "net", "name": "run"}], "networks": [], "paper": []}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(shown, Path(folder, "report.html"))
    ...     Path(folder, "report.html").read_text(encoding="utf-8")[:15]
    '<!DOCTYPE html>'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page(shown).encode(errors="replace"))


def page(shown: Mapping[str, Any]) -> str:
    """The page that shows this content.

    >>> "<h1" in page({"version": "1", "runs": [{"title": "<b>", "name": "x"}], "networks": [], "paper": []})
    True
    """
    style, script = _asset("style.css"), _program()
    first = shown["runs"][0]
    return Template(_asset("page.html")).substitute(
        title=html.escape(f"{first['title']}: {first['name']}"),
        policy=f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'",
        style=style,
        script=script,
        data=_inside_html(shown),
    )


def _program() -> str:
    """All scripts as one, in a scope of its own."""
    return "(() => {\n'use strict';\n" + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();\n"


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """What the browser has to find in the file to obey it: nothing that slips in with a name is style or program."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inside_html(data: Mapping[str, Any]) -> str:
    """JSON without what could end the element that it is in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&"})
