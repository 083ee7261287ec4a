"""Exported files come whole or not at all, and a graph is never found beside the weights of another."""

from pathlib import Path

import pytest

from otprune.deploy.writing import write_checked, write_together


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def pair(folder: Path, what: bytes) -> dict[Path, bytes]:
    return {folder / "net.bin": b"weights " + what, folder / "net.xml": b"graph " + what}


def test_files_take_the_place_of_those_before(tmp_path: Path) -> None:
    for what in (b"old", b"new"):
        write_together(pair(tmp_path, what))
    assert content(tmp_path) == {"net.bin": b"weights new", "net.xml": b"graph new"}


def test_what_was_there_stays_where_the_new_cannot_be_put(tmp_path: Path) -> None:
    (tmp_path / "net.bin").mkdir()
    (tmp_path / "net.xml").write_bytes(b"graph old")
    with pytest.raises(OSError, match=r"net\.xml"):
        write_together(pair(tmp_path, b"new"))
    assert content(tmp_path) == {"net.xml": b"graph old"}


def test_what_was_there_stays_where_a_check_fails(tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        raise ValueError(draft.read_bytes())

    write_together(pair(tmp_path, b"old"))
    with pytest.raises(ValueError, match="new"):
        write_checked(tmp_path / "net.xml", lambda draft: draft.write_bytes(b"new"), fail)
    assert content(tmp_path) == {"net.bin": b"weights old", "net.xml": b"graph old"}


def test_what_was_written_beside_goes_along(tmp_path: Path) -> None:
    def write(draft: Path) -> None:
        draft.write_bytes(b"graph")
        draft.with_suffix(".bin").write_bytes(b"weights")

    assert (
        write_checked(tmp_path / "net.xml", write, lambda draft: draft.with_suffix(".bin").read_bytes()) == b"weights"
    )
    assert content(tmp_path) == {"net.bin": b"weights", "net.xml": b"graph"}
