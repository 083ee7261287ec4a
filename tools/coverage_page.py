"""Write docs/coverage.md from results/coverage.json. Needs benchmarks/ on the path, as `make coverage` has it.

python -m tools.coverage_page            write
python -m tools.coverage_page --check    only say whether the page is up to date, as an exit status
"""

import json
from pathlib import Path

from model_coverage.page import page

from tools.pages import ROOT, only_check, written_or_checked

PAGE, RESULTS = ROOT / "docs" / "coverage.md", ROOT / "results" / "coverage.json"


def main() -> None:
    """Write the page, or check it."""
    written_or_checked(PAGE, fresh_page(RESULTS), only_check(__doc__), "make coverage")


def fresh_page(results: Path) -> str:
    """The page as it should be."""
    return page(json.loads(results.read_text(encoding="utf-8")) if results.exists() else None)


if __name__ == "__main__":
    main()
