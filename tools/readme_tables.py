"""Fill the results of the README from the records under results/, so that no number in it is typed by hand.

python tools/readme_tables.py            rewrite the marked region of README.md
python tools/readme_tables.py --check    only say whether it is up to date, as an exit status
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from otprune.demo_screen import Row, cells, summary

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def main() -> None:
    """Rewrite the README, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the README is out of date")
    options = parser.parse_args()
    readme = ROOT / "README.md"
    current = readme.read_text(encoding="utf-8")
    fresh = filled(current, ROOT / "results")
    if options.check and fresh != current:
        sys.exit("README.md does not match the records under results/: run `make readme`")
    if not options.check:
        readme.write_text(fresh, encoding="utf-8")


def filled(readme: str, results: Path) -> str:
    """The text of the README with its region made anew from the records."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"README.md has lost its marks {BEGIN} and {END}: put them back around the results")
    return f"{before}{BEGIN}\n{demo_section(_record(results / 'demo.json'))}\n{END}{after}"


def demo_section(record: dict[str, Any]) -> str:
    """The demo's table, with what it was measured on."""
    rows = [Row(**row) for row in record["results"]["rows"]]
    return "\n".join(
        [
            f"`make demo`, seed {record['seed']}, {record['results']['seconds']:.0f} s: {summary(rows[0], rows[-1])}",
            "",
            markdown_table(
                ("digits", "accuracy", "parameters", "FLOPs", "MACs", "CPU latency"),
                [(row.model, *cells(row)) for row in rows],
            ),
            "",
            f"Latency is the median for {record['configuration']['latency_batch']} images at once. "
            f"{measured_with(record['provenance'])}",
        ]
    )


def measured_with(provenance: dict[str, Any]) -> str:
    """Versions and hardware in one sentence."""
    return (
        f"Measured with otprune {provenance['otprune']}, torch {provenance['torch']}, Python {provenance['python']} "
        f"on {provenance['gpu'] or provenance['cpu']}, {provenance['cores']} cores."
    )


def markdown_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _record(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


if __name__ == "__main__":
    main()
