"""Downloads and archives: what arrives is what was meant, and an archive writes nothing but what it was asked for."""

import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from otprune.errors import DataError
from otprune.training.data.archive import extract
from otprune.training.data.download import download
from tests.archives import Contents, remote, served, sha256, silent, tar_of, write


class TestDownload:
    content = bytes(range(256)) * 9000  # more than two chunks

    def test_progress_ends_at_the_size(self, tmp_path: Path) -> None:
        steps: list[tuple[str, int, int]] = []
        with served({"file.bin": self.content}) as host:
            path = download(remote(f"{host}/file.bin", self.content), tmp_path, lambda *step: steps.append(step))
        assert path.read_bytes() == self.content
        done = [step[1] for step in steps]
        assert len(steps) > 1 and done == sorted(done)
        assert steps[-1] == ("file.bin", len(self.content), len(self.content))

    def test_a_short_one(self, tmp_path: Path) -> None:
        with served({"f": self.content[:-5]}) as host, pytest.raises(DataError, match=r"after 2303995 of 2304000"):
            download(remote(f"{host}/f", self.content), tmp_path, silent)

    def test_a_connection_that_breaks_off(self, tmp_path: Path) -> None:
        with (
            served({"f": self.content[:-5]}, announced=len(self.content)) as host,
            pytest.raises(DataError, match=r"after \d+ of 2304000 bytes"),
        ):
            download(remote(f"{host}/f", self.content), tmp_path, silent)

    def test_never_writes_more_than_the_known_size(self, tmp_path: Path) -> None:
        with (
            served({"f": self.content * 3}) as host,
            pytest.raises(DataError, match="more than the 2304000 bytes"),
        ):
            download(remote(f"{host}/f", self.content), tmp_path, silent)
        assert (tmp_path / "f").stat().st_size <= len(self.content)

    def test_a_wrong_digest_names_both(self, tmp_path: Path) -> None:
        other = bytes(len(self.content))
        with (
            served({"f": other}) as host,
            pytest.raises(DataError, match=rf"SHA-256 is {sha256(other)}, expected {sha256(self.content)}"),
        ):
            download(remote(f"{host}/f", self.content), tmp_path, silent)

    def test_nobody_there(self, tmp_path: Path) -> None:
        with served({}) as host, pytest.raises(DataError, match=r"cannot be reached.*404"):
            download(remote(f"{host}/f", self.content), tmp_path, silent)
        with pytest.raises(DataError, match=r"cannot be reached.*refused"):
            download(remote(f"{host}/f", self.content), tmp_path, silent)


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


class TestArchive:
    @pytest.mark.parametrize(
        ("contents", "others", "reason"),
        [
            ({"/data/a": b"abc"}, [], "leads out of its folder"),
            ({"data/../../a": b"abc"}, [], "leads out of its folder"),
            ({"data\\..\\a": b"abc"}, [], "leads out of its folder"),
            ({"data/a": b"abc"}, [member("data/b", tarfile.SYMTYPE, "/etc/passwd")], "neither a file nor a folder"),
            ({}, [member("data/a", tarfile.SYMTYPE, "/etc/passwd")], "neither a file nor a folder"),
            ({"data/a": b"abc"}, [member("data/b", tarfile.LNKTYPE, "data/a")], "neither a file nor a folder"),
            ({"data/a": b"abc"}, [member("data/b", tarfile.CHRTYPE)], "neither a file nor a folder"),
            ({"data/a": b"abcd"}, [], "data/a has 4 bytes, more than the 3"),
            ({"data/a": b"abc", "data/rest": bytes((16 << 20) + 1)}, [], "what else is in it has"),
            ({"data/b": b"abc"}, [], "lacks data/a"),
            ({}, [member("data/a", tarfile.DIRTYPE)], "data/a is not a file"),
        ],
    )
    def test_what_is_refused(
        self, contents: Contents, others: list[tarfile.TarInfo], reason: str, tmp_path: Path
    ) -> None:
        (tmp_path / "x.tar.gz").write_bytes(tar_of(contents, *others))
        out = write(tmp_path / "deep" / "out", {})
        with pytest.raises(DataError, match=re.escape(reason)):
            extract(tmp_path / "x.tar.gz", {"data/a": 3}, out)
        assert {path.name for path in tmp_path.rglob("*")} <= {"x.tar.gz", "deep", "out", "a"}
        assert all(path.parent == out for path in tmp_path.rglob("a"))

    def test_damaged_ones(self, tmp_path: Path) -> None:
        whole = tar_of({"data/a": np.random.default_rng(0).bytes(100_000)})
        garbled = whole[:20] + bytes(100) + whole[120:]
        for damaged in (whole[:50_000], garbled, b"<html>not found</html>", b""):
            (tmp_path / "x.tar.gz").write_bytes(damaged)
            with pytest.raises(DataError, match=r"x.tar.gz is damaged"):
                extract(tmp_path / "x.tar.gz", {"data/a": 100_000}, tmp_path)
