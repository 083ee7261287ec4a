"""Where a pruned network gains less time than FLOPs: its layers beside those of the original, and why some lag."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

import otprune as ot
from otprune.deploy.layers import Layer, layers_of
from otprune.deploy.lone_layers import alone
from otprune.deploy.pinning import pinned
from otprune.deploy.profiling import Part, profiled
from otprune.deploy.runtimes import Device, Runtime
from otprune.deploy.timing import interleaved, summarized

WIDTH = 16  # single-precision numbers in the widest registers of today's processors
EXPLAINED = 5  # layers that lag most
CLEARLY = 0.95
DIGITS = 5  # of milliseconds: clocks tell no more


@dataclass(frozen=True)
class Way:
    """How layers are measured: in a runtime, by so many runs."""

    runtime: Runtime
    threads: int
    runs: int
    device: Device = "cpu"


@dataclass(frozen=True)
class Network:
    """A network as a runtime ran it: its parts, its layers by name, and their multiply-adds."""

    parts: Sequence[Part]
    layers: Mapping[str, Layer]
    macs: Mapping[str, int]

    @property
    def ms(self) -> dict[str, float]:
        """What each layer takes."""
        found: defaultdict[str, float] = defaultdict(float)
        for part in self.parts:
            if part.is_layer:
                found[part.name] += part.ms
        return dict(found)

    @property
    def elsewhere(self) -> dict[str, float]:
        """What takes time and is no layer, by kind."""
        found: defaultdict[str, float] = defaultdict(float)
        for part in self.parts:
            if not part.is_layer:
                found[part.kind] += part.ms
        return dict(found)


def looked_at(model: nn.Module, images: Tensor, way: Way) -> Network:
    """A network's parts: on a CPU as the runtime times them, on a GPU, where it runs ahead of them, layer by layer."""
    macs = {layer.name: layer.macs for layer in ot.cost(model, images).layers}
    layers = layers_of(model, images)
    if way.device == "cpu":
        parts = profiled(model, images, way.runtime, way.threads, way.runs)
    else:
        parts = each_alone(layers, way)
    return Network(parts, {layer.name: layer for layer in layers}, macs)


def each_alone(layers: Sequence[Layer], way: Way) -> list[Part]:
    """The layers of a network, each timed by itself."""
    ms = _milliseconds({layer.name: (layer, _channels(layer)) for layer in layers}, way)
    return [Part(layer.name, "linear" if layer.shape.is_linear else "conv", ms[layer.name]) for layer in layers]


def breakdown(before: Network, after: Network) -> dict[str, Any]:
    """Layer by layer, the milliseconds before and after; `lag_ms` is what a layer takes beyond what its FLOPs say."""
    rows = [_row(name, before, after) for name in before.ms]
    return {
        "layers": rows,
        "elsewhere": {"ms_before": before.elsewhere, "ms_after": after.elsewhere},
        "lag_ms_of_layers": sum(row["lag_ms"] for row in rows),
        "lag_ms_elsewhere": sum(after.elsewhere.values()) - sum(before.elsewhere.values()) * _share(before, after),
    }


def lagging(found: Mapping[str, Any]) -> list[str]:
    """The layers that take most beyond what their FLOPs say, the worst first."""
    behind = [row for row in found["layers"] if row["lag_ms"] > 0]
    return [row["layer"] for row in sorted(behind, key=lambda row: -row["lag_ms"])][:EXPLAINED]


def explained(name: str, before: Network, after: Network, way: Way) -> str:
    """Why a layer lags, by measuring it alone: as it was, as it is, and with its channels rounded up."""
    old, new = before.layers[name], after.layers[name]
    channels = {"old": _channels(old), "new": _channels(new), "rounded": _rounded_up(new, old)}
    ms = _milliseconds({key: (new, pair) for key, pair in channels.items()}, way)
    return reason(channels, ms, before.macs[name], after.macs[name])


def _milliseconds(layers: Mapping[str, tuple[Layer, tuple[int, int]]], way: Way) -> dict[str, float]:
    """The median of each of several layers, with channels of their own, alone and in turn."""
    with pinned(way.threads):
        timed = {
            key: alone(layer.shape, *channels, way.runtime, way.threads, way.device).seconds
            for key, (layer, channels) in layers.items()
        }
        return {key: summarized(those).p50 for key, those in interleaved(timed, way.runs).items()}


def reason(channels: Mapping[str, tuple[int, int]], ms: Mapping[str, float], before: int, after: int) -> str:
    """In words, of the milliseconds of a layer alone with its channels `old`, `new` and `rounded`.

    >>> pairs = {"old": (64, 64), "new": (24, 61), "rounded": (32, 64)}
    >>> reason(pairs, {"old": 1.0, "new": 0.6, "rounded": 0.4}, 4000, 1430)
    'its channels, 24→61, are no multiples of 16: with 32→64 it takes 0.400 ms instead of 0.600 ms'
    """
    new, rounded = ("→".join(map(str, channels[key])) for key in ("new", "rounded"))
    if ms["rounded"] < CLEARLY * ms["new"]:
        return (
            f"its channels, {new}, are no multiples of {WIDTH}: with {rounded} it takes {ms['rounded']:.3f} ms "
            f"instead of {ms['new']:.3f} ms"
        )
    speeds = before / ms["old"] / 1e6, after / ms["new"] / 1e6
    return f"alone, with {new} channels, it does {speeds[1]:.1f} billion multiply-adds a second, before {speeds[0]:.1f}"


def _row(name: str, before: Network, after: Network) -> dict[str, Any]:
    ms, share = after.ms.get(name, 0.0), after.macs.get(name, 0) / before.macs[name]
    return {
        "layer": name,
        "channels_before": _channels(before.layers[name]),
        "channels_after": _channels(after.layers[name]) if name in after.layers else None,
        "macs_before": before.macs[name],
        "macs_after": after.macs.get(name, 0),
        "ms_before": round(before.ms[name], DIGITS),
        "ms_after": round(ms, DIGITS),
        "lag_ms": round(ms - before.ms[name] * share, DIGITS),
    }


def _share(before: Network, after: Network) -> float:
    return sum(after.macs.values()) / sum(before.macs.values())


def _channels(layer: Layer) -> tuple[int, int]:
    return layer.inputs, layer.outputs


def _rounded_up(layer: Layer, most: Layer) -> tuple[int, int]:
    """To whole registers, but to no more than there were."""
    inputs, outputs = (-(-count // WIDTH) * WIDTH for count in _channels(layer))
    return max(layer.inputs, min(inputs, most.inputs)), max(layer.outputs, min(outputs, most.outputs))
