"""Bad input gives one clear error that names the thing and the way out, and leaves everything as it was."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from otprune.errors import OtpruneError
from tests.unchanged import unchanged


def refused(error: type[OtpruneError], *words: str, models: tuple[nn.Module, ...], call: Callable[[], Any]) -> str:
    """The message of the error that `call` raises: of that very class, with all of the words, nothing changed."""
    with unchanged(*models), pytest.raises(OtpruneError) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error, f"{type(caught.value).__name__}: {message}"
    for word in words:
        assert word in message, message
    return message


def busy(model: nn.Module) -> nn.Module:
    """A model in the middle of training: mixed modes, gradients, a hook of the user's."""
    model.train()
    next(iter(model.children())).eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model.register_forward_hook(lambda module, inputs, out: None)
    return model


def line_of(source: Callable[..., Any], text: str) -> str:
    """`file:line` of the one line of a function that holds `text`."""
    lines, start = inspect.getsourcelines(source)
    (found,) = [number for number, line in enumerate(lines, start) if text in line]
    return f"{Path(source.__code__.co_filename).name}:{found}"


def lines_in(message: str) -> list[str]:
    """Every `file:line` that a message names."""
    return re.findall(r"[\w.]+\.py:\d+", message)
