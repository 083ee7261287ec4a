"""Find the models with batch norm that torchvision and timm have, and write their names down; some minutes.

PYTHONPATH=benchmarks python -m model_coverage.finding
"""

import json
from collections.abc import Callable, Iterable

import timm
import torch
import torchvision
from torch import nn

from otprune.files import write_atomically

from .batch_norms import batch_norms
from .catalogue import timm_models, torchvision_models
from .catalogue.names import PATH


def main() -> None:
    """Look at every model and write the names."""
    found = {"torchvision": torchvision_names(), "timm": timm_names()}
    write_atomically(PATH, (json.dumps(found, indent=1) + "\n").encode())


def torchvision_names() -> list[str]:
    """All models."""
    sizes = parameters(torchvision.models.list_models(), torchvision_models.build)
    return sorted(sizes, key=sizes.__getitem__)


def timm_names() -> list[str]:
    """The smallest model of every file."""
    smallest = []
    for module in timm.list_modules():
        sizes = parameters(timm.list_models(module=module), timm_models.build)
        if sizes:
            smallest.append(min((size, name) for name, size in sizes.items()))
    return [name for _, name in sorted(smallest)]


def parameters(names: Iterable[str], build: Callable[[str], nn.Module]) -> dict[str, int]:
    """How many parameters each of the models has that have batch norm."""
    models = ((name, _without_memory(name, build)) for name in names)
    return {name: sum(p.numel() for p in model.parameters()) for name, model in models if batch_norms(model)}


def _without_memory(name: str, build: Callable[[str], nn.Module]) -> nn.Module:
    try:
        with torch.device("meta"):
            return build(name)
    except NotImplementedError:  # its widths are computed by tensors
        return build(name)


if __name__ == "__main__":
    main()
