"""The packages of the extra `deploy`, imported when they are needed, and their versions."""

import importlib
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from otprune.errors import DeployError

_SENDS_USAGE = "openvino_telemetry"


def imported(package: str) -> Any:
    """A package of the extra `deploy`; where it is missing, the error says how to get it.

    OpenVINO and NNCF report to their makers who uses them. They do without if the package that they report with is not
    there, so for this process it is not.

    >>> imported("numpy").__name__
    'numpy'
    >>> imported("nowhere_to_be_found")
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: nowhere_to_be_found is not installed: pip install 'otprune[deploy]'
    """
    sys.modules.setdefault(_SENDS_USAGE, None)  # type: ignore[arg-type]
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        raise DeployError(f"{error.name} is not installed: pip install 'otprune[deploy]'") from error


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of packages, those that are not installed left out.

    >>> list(versions(["torch", "nowhere_to_be_found"]))
    ['torch']
    """
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
