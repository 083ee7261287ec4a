"""Where downloaded data is kept."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """`$OTPRUNE_DATA` where it is set, otherwise otprune's part of the platform's cache folder.

    >>> cache_folder().is_absolute()
    True
    """
    chosen = os.environ.get("OTPRUNE_DATA")
    return Path(chosen).expanduser().absolute() if chosen else _platform_caches() / "otprune"


def _platform_caches() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
