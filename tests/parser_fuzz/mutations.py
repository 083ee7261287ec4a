"""Ways to damage a file: its bytes, or what it says while it stays well-formed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.parser_fuzz.containers import damaged_png, damaged_safetensors, damaged_tar, damaged_zip

Damage = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""Damages a sample; the others are there to be spliced in."""

MOST_BYTES = 4000  # of what is inserted
# What JSON can say and Python's own writer would not, in place of a text that it would.
RAW = {
    "@deep lists@": "[" * 100_000 + "]" * 100_000,
    "@deep objects@": '{"a":' * 2_000 + "1" + "}" * 2_000,
    "@some lists@": "[" * 100 + "]" * 100,
    "@digits@": "9" * 5000,
    "@long@": "9" * 400,
    "@infinite@": "1e999",
    "@NaN@": "NaN",
    "@-Infinity@": "-Infinity",
    "@repeated@": '{"a": 1, "a": {}}',
    "@surrogate@": '"\\ud800"',
    "@nothing@": "",
}
ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 64, 2**31, 2**62, 2**63, 10**12, -(2**63), 0.5, -0.0, 1e308, 5e-324),
    *("", "a", "0", "\0", "..", "/etc/passwd", "weight", "λ" * 50, "x" * 3000, "float32", "float64", "complex64"),
    *([], {}, [0], [[]], [1, 2, 3], [-1], [None], ["a"], {"a": 1}, {"0": [0]}, {"tensor": [10**12]}, [2**62, 4]),
    *RAW,
]


def arbitrary(rng: Random) -> bytes:
    """Any bytes at all, or the beginning of something."""
    start = rng.choice(
        [b"", b"{", b"[", b'{"format": 1', b"PK\x03\x04", b"\x80\x02", b"\x89PNG\r\n\x1a\n", b"\x1f\x8b"]
    )
    return start + rng.randbytes(rng.randrange(200))


def in_bytes(rng: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    """A few bytes flipped, cut, inserted, repeated, or taken from another file."""
    for _ in range(rng.randint(1, 4)):
        sample = rng.choice(_IN_BYTES)(rng, sample, others)
    return sample


def in_json(rng: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    """Values replaced, dropped, moved; well-formed, more or less."""
    value = json.loads(sample)
    for _ in range(rng.randint(1, 3)):
        value = damaged_value(rng, value)
    return written(value).encode(errors="surrogatepass")


def in_toml(rng: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    """A line's value replaced, a line repeated, dropped, or put under another table."""
    lines = sample.decode().splitlines()
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(lines))
        name, equals, _ = lines[place].partition("=")
        kind = rng.randrange(4)
        if kind == 0 and equals:
            lines[place] = f"{name}= {rng.choice(_TOML)}"
        elif kind == 1:
            lines.insert(rng.randrange(len(lines)), lines[place])
        elif kind == 2 and len(lines) > 1:
            del lines[place]
        else:
            lines.insert(place, rng.choice(_TOML_LINES))
    return "\n".join(lines).encode()


def written(value: Any) -> str:
    """As JSON, with what Python would not write."""
    text = json.dumps(value)
    for stand_in, raw in RAW.items():
        text = text.replace(json.dumps(stand_in), raw)
    return text


def damaged_value(rng: Random, value: Any) -> Any:
    """Another value of JSON: the same but for one place."""
    value = copy.deepcopy(value)
    holders = [(holder, key) for holder in _holders(value) for key in _keys(holder)]
    if not holders:
        return rng.choice(ODD)
    holder, key = rng.choice(holders)
    _change(rng, holder, key, holders)
    return value


def _change(rng: Random, holder: Any, key: Any, holders: list[tuple[Any, Any]]) -> None:
    kind = rng.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(["", "a", "0", "-1", "format", str(key) + "x"])] = holder[key]
    elif kind == 1:
        holder.insert(key, holder[key])
    elif kind == 2:
        other, place = rng.choice(holders)
        holder[key] = copy.deepcopy(other[place]) if place in _keys(other) else None
    elif kind == 3 and isinstance(holder[key], int | float):
        holder[key] = rng.choice([holder[key] + 1, holder[key] - 1, -holder[key], holder[key] * 1000])
    else:
        holder[key] = copy.deepcopy(rng.choice(ODD))


def _holders(value: Any) -> list[Any]:
    found, level = [], [value]
    while level:
        level = [one for one in level if isinstance(one, list | dict)]
        found += level
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
    return found


def _keys(holder: Any) -> Any:
    return list(holder) if isinstance(holder, dict) else range(len(holder))


def _flip(rng: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    if not sample:
        return sample
    place = rng.randrange(len(sample))
    return sample[:place] + bytes([sample[place] ^ (1 << rng.randrange(8))]) + sample[place + 1 :]


def _cut(rng: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    start, end = sorted(rng.randrange(len(sample) + 1) for _ in range(2))
    return sample[:start] + (b"" if rng.random() < 0.5 else sample[end:])


def _insert(rng: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    place = rng.randrange(len(sample) + 1)
    return sample[:place] + rng.randbytes(rng.randrange(1, 40)) + sample[place:]


def _repeat(rng: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    start, end = sorted(rng.randrange(len(sample) + 1) for _ in range(2))
    return sample[:end] + sample[start:end][:MOST_BYTES] * rng.randint(1, 3) + sample[end:]


def _splice(rng: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return sample[: rng.randrange(len(sample) + 1)] + other[rng.randrange(len(other) + 1) :]


_IN_BYTES: list[Damage] = [_flip, _flip, _cut, _insert, _repeat, _splice]
_TOML = [
    *("1e999", "nan", "-inf", "9" * 400, "9" * 5000, "-1", "0", "true", '""', '"\\u0000"', "1979-05-27", "'''a"),
    *("[" * 2000, "[" * 100 + "]" * 100, "[1, 'a']", "{a = 1}", "{}", "[]", "0x10", "1_000", "[1e308, 1e308]"),
]
_TOML_LINES = [
    "[training]",
    "[[training]]",
    "[training.lam]",
    ".".join("a" * 3000) + " = 1",
    "= 1",
    "model = 5",
    "\x00",
]

WAYS: dict[str, list[Damage]] = {
    "json": [in_bytes, in_json, in_json, in_json],
    "toml": [in_bytes, in_toml, in_toml],
    "safetensors": [
        in_bytes,
        lambda rng, sample, others: damaged_safetensors(rng, sample, damaged_value, written),
        lambda rng, sample, others: damaged_safetensors(rng, sample, damaged_value, written),
    ],
    "png": [in_bytes, lambda rng, sample, others: damaged_png(rng, sample, in_bytes)],
    "tar": [in_bytes, lambda rng, sample, others: damaged_tar(rng, sample, in_bytes)],
    "zip": [in_bytes, lambda rng, sample, others: damaged_zip(rng, sample, in_bytes, in_json)],
    "image": [in_bytes, lambda rng, sample, others: _in_image(rng, sample, others)],
    "bytes": [in_bytes],
}


def _in_image(rng: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    return damaged_png(rng, sample, in_bytes) if sample[1:4] == b"PNG" else in_bytes(rng, sample, others)


def damaged(rng: Random, kind: str, sample: bytes, others: Sequence[bytes]) -> bytes:
    """A sample damaged in one of the ways for its kind."""
    return rng.choice(WAYS[kind])(rng, sample, others)
