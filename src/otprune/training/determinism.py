"""The same weights every time: what torch must do otherwise so that on the same hardware sums come out the same.

A CPU gives the same weights anyway, for the same number of threads, which the record of a run tells.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch

from otprune.errors import TrainingError

WORKSPACES = "CUBLAS_WORKSPACE_CONFIG"  # read once, when a GPU is first used
FIXED = (":4096:8", ":16:8")  # workspaces with which matrix products on several streams come out the same


@contextmanager
def determinism(asked: bool = True) -> Iterator[None]:
    """Inside, what is trained comes out the same every time; afterwards everything is as it was.

    A layer that torch cannot train so is an error. Pruning for a latency still goes by the clock.

    >>> with determinism():
    ...     torch.are_deterministic_algorithms_enabled()
    True
    >>> torch.are_deterministic_algorithms_enabled()
    False
    """
    with ExitStack() as stack:
        if asked:
            _fix_workspaces(stack)
            _use_deterministic_algorithms(stack)
            for owner, name, value in _settings():
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, value)
        yield


def described() -> dict[str, bool]:
    """What a record says of it: nothing, unless what runs now comes out the same every time.

    >>> described()
    {}
    >>> with determinism():
    ...     described()
    {'deterministic': True}
    """
    return {"deterministic": True} if torch.are_deterministic_algorithms_enabled() else {}


def _settings() -> tuple[tuple[ModuleType, str, Any], ...]:
    from torch._inductor import config as compiler

    cudnn: Any = torch.backends.cudnn
    return (
        (cudnn, "deterministic", True),
        (cudnn, "benchmark", False),
        (compiler, "deterministic", True),  # kernels are not chosen by what they take, which is never quite the same
        # It would cost a kernel for each tensor, and nothing here reads what it has not written.
        (torch.utils.deterministic, "fill_uninitialized_memory", False),
    )


def _use_deterministic_algorithms(stack: ExitStack) -> None:
    from torch._inductor import config as compiler

    # Turning it on or off also sets the compiler's, so that one is put back last.
    stack.callback(setattr, compiler, "deterministic", compiler.deterministic)
    before, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    stack.callback(torch.use_deterministic_algorithms, before, warn_only=warn_only)
    torch.use_deterministic_algorithms(True)


def _fix_workspaces(stack: ExitStack) -> None:
    before = os.environ.get(WORKSPACES)
    if before in FIXED:
        return
    if torch.cuda.is_initialized():
        raise TrainingError(
            f"it is too late to train deterministically, since a GPU has been used: set the environment variable "
            f"{WORKSPACES} to {FIXED[0]} before Python starts, or ask for it before anything is done on a GPU"
        )
    os.environ[WORKSPACES] = FIXED[0]
    stack.callback(_put_back, before)


def _put_back(workspaces: str | None) -> None:
    if torch.cuda.is_initialized():
        return  # it has been read and holds until the process ends, so another training may rely on it
    os.environ.pop(WORKSPACES)
    if workspaces is not None:
        os.environ[WORKSPACES] = workspaces
