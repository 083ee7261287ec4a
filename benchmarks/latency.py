"""Latency of pruned networks beside their originals, in several runtimes: the paper's edge experiment.

VGG-14 is pruned as the recorded runs under results/ were, at every λ. DenseNet-121 and MobileNetV2 have no such record:
their scaling factors are drawn at random, and half of all channels go. Weights are fresh everywhere: latency does not
depend on them. Where a network gains less time than FLOPs, the record says which layers lag, and why.

Nothing else may run meanwhile:

python benchmarks/latency.py --folder results
python benchmarks/latency.py --models vgg14 --runtimes onnxruntime --iters 1000
python benchmarks/latency.py --device cuda --batch 256 --runtimes torch torch-compile
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring import write_record
from measuring.layer_times import Network, Way, breakdown, explained, lagging, looked_at
from measuring.restored import restored
from torch import nn

import otprune as ot
from otprune import models
from otprune.deploy.bench import Settings, bench
from otprune.deploy.runtimes import DEVICES, RUNTIMES, Runtime
from otprune.deploy.subjects import Subject
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import sweep
from otprune.models.building import build_model
from otprune.tables import table

RESULTS = Path(__file__).parents[1] / "results"
RECORDED = (*(Path(one.place).name for one in sweep("cifar10", "vgg14")), "best-target0.31-seed0")
ROUNDED, WIDTH = "lam2e-4-seed0", 16
RATIO = 0.5
ORIGINAL = "unpruned"
HEADER = ("model", "runtime", "network", "mean ms", "sd", "p50", "p99", "times faster", "by FLOPs")

Networks = tuple[list[Subject], dict[str, str]]
"""The original and what it was pruned to, and how."""


def main() -> None:
    """Measures, prints a table for each model, and writes a record of each where that is asked for."""
    options = parse_options()
    for name in options.models:
        torch.manual_seed(options.seed)
        networks, how = MODELS[name]()
        results = measured(networks, options) | {"pruned": how}
        print(as_table(name, results))
        write_record("latency", record_options(name, options), results)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    runtimes = ["torch", "onnxruntime", "openvino"]
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=runtimes, metavar="RUNTIME")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--batch", type=int, default=1, help="images at a time")
    parser.add_argument("--iters", type=int, default=10_000, help="runs of each network in each runtime")
    parser.add_argument("--layer-iters", type=int, default=300, help="runs by which layers are compared")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to write the records, a file for each model")
    return parser.parse_args()


def record_options(name: str, options: argparse.Namespace) -> argparse.Namespace:
    """The settings of one record, and its file."""
    where = "" if options.device == "cpu" else f"-{options.device}"
    batch = "" if options.batch == 1 else f"-batch{options.batch}"
    kept = {key: value for key, value in vars(options).items() if key not in ("models", "folder")}
    file = options.folder and options.folder / f"latency-{name}{where}{batch}.json"
    return argparse.Namespace(**kept, model=name, json=file)


def vgg14() -> Networks:
    """For CIFAR-10, and pruned as recorded runs were; one of them also with its channels rounded up."""
    everything, shape = Records(RESULTS).all, models.image_shape("vgg14")
    records = {name: everything[f"cifar10/vgg14/{name}"] for name in RECORDED}
    pruned = {name: restored(record).eval() for name, record in records.items()}
    how = {name: f"as in results/{record.place}.json" for name, record in records.items()}
    rounded = f"{ROUNDED}-round{WIDTH}"
    pruned[rounded] = restored(records[ROUNDED], WIDTH).eval()
    how[rounded] = f"{how[ROUNDED]}, channels rounded up to multiples of {WIDTH}"
    subjects = [Subject(name, model, shape, ORIGINAL) for name, model in pruned.items()]
    return [Subject(ORIGINAL, models.vgg14().eval(), shape), *subjects], how


def densenet121() -> Networks:
    """For CIFAR-10."""
    return half_of(models.densenet121(), models.image_shape("densenet121"))


def mobilenet_v2() -> Networks:
    """For ILSVRC."""
    return half_of(build_model("torchvision:mobilenet_v2"), (3, 224, 224))


def half_of(model: nn.Module, shape: tuple[int, ...]) -> Networks:
    """A network whose scaling factors are drawn, and what is left of it without the lower half of them."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
    plan = ot.plan(model, torch.zeros(1, *shape), ot.GlobalRatio(RATIO))
    small = Subject("half", ot.prune(model, plan).eval(), shape, ORIGINAL)
    how = (
        f"not trained: scaling factors drawn evenly from 0 to 1, each layer's by themselves, and {RATIO:.0%} of all "
        "channels found negligible by one global threshold"
    )
    return [Subject(ORIGINAL, model.eval(), shape), small], {small.name: how}


MODELS: dict[str, Callable[[], Networks]] = {
    "vgg14": vgg14,
    "densenet121": densenet121,
    "mobilenet_v2": mobilenet_v2,
}


def measured(networks: list[Subject], options: argparse.Namespace) -> dict[str, Any]:
    """Latencies of whole networks, and of their layers where the runtime does not join them."""
    runtimes = tuple(options.runtimes)
    settings = Settings(runtimes, options.device, options.batch, options.iters, options.threads)
    found = bench(networks, settings)
    told = [runtime for runtime in runtimes if runtime != "torch-compile"]
    found["layers"] = {runtime: by_layers(runtime, networks, found, options) for runtime in told}
    return found


def by_layers(
    runtime: Runtime, networks: list[Subject], found: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """What became of each layer, and where time was gained less than FLOPs, which layers lag and why."""
    original, *others = (profile(subject, runtime, options) for subject in networks)
    return {
        subject.name: compared(subject.name, original, other, runtime, found, options)
        for subject, other in zip(networks[1:], others, strict=True)
    }


def compared(
    name: str, original: Network, other: Network, runtime: Runtime, found: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """The layers of one network beside those of the original."""
    result = breakdown(original, other)
    if found["latencies"][runtime][name]["times_faster_p50"] >= by_flops(found, name):
        return result
    why = {layer: explained(layer, original, other, way(runtime, options)) for layer in lagging(result)}
    return result | {"why": why}


def profile(subject: Subject, runtime: Runtime, options: argparse.Namespace) -> Network:
    """A network, layer by layer."""
    assert isinstance(subject.source, nn.Module)
    images = torch.randn(options.batch, *subject.image_shape)
    return looked_at(subject.source, images, way(runtime, options))


def way(runtime: Runtime, options: argparse.Namespace) -> Way:
    """How layers are measured in a runtime."""
    return Way(runtime, options.threads, options.layer_iters, options.device)


def by_flops(found: dict[str, Any], name: str) -> float:
    """How many times as fast a network would be if time went by FLOPs."""
    ratio: float = found["models"][ORIGINAL]["flops"] / found["models"][name]["flops"]
    return ratio


def as_table(model: str, found: dict[str, Any]) -> str:
    """The latencies of one model's networks, and below them the layers that lag."""
    rows = [
        row(model, runtime, name, own, found)
        for runtime, those in found["latencies"].items()
        for name, own in those.items()
    ]
    lines = [
        f"{runtime} {name}: {layer}: {why}"
        for runtime, those in found["layers"].items()
        for name, own in those.items()
        for layer, why in own.get("why", {}).items()
    ]
    return "\n".join([table(HEADER, rows), *lines])


def row(model: str, runtime: str, name: str, own: dict[str, Any], found: dict[str, Any]) -> tuple[object, ...]:
    """One network's line."""
    times = f"{own['times_faster_p50']:.2f}×" if "times_faster_p50" in own else ""
    numbers = (f"{own[key]:.3f}" for key in ("mean", "sd", "p50", "p99"))
    return model, runtime, name, *numbers, times, f"{by_flops(found, name):.2f}×"


if __name__ == "__main__":
    main()
