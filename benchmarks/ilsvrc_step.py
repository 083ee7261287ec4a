"""Training steps of the ILSVRC recipe's networks on made images: images a second, and the share of the GPU's peak.

The images lie on the device, so this is the step alone; benchmarks/ilsvrc_input.py measures what feeds it. What 90
epochs would take on eight GPUs is arithmetic: it takes them to be eight times as fast as one.

python benchmarks/ilsvrc_step.py --device cuda --json results/ilsvrc-step.json
python benchmarks/ilsvrc_step.py --repeats 1
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measuring import interval_of_median, write_record
from torch import nn

import otprune as ot
from otprune import models
from otprune.experiments import paper
from otprune.experiments.settings import resolved
from otprune.tables import table
from otprune.training.data.images import Dataset, Images
from otprune.training.run import Run, Training

NETS = tuple(paper.table("ilsvrc"))
CLASSES, SIDE, IMAGES = 1000, 224, 1_281_167  # of ILSVRC-2012
GPUS = 8
PEAK_BF16 = 989e12
PEAK_IS_OF = "H200 SXM, bf16, dense: half of the 1,979 TFLOP/s with sparsity in NVIDIA's data sheet"
FLOPS_OF_A_MAC, PASSES = 2, 3  # backward is two passes: gradients of inputs and gradients of weights
WARM_UP_EPOCHS = 2
HEADER = ("network", "images/s", "95 % interval", "ms a step", "of the bf16 peak", "90 epochs on 8 such GPUs")


def main() -> None:
    """Measures, writes the record after each network where one is asked for, and prints the table."""
    options, results = parse_options(), dict[str, Any]()
    for name in options.nets:
        results[name] = measure(name, options)
        write_record("ilsvrc_step", options, results)
    print(table(HEADER, [row(name, found) for name, found in results.items()]))


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--batch", type=int, help="by default that of the recipe, on a CPU a tiny one")
    parser.add_argument("--batches", type=int, help="that lie on the device and are gone through in turn")
    parser.add_argument("--side", type=int, help=f"of the images, by default {SIDE}, on a CPU less")
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--repeats", type=int, default=9, help="how often all batches are gone through")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the record")
    options = parser.parse_args(arguments)
    for name, size in sizes(options.device).items():
        if getattr(options, name) is None:
            setattr(options, name, size)
    return options


def sizes(device: str) -> dict[str, int]:
    """What is measured on a device; on a CPU, just enough to see that the program runs."""
    whole = {"batch": recipe(NETS[0]).batch, "batches": 20, "side": SIDE}
    return whole if device == "cuda" else {"batch": 2, "batches": 2, "side": 64}


def recipe(net: str) -> Training:
    """How the recipe trains a network."""
    return resolved({"model": net, "data": "ILSVRC"}, "ilsvrc").training


def measure(net: str, options: argparse.Namespace) -> dict[str, Any]:
    """Times whole goes through the images on the device."""
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    run = made_run(net, options)
    for _ in range(WARM_UP_EPOCHS):
        epoch_seconds(run)
    seconds = [epoch_seconds(run) for _ in range(options.repeats)]
    speeds = [options.batch * options.batches / each for each in seconds]
    return {
        "images_per_second": median(speeds),
        "images_per_second_interval": interval_of_median(speeds),
        "ms_per_step": 1e3 * options.batch / median(speeds),
        "seconds": seconds,
        "training_flops_per_image": training_flops(net, options),
        "on_a_gpu": of_gpu(net, options, median(speeds)) if options.device == "cuda" else None,
    }


def of_gpu(net: str, options: argparse.Namespace, images_per_second: float) -> dict[str, Any]:
    """What images a second say of a GPU."""
    return {
        "peak_flops_per_second": PEAK_BF16,
        "peak_is_of": PEAK_IS_OF,
        "share_of_peak": training_flops(net, options) * images_per_second / PEAK_BF16,
        "whole_recipe": on_gpus(recipe(net).epochs, images_per_second),
        "most_bytes": torch.cuda.max_memory_allocated(),
    }


def made_run(net: str, options: argparse.Namespace) -> Run:
    """A run of the recipe that never ends. Images are not cropped here: that is what the input pipeline does."""
    torch.manual_seed(options.seed)
    model = models.build(net, num_classes=options.classes).to(options.device)
    training = replace(recipe(net), epochs=10**6, batch=options.batch, augment=False, seed=options.seed)
    return Run(model, made_images(options), training)


def made_images(options: argparse.Namespace) -> Dataset:
    """Noise: what images show takes no time."""
    random = torch.Generator().manual_seed(options.seed)
    count = options.batch * options.batches
    pixels = torch.randint(256, (count, 3, options.side, options.side), dtype=torch.uint8, generator=random)
    images = Images(pixels, torch.randint(options.classes, (count,), generator=random))
    return Dataset.of(images, images[torch.arange(1)], tuple(map(str, range(options.classes))))


def epoch_seconds(run: Run) -> float:
    """Wall-clock seconds of one go through the images, until the device is done."""
    start = time.perf_counter()
    run.begin_epoch()
    while not run.epoch_done:
        run.advance()
    run.end_epoch()  # waits for the device
    return time.perf_counter() - start


def training_flops(net: str, options: argparse.Namespace) -> int:
    """Of one image, forward and backward, by the layers' multiply-adds."""
    with torch.device("meta"):
        model: nn.Module = models.build(net, num_classes=options.classes)
        macs = ot.cost(model, torch.zeros(1, 3, options.side, options.side)).macs
    return PASSES * FLOPS_OF_A_MAC * macs


def on_gpus(epochs: int, images_per_second: float) -> dict[str, Any]:
    """What the recipe takes on ILSVRC-2012, if so many GPUs are so many times as fast as one.

    >>> on_gpus(90, 10_000.0)["hours"]
    0.4
    """
    hours = epochs * IMAGES / (GPUS * images_per_second) / 3600
    return {"assumes": "perfect scaling", "gpus": GPUS, "epochs": epochs, "images": IMAGES, "hours": round(hours, 3)}


def row(net: str, found: dict[str, Any]) -> tuple[object, ...]:
    """One network's line."""
    lowest, highest = found["images_per_second_interval"]
    measured = f"{found['images_per_second']:.1f}", f"{lowest:.1f} to {highest:.1f}", f"{found['ms_per_step']:.1f}"
    gpu = found["on_a_gpu"]
    return net, *measured, *(("", "") if gpu is None else (f"{gpu['share_of_peak']:.1%}", _hours(gpu["whole_recipe"])))


def _hours(whole: dict[str, Any]) -> str:
    return f"{whole['hours']:.2f} h with {whole['assumes']}"


if __name__ == "__main__":
    main()
