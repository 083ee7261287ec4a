"""Write docs/coverage.md from results/coverage.json. Needs benchmarks/ on the path, as `make coverage` has it.

python tools/coverage_page.py            write
python tools/coverage_page.py --check    only say whether the page is up to date, as an exit status
"""

import argparse
import json
import sys
from pathlib import Path

from model_coverage.page import page

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS = ROOT / "docs" / "coverage.md", ROOT / "results" / "coverage.json"


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is out of date")
    options = parser.parse_args()
    fresh = fresh_page(RESULTS)
    if not options.check:
        PAGE.write_text(fresh, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != fresh:
        sys.exit("docs/coverage.md does not match results/coverage.json: run `make coverage`")


def fresh_page(results: Path) -> str:
    """The page as it should be."""
    return page(json.loads(results.read_text(encoding="utf-8")) if results.exists() else None)


if __name__ == "__main__":
    main()
