"""The work of one process: one tool on one model, with one mask after the other."""

import dataclasses
import json
import random
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import otprune.public  # noqa: F401  # all of it now, before anyone changes a file of it
from otprune.errors import OtpruneError
from otprune.files import write_atomically

from . import by_otprune, by_torch_pruning, masks
from .batch_norms import Mask, batch_norms, settle, zero
from .catalogue import subject_called
from .catalogue.subject import Subject
from .outcome import CRASHED, NO_BATCH_NORM, REFUSED, RUNS, Outcome

TOOLS: dict[str, Callable[[nn.Module, Any, Mask], Outcome]] = {
    "otprune": by_otprune.prune,
    "torch_pruning": by_torch_pruning.prune,
}
MASKS = "masks.json"


def attempt(key: str, tool: str, folder: Path) -> None:
    """Prune a model by both masks; write the masks, unless they are there, and the outcome of each run to a file."""
    _be_quiet(folder / f"{tool}.log")
    _use_float64()
    subject = subject_called(key)
    for run in RUNS:
        outcome = _outcome(subject, tool, run, folder)
        write_atomically(folder / f"{tool}-{run}.json", json.dumps(dataclasses.asdict(outcome)).encode())


def _outcome(subject: Subject, tool: str, run: str, folder: Path) -> Outcome:
    counts: dict[str, Any] = {}
    try:
        model, example = _prepared(subject)
        if not batch_norms(model):
            return Outcome(NO_BATCH_NORM)
        mask = _masks(model, example, subject, folder)[run]
        zero(model, mask)
        counts["channels"] = sum(layer.num_features for name, layer in batch_norms(model).items() if name in mask)
        counts["zeroed"] = sum(len(channels) for channels in mask.values())
        return dataclasses.replace(TOOLS[tool](model, example, mask), **counts)
    except OtpruneError as error:
        return Outcome(REFUSED, f"{type(error).__name__}: {error}", **counts)
    except Exception as error:  # whatever a tool or a model raises is a result of the run
        return Outcome(CRASHED, _described(error), **counts)


def _prepared(subject: Subject) -> tuple[nn.Module, Any]:
    """The same model and example in every process."""
    seed = _seed(subject.key)
    torch.manual_seed(seed)
    random.seed(seed)
    model = subject.build().eval()
    example = subject.example()
    settle(model, example)
    return model, example


def _masks(model: nn.Module, example: Any, subject: Subject, folder: Path) -> dict[str, Mask]:
    path, seed = folder / MASKS, _seed(subject.key)
    if not path.exists():
        drawn: dict[str, Any] = {"how": "by ties"}
        try:
            drawn["agreeing"] = masks.agreeing(model, example, seed)
        except Exception:  # the outcome tells of it, since planning traces again
            drawn = {"how": "by position", "agreeing": masks.by_position(model, seed)}
        drawn["independent"] = masks.independent(model, drawn["agreeing"], seed)
        write_atomically(path, json.dumps(drawn).encode())
    found: dict[str, Mask] = json.loads(path.read_text())
    return found


def _seed(key: str) -> int:
    return zlib.crc32(key.encode())


def _described(error: Exception) -> str:
    """The exception, and the line that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]} ({'/'.join(Path(last.filename).parts[-3:])}:{last.lineno})"


def _use_float64() -> None:
    """Also for what a model makes while it runs: a grid of positions, say."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]


def _be_quiet(log: Path) -> None:
    """What libraries print is kept beside the outcome; it would only hide the lines of the run."""
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr = log.open("w", encoding="utf-8")
