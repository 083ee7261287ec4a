"""The file of results: read to go on where a run was broken off, written whole after every model."""

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import otprune
from otprune.files import write_atomically
from otprune.provenance import provenance

LIBRARIES = ("timm", "torchvision", "transformers", "segmentation-models-pytorch", "ultralytics", "torch-pruning")
# What pruning does not depend on: changes there ask for no new measurement.
_NOT_CORE = frozenset({"cli", "deploy", "experiments", "report", "training", "models"})
_NOT_MEASURING = frozenset({"__main__.py", "summary.py", "page.py", "records.py", "finding.py"})

Record = dict[str, Any]


class Results:
    """Records by the key of the model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.models: dict[str, Record] = json.loads(path.read_text(encoding="utf-8"))["models"] if path.exists() else {}

    def put(self, key: str, record: Record) -> None:
        """Add a record and write the file."""
        self.models[key] = record
        content = {"benchmark": "coverage", "models": self.models, "versions": versions(), "provenance": provenance()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def core_digest() -> str:
    """Of the code that prunes."""
    source = Path(otprune.__file__).parent
    files = [path for path in source.rglob("*.py") if path.relative_to(source).parts[0] not in _NOT_CORE]
    return _digest(files)


def measuring_digest() -> str:
    """Of the code that measures, and the versions of what it measures with."""
    source = Path(__file__).parent
    files = [path for path in source.rglob("*.py") if path.name not in _NOT_MEASURING]
    return _digest(files, torch.__version__, json.dumps(versions()))


def versions() -> dict[str, str]:
    """Those of the libraries that are installed."""
    installed = {distribution.name: distribution.version for distribution in metadata.distributions()}
    names = {name.replace("_", "-").lower(): version for name, version in installed.items()}
    return {name: names[name] for name in LIBRARIES if name in names}


def file_digest(path: Path) -> str | None:
    """Of one file, if it is there."""
    return _digest([path]) if path.exists() else None


def _digest(files: list[Path], *more: str) -> str:
    parts = [*(path.read_bytes() for path in sorted(files)), *(text.encode() for text in more)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
