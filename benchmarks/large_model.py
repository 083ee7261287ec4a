"""How much memory a large model needs while it is planned and pruned, saved and loaded, as a multiple of its size.

The model itself counts as 1, and so does all that lies beside it at the worst moment. Each measurement has a process of
its own, and what that had in memory before the model was built is taken off; before, a small model goes the same way,
so that what torch and otprune load when first used is there already.

python benchmarks/large_model.py --json results/large_model.json
"""

import argparse
import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from measuring import write_record
from measuring.memory import in_a_fresh_process, most_resident_bytes, resident_bytes
from torch import Tensor, nn

import otprune as ot
from otprune.tables import table

WIDTH, BLOCKS = 1024, 16
SHARES = (0.02, 0.5, 0.9)  # of the channels that go
MOST = 2.2
SMALL = (16, 1)
HEADER = ("what", "channels that go", "peak, times the model", "seconds")

Step = Callable[[nn.Module, Path], object]


class Block(nn.Module):
    """Two convolutions with batch norms beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.bn1(self.conv1(images)).relu()
        total: Tensor = images + self.bn2(self.conv2(inner))
        return total.relu()


class WideNet(nn.Module):
    """As wide at its end as at its start, so that its size is that of its blocks."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(self.bn(self.stem(images)).relu())
        scores: Tensor = self.head(features.mean((2, 3)))
        return scores


def main() -> None:
    """Measures, prints the table, and writes the record where one is asked for."""
    options = parse_options()
    found = measured(options.shares, options.width, options.blocks, options.seed)
    print(table(HEADER, [row(one) for one in found]))
    write_record("large_model", options, {"most": MOST, "measured": found})


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=WIDTH, help="channels of every layer")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="shares of the channels to take out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser.parse_args()


def measured(shares: Sequence[float], width: int, blocks: int, seed: int) -> list[dict[str, Any]]:
    """What pruning takes at each share, and saving and loading the whole model."""
    steps: list[tuple[str, float | None]] = [("plan and prune", share) for share in shares]
    steps += [("save", None), ("load", None)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        return [in_a_fresh_process(measure, what, share, width, blocks, seed, file) for what, share in steps]


def measure(what: str, share: float | None, width: int, blocks: int, seed: int, file: Path) -> dict[str, Any]:
    """What one step takes in this process, which must be a fresh one; to load, the file must have been saved."""
    _warm_up(seed)
    before = resident_bytes()
    model = made(width, blocks, seed)
    start = time.perf_counter()
    result = _step(what, share)(model, file)  # held, as a user would
    seconds, most = time.perf_counter() - start, most_resident_bytes() - before
    size = _bytes_of(model)
    return {
        "what": what,
        "share_pruned": share,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "bytes_of_model": size,
        "bytes_of_result": _bytes_of(result) if isinstance(result, nn.Module) else None,
        "bytes_at_most": most,
        "times_the_model": most / size,
        "seconds": seconds,
    }


def made(width: int, blocks: int, seed: int) -> WideNet:
    """A model whose layers agree on how much each channel matters, or hardly one of those that sums tie could go."""
    torch.manual_seed(seed)
    model, matters = WideNet(width, blocks), 0.1 + torch.rand(width)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.copy_(matters)
    return model


def _step(what: str, share: float | None) -> Step:
    steps: dict[str, Step] = {"save": ot.save, "load": ot.load}
    return steps[what] if share is None else functools.partial(_pruned, share)


def _pruned(share: float, model: nn.Module, file: Path) -> nn.Module:
    return ot.prune(model, ot.plan(model, torch.zeros(1, 3, 8, 8), ot.GlobalRatio(share)))


def _warm_up(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for what, share in (("plan and prune", 0.5), ("save", None), ("load", None)):
            _step(what, share)(made(*SMALL, seed), Path(folder, "small.safetensors"))


def _bytes_of(model: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in model.state_dict().values())


def row(one: dict[str, Any]) -> tuple[object, ...]:
    """One measurement's line."""
    share = "" if one["share_pruned"] is None else f"{one['share_pruned']:.0%}"
    return one["what"], share, f"{one['times_the_model']:.2f}", f"{one['seconds']:.1f}"


if __name__ == "__main__":
    main()
