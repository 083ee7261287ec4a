"""All parsers of outside bytes, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.parser_fuzz import data_files, exported_files, model_files, run_files
from tests.parser_fuzz.target import Target

# In order, with the share of the inputs that each gets: fewer where an input takes long.
TARGETS: dict[str, tuple[Callable[[], Target], float]] = {
    "plan": (model_files.plan, 2),
    "checkpoint": (model_files.checkpoint, 3),
    "state dict, zipped": (model_files.zipped_state_dict, 1),
    "state dict, legacy": (model_files.legacy_state_dict, 1),
    "training checkpoint": (model_files.training_checkpoint, 1),
    "CIFAR file": (data_files.cifar, 1),
    "archive": (data_files.archive, 2),
    "PNG sheet": (data_files.sheet, 2),
    "labels": (data_files.labels, 1),
    "image": (data_files.image, 2),
    "list of classes": (data_files.answers, 1),
    "settings": (run_files.settings, 3),
    "settings of a run": (run_files.run_settings, 3),
    "record": (run_files.record, 3),
    "record with scaling factors": (run_files.record_with_gammas, 0.02),
    "records of a sweep": (run_files.summary, 2),
    "table of latencies": (run_files.latencies, 3),
    "results of a run": (run_files.run_results, 3),
    "data of a run": (run_files.run_data, 0.02),
    "latencies of a run": (run_files.run_bench, 2),
    "exports of a run": (run_files.run_exports, 2),
    "check of thresholds": (run_files.run_check, 2),
    "provenance of a run": (run_files.run_provenance, 2),
    "exported program": (exported_files.program, 0.5),
    "exported ONNX": (exported_files.onnx, 0.5),
    "exported OpenVINO": (exported_files.openvino, 0.5),
}


def shares(inputs: int) -> dict[str, int]:
    """How many inputs each parser gets of so many.

    >>> sum(shares(1000).values()) >= 1000
    True
    """
    total = sum(share for _, share in TARGETS.values())
    return {name: -int(-inputs * share // total) for name, (_, share) in TARGETS.items()}
