"""How runs on a cluster ended, in words for who asked for them."""

from otprune.experiments.cluster.store import BeingStopped, Elsewhere
from otprune.experiments.cluster.work import Stopped
from otprune.training.failures import in_one_line


def told(error: Exception) -> str:
    """What went wrong, in one line; an error that is not otprune's own says little without its class.

    >>> from otprune.errors import OtpruneError
    >>> told(OtpruneError("it diverged")), told(RuntimeError("cuDNN\\nat line 5"))
    ('it diverged', 'RuntimeError: cuDNN')
    """
    return in_one_line(error, "Give each run more of a GPU, with a larger --gpus-per-run, then the same command again.")


def why_unsaved(error: Exception) -> str | None:
    """Why a run that was told to stop could not be saved; None where it was, or had not begun.

    >>> why_unsaved(Stopped("stopped and saved")), why_unsaved(OSError("no space left"))
    (None, 'OSError: no space left')
    """
    return None if isinstance(error, Stopped | BeingStopped | Elsewhere) else told(error)
