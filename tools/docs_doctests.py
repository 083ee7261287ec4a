"""An extension for the API reference: examples in docstrings are shown as code.

Docstrings of otprune have their examples without a heading, as doctest finds them. Markdown would take them for
quotations.
"""

import re
from typing import Any

from griffe import Extension, Object  # type: ignore[import-not-found, unused-ignore]

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", flags=re.MULTILINE)


class Doctests(Extension):  # type: ignore[misc, unused-ignore]
    """Puts fences around the examples of every docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """What griffe calls for everything it has read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring with its examples in fences.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", docstring)
