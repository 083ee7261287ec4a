"""What networks take on this machine's CPU in a runtime: by the table of layers, and really."""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from otprune.deploy.latencies import LatencyTable, Points
from otprune.deploy.layers import Shape, layers_of
from otprune.deploy.lone_layers import alone, nothing
from otprune.deploy.packages import versions
from otprune.deploy.pinning import pinned
from otprune.deploy.runtimes import Runtime, in_runtime
from otprune.deploy.timing import interleaved, summarized
from otprune.provenance import provenance

FILE = "latencies.json"
LAYER_RUNS, NETWORK_RUNS = 30, 300
LAYER_WARM_UP = 3
LEAST = 1e-6  # of what is predicted, since networks are compared by ratios


class Stopwatch:
    """Predicts and measures latencies of a batch like `example`, in milliseconds; medians.

    Layers are measured once: the table is kept in `file`, under the hardware, the runtime and the number of threads.

    >>> watch = Stopwatch(torch.zeros(1, 4), "torch", threads=1)
    >>> watch.predicted(nn.Linear(4, 2)) >= 0, watch.measured(nn.Linear(4, 2)) > 0
    (True, True)
    """

    def __init__(self, example: Tensor, runtime: Runtime, threads: int, file: Path | None = None) -> None:
        self.example, self.runtime, self.threads = torch.randn(example.shape), runtime, threads
        self.table = LatencyTable(self._layers, file, key(runtime, threads))

    def predicted(self, model: nn.Module) -> float:
        """By the table; what it lacks is measured, up to the channels that the model has."""
        layers = layers_of(model, self.example)
        self.table.cover(layers)
        return max(self.table.milliseconds(layers), LEAST)

    def measured(self, model: nn.Module) -> float:
        """Really."""
        with pinned(self.threads):
            ready = in_runtime(copy.deepcopy(model).cpu().eval(), self.example, self.runtime, threads=self.threads)
            return summarized(interleaved({"": ready.seconds}, NETWORK_RUNS)[""]).p50

    def _layers(self, shape: Shape, channels: Points) -> Sequence[float]:
        """In turn, and without what a call takes that does nothing: a network is one call."""
        with pinned(self.threads):
            timed = {str(pair): alone(shape, *pair, self.runtime, self.threads).seconds for pair in channels}
            timed["nothing"] = nothing(self.runtime, self.threads).seconds
            seconds = interleaved(timed, LAYER_RUNS, LAYER_WARM_UP)
        found = {name: summarized(those).p50 for name, those in seconds.items()}
        return [max(found[str(pair)] - found["nothing"], 0.0) for pair in channels]


def key(runtime: Runtime, threads: int) -> str:
    """What latencies depend on: the hardware, the runtime and the number of threads.

    >>> key("torch", 1).endswith("threads: 1")
    True
    """
    made_with = provenance()
    package = runtime.partition("-")[0]
    version = versions([package]).get(package, "")
    return f"{made_with['cpu']}, {made_with['cores']} cores; {runtime} {version}; threads: {threads}"
