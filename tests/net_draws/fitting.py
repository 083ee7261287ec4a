"""Which tensors a step can read."""

from __future__ import annotations

from tests.net_scene import Scene
from tests.net_spec import Shape

MOST_CHANNELS = 24
MOST_FEATURES = 600
LARGEST_SIZE = 12


def any_tensor(scene: Scene, index: int) -> bool:
    return True


def features(scene: Scene, index: int) -> bool:
    return scene.dims(index) == 0


def spatial(scene: Scene, index: int) -> bool:
    return scene.dims(index) > 0


def plane(scene: Scene, index: int) -> bool:
    return scene.dims(index) == 2


def divisible(scene: Scene, index: int) -> bool:
    """At least two channels that groups can share evenly."""
    return bool(group_counts(scene.channels(index)))


def even(scene: Scene, index: int) -> bool:
    return scene.channels(index) % 2 == 0


def several(scene: Scene, index: int) -> bool:
    """More than one channel, without which a softmax or a mean over channels says nothing."""
    return scene.channels(index) > 1


def group_counts(channels: int) -> list[int]:
    """The numbers of groups of several channels that a convolution may have."""
    return [groups for groups in (2, 3, 4) if channels % groups == 0 and channels > groups]


def has_twin(scene: Scene, index: int) -> bool:
    """Another tensor of the same shape, to be summed with."""
    return bool(scene.same_shape(index))


def has_spatial_twin(scene: Scene, index: int) -> bool:
    return spatial(scene, index) and has_twin(scene, index)


def smallest(shape: Shape) -> int:
    return min(shape[1:])


def can_halve(scene: Scene, index: int) -> bool:
    return spatial(scene, index) and smallest(scene.shapes[index]) >= 2


def can_double(scene: Scene, index: int) -> bool:
    return spatial(scene, index) and max(scene.shapes[index][1:]) <= LARGEST_SIZE // 2
