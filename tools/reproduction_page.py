"""Draw the figures and write docs/reproduction.md from the records under results/.

python tools/reproduction_page.py            draw and write
python tools/reproduction_page.py --check    only say whether the page is up to date, as an exit status
"""

import argparse
import sys
from pathlib import Path

from otprune.experiments.reproduce.records import Records
from otprune.report.figures import FIGURES, draw
from otprune.report.page import page

ROOT = Path(__file__).resolve().parent.parent
PAGE, FIGURES_FOLDER, REMARKS = ROOT / "docs" / "reproduction.md", ROOT / "docs" / "figures", ROOT / "docs" / "remarks"


def main() -> None:
    """Write the page and its figures, or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is out of date")
    options = parser.parse_args()
    records = Records(ROOT / "results")
    fresh = page(records, REMARKS)
    if options.check:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != fresh:
            sys.exit("docs/reproduction.md does not match the records under results/: run `make reproduction`")
        return
    for name in FIGURES:
        draw(name, records, FIGURES_FOLDER)
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
