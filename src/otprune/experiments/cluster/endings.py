"""How runs on a cluster ended, in words for who asked for them."""

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
