"""What a measurement was made with: versions and hardware, for the records of benchmarks."""

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from otprune import __version__


def provenance(device: torch.device | None = None) -> dict[str, Any]:
    """Versions and hardware as JSON-able data; what is not there is None, and so is a GPU that is not the device.

    >>> sorted(provenance())
    ['cores', 'cpu', 'cuda', 'gpu', 'numpy', 'otprune', 'platform', 'python', 'threads', 'torch']
    """
    on_gpu = torch.cuda.is_available() and (device is None or device.type == "cuda")
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "otprune": __version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": _usable_cores(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if on_gpu else None,
        "cuda": torch.version.cuda if on_gpu else None,
    }


def _cpu_model() -> str | None:
    # Only Linux keeps the model's name in this file, and there platform.processor() tells the architecture alone.
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or None)


def _usable_cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
