"""What `L1Penalty` adds to a training step of torchvision's ResNet-50: steps with and without it in turn, medians.

python benchmarks/l1_overhead.py
python benchmarks/l1_overhead.py --device cuda --batch 64 --image-size 224 --steps 50 --json l1_overhead.json
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measuring import in_turn, interval_of_median, write_record
from torch import nn
from torchvision.models import resnet50

from otprune.sparsity import L1Penalty

LIMIT = 1.02
WARM_UP_STEPS = 2


def main() -> None:
    """Measures, prints the table, and writes the record where one is asked for."""
    options = parse_options()
    results = measure(options)
    print(table(results))
    write_record("l1_overhead", options, results)


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
    pairs = in_turn(
        lambda: seconds(step, options.device), lambda: seconds(penalized_step, options.device), options.steps
    )
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
