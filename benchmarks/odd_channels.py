"""Pruned networks in training on a GPU, which is slow with odd numbers of channels: convolutions widened, and not.

Networks are pruned as the recorded runs under results/ were. Each is trained for epochs of made-up images, in turn as
otprune trains it and with its convolutions left as narrow as they are, beside the unpruned network.

python benchmarks/odd_channels.py --json results/odd_channels.json
"""

import argparse
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from measuring import interval_of_median, write_record
from measuring.made_runs import made_images, made_model, timed_step
from measuring.restored import restored

from otprune.experiments.reproduce.records import Record, Records
from otprune.training.data.images import Dataset

RESULTS = Path(__file__).parents[1] / "results"
RECORDED = ("cifar10/vgg14/lam1e-4-seed0", "cifar10/vgg14/lam2e-4-seed0")


def main() -> None:
    """Measures, prints a line for each network, and writes the record where one is asked for."""
    options = parse_options()
    if not torch.cuda.is_available():
        print("there is no GPU here, and nothing is widened elsewhere: nothing to measure")
        return
    everything, data, results = Records(RESULTS).all, made_images(options), {}
    if unknown := [place for place in options.records if place not in everything]:
        raise SystemExit(f"{unknown[0]} is no record below {RESULTS}: name some as {RECORDED[0]}")
    for place in options.records:
        results[place] = measure(everything[place], data, options)
        print(line(place, results[place]), flush=True)
    write_record("odd_channels", options, results)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", nargs="+", default=list(RECORDED), metavar="RECORD", help=f"as {RECORDED[0]}")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=12_800, help="of one epoch")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser.parse_args(namespace=argparse.Namespace(device="cuda"))


def measure(record: Record, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a step of the network as it is trained, not widened, and unpruned, in turn."""
    torch.manual_seed(options.seed)
    with mock.patch("otprune.training.step.widen", return_value={}):
        narrow = timed_step(restored(record), data, options)
    wide = timed_step(restored(record), data, options)
    unpruned = timed_step(made_model(record.experiment.model, options), data, options)
    rounds = [(narrow(), wide(), unpruned()) for _ in range(options.repeats)]
    ratios = [before / after for before, after, _ in rounds]
    medians = dict(zip(("narrow_ms", "wide_ms", "unpruned_ms"), map(median, zip(*rounds, strict=True)), strict=True))
    return {**medians, "ratio": median(ratios), "ratio_interval": interval_of_median(ratios), "rounds_ms": rounds}


def line(place: str, found: dict[str, Any]) -> str:
    """The results of one network."""
    lowest, highest = found["ratio_interval"]
    return (
        f"{place}: {found['wide_ms']:.3f} ms a step, narrow {found['narrow_ms']:.3f} ms, {found['ratio']:.2f} times as "
        f"long ({lowest:.2f} to {highest:.2f}); unpruned {found['unpruned_ms']:.3f} ms"
    )


if __name__ == "__main__":
    main()
