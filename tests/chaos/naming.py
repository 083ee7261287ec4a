"""What files in the folders of runs are called, but for what differs from one run to the next."""

import re
from pathlib import Path

_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}")


def is_temporary(path: Path) -> bool:
    """Whether it is what is written first and renamed when it is whole.

    >>> is_temporary(Path("run/.results.json.0123456789abcdef")), is_temporary(Path("run/.lock"))
    (True, False)
    """
    return _TEMPORARY.fullmatch(path.name) is not None


def generic(name: str) -> str:
    """A name without its number, its time, and what marks it as temporary.

    >>> generic("at-00001-0000002.safetensors"), generic(".results.json.0123456789abcdef")
    ('at-*.safetensors', 'results.json')
    >>> generic("events.out.tfevents.1794804600.host.1.0")
    'events.*'
    """
    name = _TEMPORARY.sub(r"\1", name)
    return re.sub(r"^at-\d+-\d+", "at-*", re.sub(r"^events\..*", "events.*", name))


def files(folder: Path) -> list[Path]:
    """All files in a folder and in those inside.

    >>> files(Path("nowhere"))
    []
    """
    return sorted(path for path in folder.rglob("*") if path.is_file())


def names(folder: Path) -> set[str]:
    """The generic names of all files that are not temporary, each with the folders that it lies in.

    >>> names(Path("nowhere"))
    set()
    """
    found = (path.relative_to(folder) for path in files(folder) if not is_temporary(path))
    return {path.with_name(generic(path.name)).as_posix() for path in found}
