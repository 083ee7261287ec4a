"""A model by what the user calls it: a network of this package or of a library, a function of a module or of a file."""

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from otprune import models
from otprune.errors import ModelError
from otprune.location import user_location
from otprune.models.libraries import build_from, is_library


def build_model(wanted: str, num_classes: int | None = None, run: Path | None = None) -> nn.Module:
    """Build `vgg14`, `torchvision:resnet18`, `timm:resnet18`, `module:function` or `path/to/file.py:function`.

    The function gets `num_classes` if it takes it. Without a number the model has as many classes as it has by itself.
    Files are named from the current folder. Where one is not there, the error says whether it is near `run`, the folder
    of the run that the model is of.

    >>> build_model("digits_net", num_classes=3).fc.out_features
    3
    >>> build_model("torchvision:resnet18").fc.out_features
    1000
    >>> build_model("otprune.models:digits_net", num_classes=4).fc.out_features
    4
    """
    source, colon, name = wanted.rpartition(":")
    if not colon:
        _require_known(wanted)
        return models.build(wanted, num_classes)
    function = functools.partial(build_from, source, name) if is_library(source) else _own(source, name, wanted, run)
    if num_classes is None and _requires(function, "num_classes"):
        raise ModelError(f"{wanted} has to be told num_classes: say for how many classes it is to be built")
    told = {"num_classes": num_classes} if num_classes is not None and _takes(function, "num_classes") else {}
    with _the_users_errors(f"{wanted} cannot be built"):
        model = function(**told)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{wanted} returns a {type(model).__name__}, not a torch.nn.Module")
    return model


def _require_known(wanted: str) -> None:
    if wanted not in models.names():
        raise ModelError(
            f"there is no model named {wanted!r}; choose one of {', '.join(models.names())}, "
            "torchvision:name or timm:name, or your own as module:function or file.py:function"
        )


def _own(source: str, name: str, wanted: str, run: Path | None) -> Callable[..., Any]:
    module = _in_file(source, run) if source.endswith(".py") else _module(source)
    return _function(module, name, wanted)


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # the installed script looks beside itself, not in the current folder
        sys.path.insert(0, here)
    try:
        with _the_users_errors(f"the module {name} cannot be imported"):
            return importlib.import_module(name)
    except ModelError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and f"{name}.".startswith(f"{missing.name}."):
            raise ModelError(
                f"there is no module named {missing.name!r}, neither installed nor in {here}: "
                f"install it, or start the command in the folder that it lies in"
            ) from error
        raise


def _in_file(source: str, run: Path | None) -> ModuleType:
    path = Path(source).absolute()
    try:
        return _file_module(path)
    except FileNotFoundError as error:
        raise ModelError(f"there is no file {path} to take a model from: {_way_to(source, run)}") from error


def _way_to(source: str, run: Path | None) -> str:
    """Told, not gone: to look at a run must not execute what somebody put beside it."""
    if Path(source).is_absolute():
        return "put it there, or name another one"
    near = () if run is None else (run.resolve(), *run.resolve().parents)
    found = next((folder for folder in near if (folder / source).is_file()), None)
    if found is None:
        return f"start the command in the folder that {source} is named from"
    return f"{source} is in {found}, and if that is the one, start the command there"


@functools.cache
def _file_module(path: Path) -> ModuleType:
    """The module in a file, run once and, like a script, able to import what lies beside it."""
    if not path.is_file():
        raise FileNotFoundError(path)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"otprune_model_in_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their own module up
    with _the_users_errors(f"{path} cannot be imported"):
        spec.loader.exec_module(module)
    return module


def _function(module: ModuleType, name: str, wanted: str) -> Callable[..., Any]:
    function: Callable[..., Any] | None = getattr(module, name, None)
    if callable(function):
        return function
    own = [key for key, value in vars(module).items() if _is_of(module, value)]
    has = f"it has {', '.join(own)}" if own else "it has no function"
    wrong = "is not callable" if hasattr(module, name) else f"is not there: {has}"
    raise ModelError(f"{wanted}: {name or 'the function after the colon'} {wrong}")


def _is_of(module: ModuleType, value: object) -> bool:
    """Whether it is a function, or a class of models, that the module itself defines."""
    builds = inspect.isfunction(value) or (inspect.isclass(value) and issubclass(value, nn.Module))
    return builds and value.__module__ == module.__name__


def _takes(function: Callable[..., Any], argument: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == argument or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def _requires(function: Callable[..., Any], argument: str) -> bool:
    parameter = inspect.signature(function).parameters.get(argument)
    return parameter is not None and parameter.default is inspect.Parameter.empty


@contextmanager
def _the_users_errors(what: str) -> Iterator[None]:
    """Say at which line of the user's code it failed."""
    try:
        yield
    except ModelError:
        raise
    except SyntaxError as error:
        raise ModelError(f"{what}: {error.filename}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        raise ModelError(f"{what}: {user_location(error)} raises {type(error).__name__}: {error}") from error
