"""Where in the user's own code something happened."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

_TORCH = str(Path(torch.__file__).parent) + "/"
_OTPRUNE = str(Path(__file__).parent) + "/"
_SHIPPED_MODELS = str(Path(__file__).parent / "models")


def user_location(error: BaseException | None = None) -> str:
    """`file:line` of the innermost frame outside torch and otprune, of the running code or of where `error` came from.

    >>> user_location().endswith("unknown line")
    False
    """
    lines = _lines_of(error) if error is not None else _lines_running()
    for file, line in lines:
        if _is_the_users(file):
            return f"{Path(file).name}:{line}"
    return "an unknown line"


def innermost_module() -> torch.nn.Module | None:
    """The module whose method is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        candidate = frame.f_locals.get("self")
        if isinstance(candidate, torch.nn.Module):
            return candidate
        frame = frame.f_back
    return None


def arguments_of(module: torch.nn.Module) -> tuple[Any, ...]:
    """The positional arguments with which a module was called that is running, as its hooks left them.

    >>> arguments_of(torch.nn.ReLU())
    ()
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is torch.nn.Module._call_impl.__code__ and frame.f_locals["self"] is module:
            found: tuple[Any, ...] = frame.f_locals["args"]
            return found
        frame = frame.f_back
    return ()


def _is_the_users(file: str) -> bool:
    return file.startswith(_SHIPPED_MODELS) or not file.startswith((_TORCH, _OTPRUNE))


def _lines_running() -> Iterator[tuple[str, int]]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _lines_of(error: BaseException) -> Iterator[tuple[str, int]]:
    trace, lines = error.__traceback__, []
    while trace is not None:
        lines.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return reversed(lines)
