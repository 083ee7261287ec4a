"""What `L1Penalty` adds to a training step of torchvision's ResNet-50: steps with and without it in turn, medians.

python benchmarks/l1_overhead.py
python benchmarks/l1_overhead.py --device cuda --batch 64 --image-size 224 --steps 50 --json l1_overhead.json
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torchvision.models import resnet50

from otprune.provenance import provenance
from otprune.sparsity import L1Penalty

LIMIT = 1.02
WARM_UP_STEPS = 2


def main() -> None:
    """Measures, prints the table, and writes the record where one is asked for."""
    options = parse_options()
    results = measure(options)
    print(table(results))
    if options.json:
        record = {
            "benchmark": "l1_overhead",
            "configuration": {name: value for name, value in vars(options).items() if name not in ("json", "seed")},
            "seed": options.seed,
            "results": results,
            "provenance": provenance(),
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40, help="steps of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times plain and penalized steps in turn, and beside them the hook alone."""
    torch.manual_seed(options.seed)
    model = resnet50().to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    penalty = L1Penalty(model, lam=1e-4)
    images = torch.randn(options.batch, 3, options.image_size, options.image_size, device=options.device)
    labels = torch.randint(1000, (options.batch,), device=options.device)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(images), labels))
        optimizer.step()

    def penalized_step() -> None:
        penalty.attach(optimizer)
        step()
        penalty.detach()

    for _ in range(WARM_UP_STEPS):
        step()
        penalized_step()
    pairs = [timed_pair(step, penalized_step, options.device, plain_first=i % 2 == 0) for i in range(options.steps)]
    hooks = [seconds(lambda: penalty._penalize(optimizer), options.device) for _ in range(options.steps)]
    ratios = [penalized / plain for plain, penalized in pairs]
    return {
        "plain_step_s": median(plain for plain, _ in pairs),
        "penalized_step_s": median(penalized for _, penalized in pairs),
        "ratio": median(ratios),
        "ratio_interval": interval_of_median(ratios),
        "limit": LIMIT,
        "hook_alone_s": median(hooks),
        "pairs_s": pairs,
    }


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """Bounds of the median at about 95 %, by rank, so that a noisy machine shows as a wide interval."""
    ordered, half_width = sorted(values), 0.98 * math.sqrt(len(values))
    lowest = max(0, math.floor(len(values) / 2 - half_width))
    return ordered[lowest], ordered[-1 - lowest]


def timed_pair(
    plain: Callable[[], None], penalized: Callable[[], None], device: str, plain_first: bool
) -> tuple[float, float]:
    """Seconds of one step of each kind; the order alternates, so that neither gains from coming second."""
    if plain_first:
        return seconds(plain, device), seconds(penalized, device)
    penalized_seconds = seconds(penalized, device)
    return seconds(plain, device), penalized_seconds


def seconds(action: Callable[[], None], device: str) -> float:
    """Wall-clock seconds until the device is done."""
    synchronize(device)
    start = time.perf_counter()
    action()
    synchronize(device)
    return time.perf_counter() - start


def synchronize(device: str) -> None:
    """Waits for the GPU, where there is one to wait for."""
    if device == "cuda":
        torch.cuda.synchronize()


def table(results: dict[str, Any]) -> str:
    """The results, one line each."""
    lowest, highest = results["ratio_interval"]
    return "\n".join(
        (
            f"step without penalty  {1e3 * results['plain_step_s']:9.2f} ms",
            f"step with penalty     {1e3 * results['penalized_step_s']:9.2f} ms",
            f"ratio, step by step   {results['ratio']:9.4f}     95 % interval {lowest:.4f} to {highest:.4f}",
            f"limit                 {results['limit']:9.4f}     {verdict(lowest, highest)}",
            f"the hook alone        {1e3 * results['hook_alone_s']:9.2f} ms",
        )
    )


def verdict(lowest: float, highest: float) -> str:
    """Whether the interval of the ratio lies on one side of the limit."""
    if highest < LIMIT:
        return "kept"
    return "EXCEEDED" if lowest > LIMIT else "not decided: take more steps or a quieter machine"


if __name__ == "__main__":
    main()
