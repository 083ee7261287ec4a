"""Pages that are made from records or settings: written, or compared with what they should be."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

Record = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent


def only_check(description: str | None) -> bool:
    """Whether the command line asks for no more than whether the page is up to date."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is out of date")
    return bool(parser.parse_args().check)


def written_or_checked(path: Path, fresh: str, check: bool, command: str) -> None:
    """Write a page, or end with a message and a status if it is another than it should be."""
    if not check:
        path.write_text(fresh, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != fresh:
        sys.exit(f"{path.relative_to(ROOT)} is not what it should be: run `{command}`")


def read(path: Path) -> Record:
    """What a record holds."""
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    return record
