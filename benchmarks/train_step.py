"""A training step of otprune against a plain PyTorch loop with a DataLoader: milliseconds a step, in turn, in one run.

Ours is a whole epoch of `otprune.training`, its augmentation included; the plain loop is in measuring/plain_loop.py.
On a GPU also: several runs side by side, and on which kinds of kernels a step spends its time.

python benchmarks/train_step.py --device cuda --json results/train_step.json
python benchmarks/train_step.py --batch 16 --images 64 --steps 4 --workers 1 --json results/train_step_cpu.json
"""

import argparse
import functools
from pathlib import Path
from statistics import median
from typing import Any

from measuring import in_turn, ratio_of, write_record
from measuring.kernels import time_by_kind
from measuring.made_runs import epoch_ms, made_images, made_model, made_run, seconds
from measuring.plain_loop import PlainLoop

from otprune.training.data.images import Dataset

NETS = ("vgg14", "resnet50", "densenet121")
WARM_UP_STEPS = 3


def main() -> None:
    """Measures, prints the table, and writes the record where one is asked for."""
    options = parse_options()
    results = {}
    for name in options.nets:
        results[name] = measure(name, options)
        print(table(name, results[name]), flush=True)
    write_record("train_step", options, results)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=50_000, help="of one epoch")
    parser.add_argument("--steps", type=int, default=100, help="steps of the plain loop each time")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4], help="processes that load for the plain loop")
    parser.add_argument("--together", type=int, nargs="*", default=[4], help="how many runs side by side, on a GPU")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser.parse_args()


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Times ours and the plain loop in turn; on a GPU also several runs side by side, and the kernels of a step."""
    data = made_images(options)
    run = made_run(made_model(name, options), data, options)
    epoch_ms([run])
    results: dict[str, Any] = {"plain": {}}
    for workers in options.workers:
        plain = PlainLoop(made_model(name, options), data.train.pixels, data.train.labels, options.batch, workers)
        plain_ms(plain, WARM_UP_STEPS)
        plain_steps = functools.partial(plain_ms, plain, options.steps)
        results["plain"][str(workers)] = compared(in_turn(plain_steps, lambda: epoch_ms([run]), options.repeats))
    results["ours_ms"] = median(ours for plain in results["plain"].values() for _, ours in plain["pairs_ms"])
    if options.device == "cuda":
        run.begin_epoch()
        run.advance()  # the epoch's images are drawn with its first step
        results["kernels_us"] = time_by_kind(run.advance)
        results["together_ms"] = {str(count): side_by_side(name, data, count, options) for count in options.together}
    return results


def compared(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """The plain loop's time, and how many times ours it is."""
    return {"plain_ms": median(plain for plain, _ in pairs), **ratio_of(pairs)}


def side_by_side(name: str, data: Dataset, count: int, options: argparse.Namespace) -> float:
    """Milliseconds a step and run, several runs taking turns on the device."""
    runs = [made_run(made_model(name, options), data, options) for _ in range(count)]
    epoch_ms(runs)
    return median(epoch_ms(runs) for _ in range(options.repeats)) / count


def plain_ms(plain: PlainLoop, steps: int) -> float:
    """Milliseconds a step."""

    def some_steps() -> None:
        for _ in range(steps):
            plain()

    return 1e3 * seconds(some_steps) / steps


def table(name: str, results: dict[str, Any]) -> str:
    """The results of one network."""
    lines = [f"{name}: {results['ours_ms']:.3f} ms a step"]
    for workers, plain in results["plain"].items():
        lowest, highest = plain["ratio_interval"]
        lines.append(
            f"  plain, {workers} worker(s): {plain['plain_ms']:.2f} ms, {plain['ratio']:.2f} times as long "
            f"({lowest:.2f} to {highest:.2f})"
        )
    for count, spent in results.get("together_ms", {}).items():
        lines.append(f"  {count} side by side: {spent:.3f} ms a step and run")
    for kind, spent in results.get("kernels_us", {}).items():
        lines.append(f"  {spent['us']:8.0f} µs in {spent['kernels']:5.0f} kernels: {kind}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
