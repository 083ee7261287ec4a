"""A hook of mkdocs: links to files of the repository that are no part of the documentation become plain names.

On a page of the repository such a link leads to the file; on the built site it would lead nowhere.
"""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What mkdocs calls with the text of each page.

    >>> on_page_markdown("see [results/](../results) and [recipes](recipes.md)")
    'see results/ and [recipes](recipes.md)'
    """
    return OUTSIDE.sub(r"\1", markdown)
