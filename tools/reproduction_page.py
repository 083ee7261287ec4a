"""Draw the figures and write docs/reproduction.md from the records under results/.

python -m tools.reproduction_page            draw and write
python -m tools.reproduction_page --check    only say whether the page is up to date, as an exit status
"""

from otprune.experiments.reproduce.records import Records
from otprune.report.figures import FIGURES, draw
from otprune.report.page import page
from tools.pages import ROOT, only_check, written_or_checked

PAGE, FIGURES_FOLDER, REMARKS = ROOT / "docs" / "reproduction.md", ROOT / "docs" / "figures", ROOT / "docs" / "remarks"


def main() -> None:
    """Write the page and its figures, or check the page."""
    check, records = only_check(__doc__), Records(ROOT / "results")
    for name in () if check else FIGURES:
        draw(name, records, FIGURES_FOLDER)
    written_or_checked(PAGE, page(records, REMARKS), check, "make reproduction")


if __name__ == "__main__":
    main()
