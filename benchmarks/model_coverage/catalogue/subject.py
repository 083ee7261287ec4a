"""One model to try: where it comes from, how it is built, what it takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Subject:
    """A model of a library, built with random weights, and an example of what it takes, of torch's default type."""

    package: str
    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], Any]

    @property
    def key(self) -> str:
        """What the model is called in records and on the command line."""
        return f"{self.package}:{self.name}"


def images(*shape: int) -> Callable[[], Tensor]:
    """Makes a tensor of random pixels of that shape when it is asked to."""
    return lambda: torch.randn(*shape)
