"""How far a download is can be seen, also where nobody knows how much there is of it."""

import re
import time
from io import StringIO

from rich.console import Console

from otprune.cli.downloads import downloads


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, StringIO)
    return [
        line.rstrip() for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()))
    ]


def terminal() -> Console:
    return Console(file=StringIO(), force_terminal=True, width=100)


def test_bytes_are_shown_where_they_are_known() -> None:
    console = terminal()
    with downloads(console) as downloading:
        downloading("a.tar.gz", 3_000_000, 12_000_000)
        time.sleep(0.25)
    assert any(re.match(r"a\.tar\.gz .*━.* 3\.0/12\.0 MB", line) for line in lines(console))


def test_the_time_is_shown_where_they_are_not_and_the_bytes_at_the_end() -> None:
    console = terminal()
    with downloads(console) as downloading:
        downloading("a.tgz", 0, 0)
        time.sleep(1.25)
        assert any(re.match(r"a\.tgz .* 0:00:01$", line) for line in lines(console))
        assert not any("bytes" in line or "MB" in line for line in lines(console))
        downloading("a.tgz", 2_000_000, 2_000_000)
        time.sleep(0.25)
    assert any(re.match(r"a\.tgz .* 2\.0/2\.0 MB", line) for line in lines(console))


def test_in_a_file_there_is_one_line_for_each() -> None:
    console = Console(file=StringIO(), width=100)
    with downloads(console) as downloading:
        for done in (1, 2, 3):
            downloading("a [1].tgz", done, 3)
        downloading("b.tgz", 0, 0)
    assert lines(console) == ["fetching a [1].tgz", "fetching b.tgz", ""]
