"""How many images a second a core reads, crops and mirrors for the ILSVRC recipe, and where its time goes.

The images are JPEGs of ILSVRC-2012's usual size, made up in a temporary folder, and are read as in training: by worker
processes, with the recipe's augmentation. Measurements with different numbers of workers take turns, and the best of
each counts: whatever else the machine does only makes one slower. Where the time goes is told in seconds of a core.

python benchmarks/ilsvrc_input.py --json results/ilsvrc-input.json
"""

import argparse
import itertools
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from measuring import write_record
from PIL import Image

from otprune.training.data.folder import ImageFolderDataset

SIZE, QUALITY, CLASSES = (500, 375), 90, 4
GRAIN = 21.0  # the deviation of noise that makes an image weigh about 110 KB, as ILSVRC-2012's do on average
HOW = (
    "The best of repeats that took turns. images_per_second is by the clock, while other programs had the cores too; "
    "images_per_core_second is by the seconds that cores computed for this, workers and main process. Milliseconds of "
    "a core are those of one process without workers. cores_per_gpu goes by the lowest images_per_core_second."
)
Key = TypeVar("Key", bound=Hashable)
STEP_RESULT = "results/ilsvrc-step.json"  # from where the repository is


def main() -> None:
    """Measures, prints the tables, and writes the record where one is asked for."""
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), options.images, options.seed)
        results = measure(Path(folder), options)
    print(told(results))
    write_record("ilsvrc_input", options, results)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--batch", type=int, default=25, help="smaller than the recipe's, as the images are fewer")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--step", default=STEP_RESULT, help="what benchmarks/ilsvrc_step.py wrote on a GPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser.parse_args(arguments)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Images a second by number of workers, the time of an image by what it goes to, and the cores that a GPU needs."""
    files = sorted(folder.glob("train/*/*.jpg"))
    parts, workers = by_part(folder, files, options), by_workers(folder, options)
    of_a_core = min(one["images_per_core_second"] for one in workers)
    return {
        "bytes_per_image": sum(file.stat().st_size for file in files) / len(files),
        "by_workers": workers,
        "how": HOW,
        "ms_of_a_core_per_image": parts,
        "cores_per_gpu": cores_per_gpu(Path(options.step), of_a_core),
    }


def by_workers(folder: Path, options: argparse.Namespace) -> list[dict[str, float]]:
    """For each number of workers, the most images a second, and a second that a core computed."""
    epochs = {workers: epochs_of(folder, workers, options) for workers in options.workers}
    for start_workers in epochs.values():
        start_workers()
    clocks = {"images_per_second": time.perf_counter, "images_per_core_second": core_seconds}
    timed = {(workers, name): _timed(epochs[workers], clock) for workers in epochs for name, clock in clocks.items()}
    least = _in_turn(timed, options)
    return [{"workers": one} | {name: options.images / least[one, name] for name in clocks} for one in epochs]


def by_part(folder: Path, files: Sequence[Path], options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of a core for one image, in all and of that to decode it and to crop and resize it."""
    whole = epochs_of(folder, 0, options)
    source: Any = ImageFolderDataset(folder, workers=0).train.source
    crop, images = source.transform.transforms[0], [_decoded(file) for file in files]
    parts = {
        "whole": whole,
        "decode": lambda: [_decoded(file) for file in files],
        "crop and resize": lambda: [crop(image) for image in images],
    }
    seconds = _in_turn({part: _timed(do, time.process_time) for part, do in parts.items()}, options)
    ms = {part: 1e3 * least / len(files) for part, least in seconds.items()}
    return ms | {"the rest": ms["whole"] - ms["decode"] - ms["crop and resize"]}


def epochs_of(folder: Path, workers: int, options: argparse.Namespace) -> Callable[[], object]:
    """Reads all images, as another epoch each time."""
    batches = ImageFolderDataset(folder, workers=workers).batches(options.batch, options.seed, augment=True)
    numbers = itertools.count()

    def epoch() -> None:
        for _ in batches.epoch(next(numbers)):
            pass

    return epoch


def core_seconds() -> float:
    """What this process and its workers have computed so far."""
    ticks = sum(_ticks(child.pid) for child in multiprocessing.active_children())
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def cores_per_gpu(step: Path, per_core: float) -> dict[str, float] | None:
    """How many cores keep one GPU busy with each network, where that was measured on one."""
    if not step.exists():
        return None
    found = json.loads(step.read_text(encoding="utf-8"))
    if found["configuration"]["device"] != "cuda":
        return None
    return {net: result["images_per_second"] / per_core for net, result in found["results"].items()}


def write_images(folder: Path, count: int, seed: int) -> None:
    """Images with texture, coarse to fine, as JPEGs."""
    draw = np.random.default_rng(seed)
    for index in range(count):
        for part in ("train", "val") if index < CLASSES else ("train",):
            path = folder / part / f"class{index % CLASSES}" / f"{index}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            textured(draw).save(path, quality=QUALITY)


def textured(draw: np.random.Generator) -> Image.Image:
    """Noise in patches of many sizes, and a grain over it."""
    width, height = SIZE
    total = np.full((height, width, 3), 128.0)
    for patches in (4, 16, 64):
        coarse = draw.integers(0, 256, (patches, patches, 3), dtype=np.uint8)
        total += (np.asarray(Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC)) - 128.0) / 3
    total += draw.normal(0, GRAIN, total.shape)
    return Image.fromarray(total.clip(0, 255).astype(np.uint8))


def _ticks(process: int | None) -> int:
    after_its_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(after_its_name[11]) + int(after_its_name[12])  # in its own code, and in the system's


def _decoded(file: Path) -> Image.Image:
    with Image.open(file) as opened:
        return opened.convert("RGB")


def _timed(do: Callable[[], object], clock: Callable[[], float]) -> Callable[[], float]:
    def seconds() -> float:
        start = clock()
        do()
        return clock() - start

    return seconds


def _in_turn(timed: Mapping[Key, Callable[[], float]], options: argparse.Namespace) -> dict[Key, float]:
    """The least of each, all measured in turn."""
    rounds = [{key: seconds() for key, seconds in timed.items()} for _ in range(options.repeats)]
    return {key: min(one[key] for one in rounds) for key in timed}


def told(results: dict[str, Any]) -> str:
    """The results as text."""
    lines = [f"{results['bytes_per_image'] / 1e3:.0f} KB an image"]
    lines += [
        f"{one['workers']:.0f} worker(s): {one['images_per_second']:.0f} images/s by the clock, "
        f"{one['images_per_core_second']:.0f} a second of a core"
        for one in results["by_workers"]
    ]
    lines += [f"{part}: {ms:.2f} ms of a core an image" for part, ms in results["ms_of_a_core_per_image"].items()]
    lines += [f"{net}: {cores:.0f} cores feed a GPU" for net, cores in (results["cores_per_gpu"] or {}).items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
