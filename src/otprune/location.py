"""Where in the user's own code something happened."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

_TORCH = str(Path(torch.__file__).parent) + "/"
_OTPRUNE = str(Path(__file__).parent) + "/"
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")  # functions of their own only before Python 3.12
_UNKNOWN = "an unknown line"
_SHIPPED_MODELS = str(Path(__file__).parent / "models")


def call(model: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """Call a model. The lines of whoever does are not taken for the model's.

    >>> call(torch.nn.ReLU(), torch.tensor(-1.0))
    tensor(0.)
    """
    return model(*args, **kwargs)


def user_location(error: BaseException | None = None) -> str:
    """`file:line` of the innermost frame outside torch and otprune, of the running code or of where `error` came from.

    Where there is none, as in a model that is made of torch's own modules alone, the module that runs is named.

    >>> user_location().endswith("unknown line")
    False
    """
    frames = _frames_running() if error is None else _frames_of(error)
    found = next(
        (f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in frames if _is_the_users(frame)), None
    )
    return found or (_module_running() if error is None else _UNKNOWN)


def code_running() -> str:
    """The same place, known again after lines above it were added, or in another process: a function and a line of it.

    >>> code_running()
    '<module>+0'
    """
    line = None
    for frame, its_line in _frames_running():
        if _is_the_users(frame):
            line = its_line if line is None else line
            if frame.f_code.co_name not in _COMPREHENSIONS:
                return f"{frame.f_code.co_qualname}+{line - frame.f_code.co_firstlineno}"
    return _module_running()


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


def _module_running() -> str:
    module = innermost_module()
    return _UNKNOWN if module is None else type(module).__name__


def _is_the_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(_SHIPPED_MODELS) or not file.startswith((_TORCH, _OTPRUNE))


def _frames_running() -> Iterator[tuple[FrameType, int]]:
    """From the innermost to that of the model, or to the outermost where none was called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not call.__code__:
        yield frame, frame.f_lineno
        frame = frame.f_back


def _frames_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    trace, frames = error.__traceback__, []
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return reversed(frames)
