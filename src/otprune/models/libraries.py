"""Networks of other libraries by their names, never with weights: nothing is downloaded."""

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from torch import nn

from otprune.errors import ModelError

_PACKAGES = {"torchvision": "torchvision.models", "timm": "timm"}
_WEIGHTS = ("weights", "weights_backbone")


def is_library(source: str) -> bool:
    """Whether `build_from` knows a library of that name.

    >>> is_library("torchvision"), is_library("mine")
    (True, False)
    """
    return source in _PACKAGES


def build_from(library: str, name: str, **options: Any) -> nn.Module:
    """Build a network of torchvision or timm with fresh weights.

    >>> build_from("torchvision", "resnet18", num_classes=3).fc.out_features
    3
    """
    package = _imported(library)
    build = _of_torchvision if library == "torchvision" else _of_timm
    return build(package, name)(**options)


def _of_torchvision(package: ModuleType, name: str) -> Callable[..., nn.Module]:
    _require_known("torchvision", name, package.list_models())
    builder: Callable[..., nn.Module] = package.get_model_builder(name)
    without = {weights: None for weights in _WEIGHTS if weights in inspect.signature(builder).parameters}
    return lambda **options: builder(**without, **options)


def _of_timm(package: ModuleType, name: str) -> Callable[..., nn.Module]:
    if not package.is_model(name):
        _require_known("timm", name, package.list_models())
    return lambda **options: package.create_model(name, pretrained=False, **options)


def _imported(library: str) -> ModuleType:
    try:
        return importlib.import_module(_PACKAGES[library])
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise ModelError(f"{library} is not installed: pip install {library}") from error


def _require_known(library: str, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=5, cutoff=0.5)
        hint = f"is it one of {', '.join(near)}?" if near else "list_models() of the library tells what there is"
        raise ModelError(f"{library} has no model named {name!r}; {hint}")
