"""How runs on a cluster ended, in words for who asked for them."""

from collections.abc import Mapping
from pathlib import Path

import torch

from otprune.errors import OtpruneError
from otprune.experiments.cluster.connection import first_line
from otprune.experiments.cluster.store import BeingStopped, Elsewhere
from otprune.experiments.cluster.work import Stopped


def told(error: Exception) -> str:
    """What went wrong, in one line; an error that is not otprune's own says little without its class.

    >>> told(OtpruneError("it diverged")), told(RuntimeError("cuDNN\\nat line 5"))
    ('it diverged', 'RuntimeError: cuDNN')
    """
    if isinstance(error, OtpruneError):
        return str(error)
    text = f"{type(error).__name__}: {first_line(error)}"
    if isinstance(error, torch.OutOfMemoryError):
        return f"{text} Give each run more of a GPU, with a larger --gpus-per-run, then give the same command again."
    return text


def why_unsaved(error: Exception) -> str | None:
    """Why a run that was told to stop could not be saved; None where it was, or had not begun.

    >>> why_unsaved(Stopped("stopped and saved")), why_unsaved(OSError("no space left"))
    (None, 'OSError: no space left')
    """
    return None if isinstance(error, Stopped | BeingStopped | Elsewhere) else told(error)


def how_to_go_on(out: Path, unsaved: Mapping[str, str]) -> str:
    """`unsaved` has the runs that had to be left as they last were, and why; those without a reason were too slow.

    >>> how_to_go_on(Path("runs"), {"a": "no space left", "b": ""})
    'stopped and saved in runs, but for what was done since their last checkpoints by a (no space left), b: give ...'
    """
    named = ", ".join(f"{run} ({why})" if why else run for run, why in unsaved.items())
    but = f", but for what was done since their last checkpoints by {named}" if named else ""
    return f"stopped and saved in {out}{but}: give the same command again to go on"
