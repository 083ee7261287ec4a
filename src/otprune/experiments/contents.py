"""What the JSON files of a run hold, and whether one does that was written by somebody else."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, TypeVar, cast

from otprune.errors import TrainingError
from otprune.kinds import AnyNumber, Share, require_kind

MOST_PIXELS = 2**26  # of an image, in all its channels
MOST_CLASSES = 1_000_000
ACCURACY = "accuracy_"

Content = TypeVar("Content", bound=Mapping[str, Any])


class Costs(TypedDict):
    """What a network costs in all."""

    flops: float
    parameters: float


class Exactness(TypedDict):
    """The largest difference between the outputs of the pruned and the masked network, and their largest output."""

    error: float
    scale: float


class LayerResult(TypedDict):
    """What became of a batch norm."""

    name: str
    channels: int
    kept: int
    negligible: NotRequired[int]
    threshold: NotRequired[float | None]
    note: NotRequired[str | None]


class Epoch(TypedDict, total=False):
    """What an epoch came to."""

    epoch: int
    lam: float | None
    loss: AnyNumber | None
    accuracy: Share | None
    flops: float | None


class Tried(TypedDict):
    """A network that a target was chosen by."""

    shift: float | None
    flops: float
    accuracy: Share | None


class Shifted(TypedDict):
    """What was measured at shifted thresholds."""

    shift: float
    flops: float
    folder: NotRequired[str]
    accuracy_pruned: NotRequired[Share | None]
    accuracy_recalibrated: NotRequired[Share | None]
    accuracy_finetuned: NotRequired[Share | None]


class Latency(TypedDict, total=False):
    """How a latency was met, in milliseconds."""

    budget_ms: float
    unpruned_ms: float
    measured_ms: float
    round_to: int


class Results(TypedDict, total=False):
    """results.json: what the stages measured. Every name that begins with `accuracy_` is that of a share.

    `cost_before` is that of the network as it is built. `cost_sparse` is that of the trained one, and only there where
    an earlier round had pruned it.
    """

    layers: list[LayerResult]
    gammas: dict[str, list[float]]
    removed: list[str]
    remarks: list[str]
    training: list[Epoch]
    finetuning: list[Epoch]
    scratch: list[Epoch]
    cost_before: Costs
    cost_sparse: Costs
    cost_after: Costs
    choosing: list[Tried]
    seconds: dict[str, float]
    exactness: Exactness | None
    latency: Latency
    unreadable: dict[str, str]
    test_by_epoch: dict[str, dict[str, Share]]


class Feeding(TypedDict, total=False):
    """data.json: how models are fed."""

    image_shape: list[int]
    classes: list[str]


class Round(TypedDict):
    """A round of several, and what is left of the first model's cost after it."""

    round: int
    accuracy: Share | None
    flops: Share
    parameters: Share
    results: Results


class Asked(TypedDict):
    """rounds.json: how many rounds there are to be."""

    rounds: int


class Record(TypedDict, total=False):
    """record.json: a run, or several prunings of one."""

    experiment: dict[str, Any]
    data: Feeding
    results: Results
    shifts: list[Shifted]
    gammas: dict[str, list[float]]
    accuracy_sparse: Share
    rounds: list[Round]
    remark: str
    provenance: dict[str, Any]
    provenance_by_stage: dict[str, list[dict[str, Any]]]


class Timed(TypedDict):
    """A latency in milliseconds."""

    p50: float


class Model(TypedDict):
    """A model that was timed, which one it is compared with, and the folder of the run that it is of."""

    original: str | None
    run: NotRequired[str | None]


class Bench(TypedDict, total=False):
    """bench.json: what `otprune bench` measured."""

    settings: dict[str, Any]
    models: dict[str, Model]
    latencies: dict[str, dict[str, Timed]]


class ExportedFile(TypedDict):
    """A file that was exported."""

    accuracy: Share


class Exports(TypedDict, total=False):
    """export.json: what `otprune export` wrote."""

    files: dict[str, ExportedFile]


def well_formed(kind: type[Content], found: Mapping[str, Any], where: object) -> Content:
    """The same, if it is what such a file holds; or else an error that names the file.

    >>> well_formed(Feeding, {"image_shape": [1, 8, 8]}, "data.json")
    {'image_shape': [1, 8, 8]}
    >>> well_formed(Feeding, {"image_shape": 8}, "data.json")
    Traceback (most recent call last):
    otprune.errors.TrainingError: data.json: is not what a run writes: it.image_shape is 8, not a list. Get ...
    """
    try:
        require_well_formed(kind, found)
    except ValueError as error:
        raise TrainingError(
            f"{where}: is not what a run writes: {error}. Get an undamaged copy of it, or leave it out."
        ) from error
    return cast(Content, found)


def require_well_formed(kind: type[Content], found: Mapping[str, Any]) -> None:
    """Raise `ValueError` where it is not what such a file holds.

    >>> require_well_formed(Feeding, {"image_shape": 8})
    Traceback (most recent call last):
    ValueError: it.image_shape is 8, not a list
    """
    require_kind(found, kind, "it")
    _require_measured(_part(Results, "results", kind, found))
    _require_rounds(found.get("rounds", ()) if kind is Record else ())
    _require_image(_part(Feeding, "data", kind, found))


def _part(wanted: Any, name: str, kind: Any, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The file itself, or that part of a record."""
    part: Mapping[str, Any] = found if kind is wanted else found.get(name, {}) if kind is Record else {}
    return part


def _require_measured(results: Mapping[str, Any], where: str = "it") -> None:
    for name, value in results.items():
        if name.startswith(ACCURACY):
            require_kind(value, Share | None, f"{where}.{name}")
    for name in ("cost_before", "cost_sparse", "cost_after"):
        if any(results[name][kind] <= 0 for kind in ("flops", "parameters") if name in results):
            raise ValueError(f"{where}.{name} is not above 0")


def _require_rounds(rounds: Sequence[Mapping[str, Any]]) -> None:
    for place, one in enumerate(rounds):
        if one["round"] != place + 1:
            raise ValueError(f"it has a round {one['round']} where round {place + 1} belongs")
        if "layers" not in one["results"]:
            raise ValueError(f"it.rounds[{place}].results has no layers")
        if min(one["flops"], one["parameters"]) <= 0:
            raise ValueError(f"it.rounds[{place}] has no FLOPs or parameters left")
        _require_measured(one["results"], f"it.rounds[{place}].results")


def _require_image(fed: Mapping[str, Any]) -> None:
    shape, classes = fed.get("image_shape", [1]), fed.get("classes", [])
    if min(shape, default=0) < 1 or math.prod(shape) > MOST_PIXELS:
        raise ValueError(f"it.image_shape is {shape}")
    if len(classes) > MOST_CLASSES:
        raise ValueError(f"it has {len(classes):,} classes, more than {MOST_CLASSES:,}")
