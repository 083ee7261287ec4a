"""What a model draws at random in a step, such as dropout's masks: it follows from a seed, on a CPU and on a GPU."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Chance:
    """The random numbers of a device. A captured step finds them through the device's own generator.

    Of a step that is to be captured on a GPU, it is found out first whether it draws any.

    >>> chance = Chance(torch.device("cpu"))
    >>> with chance.seeded(1):
    ...     first = torch.rand(1)
    >>> with chance.seeded(1):
    ...     torch.equal(first, torch.rand(1))
    True
    """

    def __init__(self, device: torch.device, captured: bool = True) -> None:
        self._device = device
        # Captured on a GPU, until it is known that something is drawn, nothing is.
        self._asked_for = device.type == "cpu" or not captured

    @contextmanager
    def seeded(self, seed: int | None) -> Iterator[None]:
        """Inside, what is drawn follows from the seed; outside, on a CPU, nothing has been drawn."""
        if seed is None or not self._asked_for:
            yield
        elif self._device.type == "cpu":
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                yield
        else:
            with _one_after_another(self._device):
                _generator(self._device).manual_seed(seed)
                yield

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Find out whether what is inside draws anything on a GPU: what does not need not wait for others that do."""
        generator = _generator(self._device)
        before = generator.get_offset()
        yield
        self._asked_for = generator.get_offset() != before


@contextmanager
def _one_after_another(device: torch.device) -> Iterator[None]:
    """All captured steps read one seed, so none may set it before the last one has drawn."""
    stream, drawn = torch.cuda.current_stream(device), _drawn(device)
    stream.wait_event(drawn)
    yield
    drawn.record(stream)


@functools.cache
def _drawn(device: torch.device) -> torch.cuda.Event:
    return torch.cuda.Event()


def _generator(device: torch.device) -> torch.Generator:
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
