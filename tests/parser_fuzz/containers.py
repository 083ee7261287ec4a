"""Files that hold others: damaged inside, with lengths and checksums put right, so that the damage is reached."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Bytes = Callable[[Random, bytes, Sequence[bytes]], bytes]
Value = Callable[[Random, Any], Any]
Written = Callable[[Any], str]

SIZES = [0, 1, 2, 1023, 1025, 2**14, 2**31 - 1, 2**31, 2**32 - 1]
DIGEST = "otprune.digest"


def damaged_safetensors(rng: Random, sample: bytes, change: Value, written: Written) -> bytes:
    """The header or a JSON text in its metadata says something else; its length is right, and it has no digest."""
    length = int.from_bytes(sample[:8], "little")
    header, data = json.loads(sample[8 : 8 + length]), sample[8 + length :]
    metadata = header.get("__metadata__", {})
    metadata.pop(DIGEST, None)
    texts = [name for name, text in metadata.items() if text[:1] in "[{"]
    if texts and rng.random() < 0.7:
        name = rng.choice(texts)
        metadata[name] = written(change(rng, json.loads(metadata[name])))
    else:
        header = rng.choice([_other_type, _other_shape, change])(rng, header)
    if rng.random() < 0.1:
        data = data[: rng.randrange(len(data) + 1)]
    text = written(header).encode(errors="surrogatepass")
    return len(text).to_bytes(8, "little") + text + data


def _tensors(header: Any) -> list[Any]:
    return [entry for name, entry in header.items() if name != "__metadata__"]


def _other_type(rng: Random, header: Any) -> Any:
    """A type of the same size, so that all lengths stay right."""
    same = [["F32", "I32", "U32"], ["F64", "I64", "U64", "C64"], ["F16", "BF16", "I16", "U16"], ["BOOL", "U8", "I8"]]
    for entry in rng.sample(_tensors(header), min(2, len(_tensors(header)))):
        entry["dtype"] = rng.choice(next((group for group in same if entry["dtype"] in group), ["F4", "F8_E8M0"]))
    return header


def _other_shape(rng: Random, header: Any) -> Any:
    entry = rng.choice(_tensors(header))
    entry["shape"] = rng.choice([entry["shape"][::-1], [*entry["shape"], 1], [0, 2**62], [2**40, 2**40, 0], [-1]])
    return header


def damaged_png(rng: Random, sample: bytes, change: Bytes) -> bytes:
    """A chunk is damaged, doubled or dropped, or claims other sizes; pixels are packed again."""
    chunks = _chunks(sample)
    place = rng.randrange(len(chunks))
    name, content = chunks[place]
    if name == b"IHDR" and rng.random() < 0.7:
        width, height = (rng.choice([*SIZES, given]) for given in struct.unpack(">II", content[:8]))
        content = struct.pack(">II", width, height) + change(rng, content[8:], [content])
    elif name == b"IDAT":
        content = zlib.compress(change(rng, zlib.decompress(content), [content]))
    else:
        content = change(rng, content, [content])
    chunks[place : place + rng.randint(0, 1)] = [(name, content)] * rng.randint(0, 2)
    if rng.random() < 0.2:
        bomb = b"zTXt", b"a\0\0" + zlib.compress(bytes(2**22))
        chunks.insert(rng.randrange(len(chunks) + 1), bomb)
    return sample[:8] + b"".join(map(_chunk, chunks))


def _chunks(sample: bytes) -> list[tuple[bytes, bytes]]:
    found, place = [], 8
    while place < len(sample):
        length = int.from_bytes(sample[place : place + 4], "big")
        found.append((sample[place + 4 : place + 8], sample[place + 8 : place + 8 + length]))
        place += 12 + length
    return found


def _chunk(chunk: tuple[bytes, bytes]) -> bytes:
    name, content = chunk
    return len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")


def damaged_tar(rng: Random, sample: bytes, change: Bytes) -> bytes:
    """A header says something else, with a right checksum; or members that no honest archive has are put before it."""
    plain = gzip.decompress(sample)
    if rng.random() < 0.4:
        plain = _strange_members(rng) + plain
    else:
        heads = [place for place in range(0, len(plain), 512) if plain[place + 257 : place + 262] == b"ustar"]
        place = rng.choice(heads)
        plain = plain[:place] + _with_checksum(_field(rng, plain[place : place + 512])) + plain[place + 512 :]
    if rng.random() < 0.2:
        plain = change(rng, plain, [plain])
    return gzip.compress(plain, 1)


def _field(rng: Random, head: bytes) -> bytes:
    start, length = rng.choice([(0, 100), (100, 8), (124, 12), (124, 12), (156, 1), (156, 1), (157, 100), (345, 155)])
    odd = [
        *(b"../up", b"/absolute", b"77777777777", b"-1", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"", b"x" * length),
        *(
            b"1",
            b"2",
            b"3",
            b"6",
            b"L",
            b"K",
            b"x",
            b"g",
            b"S",
            b"V",
            b"\xff\xfe",
            b"99999999999",
            b"\x80" + b"\0" * 6 + b"\1",
        ),
    ]
    return head[:start] + rng.choice(odd)[:length].ljust(length, b"\0") + head[start + length :]


def _with_checksum(head: bytes) -> bytes:
    blank = head[:148] + b" " * 8 + head[156:]
    return head[:148] + b"%06o\0 " % sum(blank) + head[156:]


def _strange_members(rng: Random) -> bytes:
    """Links, devices, names that lead out, and headers about the next member: long, empty, or in a long chain."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for _ in range(rng.randint(1, 3)):
            member = tarfile.TarInfo(
                rng.choice(["../up", "/absolute", "a/../../up", "ok", "..", ".", "a\\b", "λ" * 200])
            )
            member.type = rng.choice(
                [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
            )
            member.linkname = rng.choice(["", "/etc/passwd", "../.."])
            member.pax_headers = rng.choice(
                [{}, {"size": "1000000000000"}, {"size": "-5"}, {"path": "../up"}, {"a": "b"}]
            )
            tar.addfile(member)
    plain = buffer.getvalue().rstrip(b"\0")
    plain += bytes(-len(plain) % 512)
    head = tarfile.TarInfo("pax").tobuf()[:512]
    chained = _with_checksum(head[:156] + rng.choice([b"x", b"g", b"L"]) + head[157:])
    return plain + chained * rng.choice([0, 0, 0, 1, 3000])


def damaged_zip(rng: Random, sample: bytes, change: Bytes, change_json: Bytes) -> bytes:
    """A member is damaged, dropped, renamed, or packed; the checksums are those of what is there."""
    with zipfile.ZipFile(io.BytesIO(sample)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = rng.choice(list(members))
    kind = rng.randrange(5)
    if kind == 0:
        members[rng.choice(["../up", "/absolute", name + "x"])] = members.pop(name)
    elif kind == 1:
        del members[name]
    elif name.endswith(".json"):
        members[name] = change_json(rng, members[name], [])
    else:
        members[name] = change(rng, members[name], list(members.values()))
    return _zipped(members, zipfile.ZIP_DEFLATED if rng.random() < 0.2 else zipfile.ZIP_STORED)


def _zipped(members: dict[str, bytes], how: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()
