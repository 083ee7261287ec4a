"""Files that nobody vouches for: sizes are bounded before anything is allocated, and nothing in them is executed."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

import otprune as ot
from otprune.deploy.latencies import LatencyTable
from otprune.errors import CheckpointError, DataError, OtpruneError, PlanError
from otprune.experiments.folder import read_json
from otprune.experiments.settings import resolved
from otprune.jsons import parsed, read_object
from otprune.training.data.archive import extract
from otprune.training.data.folder import ImageFolderDataset
from tests.archives import tar_of
from tests.toy_nets import RememberedSizes, Sequential, make

READERS: dict[str, Callable[[Path], object]] = {
    "plan": ot.PruningPlan.load,
    "run": read_json,
    "latencies": lambda path: LatencyTable(lambda shape, points: [], path),
    "settings": lambda path: resolved({"model": "vgg14", "data": "cifar10"}, str(path)),
}
any_reader = pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))


class TestTexts:
    @any_reader
    @pytest.mark.parametrize(
        "content",
        [b"[" * 1_000_000, b"a=" + b"[" * 1_000_000, b"\xff\xfe{}", b"{\x00}", b'{"a": ' + b"9" * 5000 + b"}", b"["],
        ids=["deep", "deep TOML", "UTF-16", "NUL", "digits", "half"],
    )
    def test_what_no_program_writes_is_refused_by_name(
        self, read: Callable[[Path], object], content: bytes, tmp_path: Path
    ) -> None:
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(OtpruneError, match=str(path)):
            read(path)

    @any_reader
    def test_a_file_of_a_terabyte_is_refused_unread(self, read: Callable[[Path], object], tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.touch()
        os.truncate(path, 1 << 40)  # nothing but a claim: it takes no room on the disk
        with pytest.raises(OtpruneError, match="1,099,511,627,776 bytes, more than the"):
            read(path)

    @any_reader
    @pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
    def test_a_folder_or_a_pipe_is_refused_unopened(
        self, read: Callable[[Path], object], make: Callable[[Path], None], tmp_path: Path
    ) -> None:
        make(tmp_path / "file")
        with pytest.raises(OtpruneError, match=str(tmp_path / "file")):
            read(tmp_path / "file")

    def test_a_byte_order_mark_is_refused_and_a_missing_file_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"\xef\xbb\xbf{}")
        for name, words in {"file": "BOM", "none": "there is no such file"}.items():
            with pytest.raises(OtpruneError, match=words):
                read_object(tmp_path / name, OtpruneError)

    def test_levels_up_to_the_limit_are_read(self) -> None:
        assert parsed("[" * 65 + "]" * 65)
        with pytest.raises(ValueError, match="nested more than 64 levels deep"):
            parsed("[" * 66 + "]" * 66)

    def test_whole_numbers_up_to_those_that_tensors_count_with_are_read(self) -> None:
        assert parsed(str(2**63 - 1)) == 2**63 - 1
        with pytest.raises(ValueError, match="larger than any number"):
            parsed(str(2**63))


class TestPlans:
    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("inputs", {"tensor": [10**6, 10**6], "dtype": "float32"}, "more than the 268,435,456 values"),
            ("inputs", {"tensor": [2], "dtype": "load"}, "has a shape and a type"),
            ("removed", ["nowhere"], "a layer nowhere, which the model has not"),
            ("removed", [""], "removes the whole model"),
            ("masked", {"bn1": [10**12]}, "counts channels of bn1 wrongly"),
            ("sources", {"nowhere.weight": ""}, "a tensor nowhere.weight, which the model has not"),
            ("folds", [{"tensor": "bn1.bias", "amounts": [1.0]}], "cannot add to bn1.bias"),
            ("selections", {"bn1": [-2]}, "selects channels for bn1"),
            ("memories", [{"module": "", "attribute": "_modules", "item": None, "count": 1}], "changes _modules to 1"),
            ("memories", [{"module": "", "attribute": "training", "item": None, "count": 1}], "changes training to 1"),
            ("layers", [{"name": "bn1", "channels": 10**12}], r"it\.layers\[0\] has no kept"),
            ("cuts", [{"tensor": "bn1.weight", "shape": [6], "keep": {"0": [10**12]}, "groups": None}], "it has not"),
            ("cuts", [{"tensor": "bn1.weight", "shape": [6], "keep": {"7": [0]}, "groups": None}], "that it has not"),
            ("cuts", [{"tensor": "conv1.weight", "shape": [6, 3, 3, 3], "keep": {"1": [0]}, "groups": 4}], "4 groups"),
            ("model", float("nan"), "not a text"),
        ],
    )
    def test_what_cannot_be_done_to_the_model_is_refused(self, name: str, value: Any, words: str) -> None:
        model = make(Sequential)
        fields = json.loads(ot.plan(model, model.example()).to_json()) | {name: value}
        with pytest.raises(PlanError, match=words):
            ot.prune(model, ot.PruningPlan.from_json(json.dumps(fields)))

    def test_a_remembered_size_can_only_become_smaller(self) -> None:
        model = make(RememberedSizes)
        model.bn1.weight.data[0] = 0
        fields = json.loads(ot.plan(model, model.example()).to_json())
        assert fields["memories"]
        fields["memories"][0]["count"] = 10**12
        with pytest.raises(PlanError, match=r"the plan is damaged: it changes .* to 1000000000000"):
            ot.prune(model, ot.PruningPlan.from_json(json.dumps(fields)))


class TestCheckpoints:
    @pytest.mark.parametrize("shape", [[2**40, 2**40], [10**12], [-1]])
    def test_a_header_that_claims_more_than_the_file_has(self, shape: list[int], tmp_path: Path) -> None:
        header = json.dumps({"weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
        path = tmp_path / "model.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        with pytest.raises(CheckpointError, match=str(path)):
            ot.load(nn.Linear(1, 1), path)

    def test_a_packed_zip(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}.")
            archive.writestr("archive/data/0", bytes(1 << 24))
        with pytest.raises(CheckpointError, match=r"bomb\.pt: .* is damaged") as caught:
            ot.load(nn.Linear(1, 1), tmp_path / "bomb.pt")
        assert "its members claim 16,777" in str(caught.value.__cause__)

    def test_whole_numbers_for_weights(self, tmp_path: Path) -> None:
        torch.save({"weight": torch.ones(1, 1, dtype=torch.int32), "bias": torch.ones(1)}, tmp_path / "model.pt")
        with pytest.raises(CheckpointError, match="has weight in whole numbers where the model has real ones"):
            ot.load(nn.Linear(1, 1), tmp_path / "model.pt")

    @pytest.mark.parametrize("weight", [torch.ones(1, 1).to_sparse(), torch.ones(1, 1, device="meta")])
    def test_tensors_without_a_number_for_each_place(self, weight: torch.Tensor, tmp_path: Path) -> None:
        torch.save({"weight": weight, "bias": torch.ones(1)}, tmp_path / "model.pt")
        with pytest.raises(CheckpointError, match=r"model\.pt: "):
            ot.load(nn.Linear(1, 1), tmp_path / "model.pt")


class TestArchives:
    @pytest.mark.parametrize("type_of_member", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
    def test_a_member_that_claims_a_terabyte(self, type_of_member: bytes, tmp_path: Path) -> None:
        member = tarfile.TarInfo("data/a.bin")
        member.size, member.type = 1 << 40, type_of_member
        (tmp_path / "a.tar.gz").write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT)))
        with pytest.raises(DataError, match=r"a\.tar\.gz is refused: .* has 1099511\d+ bytes, more than the"):
            extract(tmp_path / "a.tar.gz", {"data/a.bin": 64}, tmp_path)

    def test_members_without_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("otprune.training.data.archive.REST_LIMIT", 0)
        head = tarfile.TarInfo("data/readme").tobuf()
        (tmp_path / "a.tar.gz").write_bytes(gzip.compress(head * 2500, 1))
        with pytest.raises(DataError, match=r"a\.tar\.gz is refused: it has \d+ bytes, more than the"):
            extract(tmp_path / "a.tar.gz", {}, tmp_path)

    def test_headers_about_headers(self, tmp_path: Path) -> None:
        head = tarfile.TarInfo("pax")
        head.type = tarfile.XHDTYPE
        (tmp_path / "a.tar.gz").write_bytes(gzip.compress(head.tobuf() * 5000))
        with pytest.raises(DataError, match=r"a\.tar\.gz is damaged"):
            extract(tmp_path / "a.tar.gz", {}, tmp_path)

    @pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
    def test_an_archive_that_is_packed_twice(self, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
        """Only what is packed once is unpacked within bounds."""
        inner = pack(gzip.decompress(tar_of({"a.bin": b"a"})))
        (tmp_path / "a.tar.gz").write_bytes(gzip.compress(inner))
        with pytest.raises(DataError, match=r"a\.tar\.gz is damaged"):
            extract(tmp_path / "a.tar.gz", {"a.bin": 64}, tmp_path)
        assert not (tmp_path / "a.bin").exists()

    @pytest.mark.parametrize("name", ["a.bin", "another"])
    def test_an_archive_with_a_member_of_less_than_nothing(self, name: str, tmp_path: Path) -> None:
        """A size of −512 leads back to the header that claims it."""
        member = tarfile.TarInfo(name)
        member.size = -512
        (tmp_path / "a.tar.gz").write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
        with pytest.raises(DataError, match=r"a\.tar\.gz is refused: .* claims -512 bytes"):
            extract(tmp_path / "a.tar.gz", {"a.bin": 64}, tmp_path)

    @pytest.mark.parametrize("name", ["../up", "/absolute", "a/../../up", "a\\..\\up"])
    def test_names_that_lead_out(self, name: str, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in/a.tar.gz").write_bytes(tar_of({name: b"a"}))
        with pytest.raises(DataError, match="leads out of its folder"):
            extract(tmp_path / "in/a.tar.gz", {name: 64}, tmp_path / "in")
        assert [path.name for path in tmp_path.iterdir()] == ["in"]


class TestImages:
    def test_an_image_that_claims_to_be_huge_is_not_decoded(self, tmp_path: Path) -> None:
        buffer = io.BytesIO()
        Image.new("RGB", (2, 2)).save(buffer, "PNG")
        content = bytearray(buffer.getvalue())
        content[16:24] = struct.pack(">II", 2**20, 2**20)
        content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
        for part in ("train", "val"):
            (tmp_path / part / "cat").mkdir(parents=True)
            (tmp_path / part / "cat/1.png").write_bytes(content)
        data = ImageFolderDataset(tmp_path, strict=True, workers=0)
        with pytest.raises(
            DataError, match=r"1\.png cannot be read: Image size \(1099511627776 pixels\) exceeds limit"
        ):
            list(data.test.batches(1))
