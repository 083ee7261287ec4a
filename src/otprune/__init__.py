"""Channel pruning by optimal thresholding: exact on any PyTorch model, lossless without retraining.

The public names are those of `otprune.public`. They are imported once one is used, since that imports torch, which
takes seconds: `otprune --help` does without.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otprune.public import *  # noqa: F403

__version__ = "0.1.0"

# Functions called like the module they come from: ot.plan is the function, whoever imports otprune.plan.
_CALLED_LIKE_MODULES = frozenset({"cost", "plan", "verify"})


class _Package(ModuleType):
    def __getattr__(self, name: str) -> Any:
        """Called for what is not there yet."""
        if name == "__all__" or not name.startswith("__"):
            public = importlib.import_module("otprune.public")
            self.__dict__.update({offered: getattr(public, offered) for offered in ("__all__", *public.__all__)})
        if name not in self.__dict__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return self.__dict__[name]

    def __setattr__(self, name: str, value: object) -> None:
        """The import of a module sets it as an attribute of its package."""
        if not (name in _CALLED_LIKE_MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


sys.modules[__name__].__class__ = _Package
