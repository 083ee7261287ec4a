"""Runs to report on, as their folders and records have them, with γ that are drawn: nothing is trained."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import otprune as ot
from otprune import models
from otprune.models.building import build_model
from otprune.report.html.content import content
from otprune.report.html.networks import network
from otprune.report.html.page import write_page
from otprune.report.html.subjects import subjects
from otprune.thresholds import Rule

RESULTS = Path(__file__).parent.parent / "results"
VGG = RESULTS / "cifar10/vgg14/best-target0.31-seed0.json"
EPOCHS = [
    {"epoch": n, "rate": 0.1, "lam": 1e-4, "loss": 2 / n, "accuracy": 1 - 0.5 / n, "flops": None} for n in (1, 2, 3)
]
# What stands in names that come from outside: none of it may become a part of the page.
HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"


def with_drawn_gammas(model: nn.Module, seed: int = 0, whole: float = 0.2) -> nn.Module:
    """Its γ spread over six decades, and in some batch norms all of them too small to matter."""
    draw = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            exponents = 6 * torch.rand(len(module.weight), generator=draw) - 6
            small = 1e-6 if torch.rand((), generator=draw) < whole else 1.0
            module.weight.data = small * 10**exponents * torch.randn(len(module.weight), generator=draw).sign()
    return model


def gammas_of(model: nn.Module) -> dict[str, list[float]]:
    """By layer, as records have them."""
    norms = {name: module for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}
    return {name: module.weight.tolist() for name, module in norms.items()}


def record(folder: Path, name: str, model: str, **results: Any) -> Path:
    """A record of a network with drawn γ."""
    built = with_drawn_gammas(build_model(model, num_classes=10))
    return write(folder / f"{name}.json", described(model, **{"gammas": gammas_of(built), **results}))


def described(model: str, data: str = "digits", **results: Any) -> dict[str, Any]:
    """What a record says of a run on ten classes; without `gammas` those are not recorded."""
    shape = models.image_shape(model) if model in models.names() else (3, 16, 16)
    fed = {"image_shape": list(shape), "classes": list("0123456789")}
    measured = {"accuracy_sparse": 0.9, "accuracy_recalibrated": 0.89, "training": EPOCHS, **results}
    return {"experiment": {"model": model, "data": data}, "data": fed, "results": measured}


def write(path: Path, content: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def run_folder(folder: Path, classes: list[str] | None = None, shift: float = 0.0) -> Path:
    """The folder of a run of digits_net, with weights, shifted thresholds and latencies.

    It was pruned by OT, or at OT's thresholds shifted so far, as to meet a budget.
    """
    made = described("digits_net")
    pruning = {"pruning": {"flops": 0.5}} if shift else {}
    write(folder / "config.json", made["experiment"] | pruning)
    write(folder / "data.json", made["data"] | ({"classes": classes} if classes else {}))
    model = with_drawn_gammas(models.build("digits_net", num_classes=10), whole=0)
    ot.save(model, folder / "sparse.safetensors")
    rule = ot.Shifted(ot.OptimalThreshold(), shift) if shift else ot.OptimalThreshold()
    write(folder / "results.json", made["results"] | pruned_by(rule, model) | {"accuracy_finetuned": 0.91})
    shifts = [
        {"shift": s, "flops": f, "accuracy_recalibrated": a} for s, f, a in ((-1, 1.0, 0.9), (0, 0.5, 0.9), (1, 0, 0.1))
    ]
    write(folder / "threshold-check/record.json", {"experiment": made["experiment"], "shifts": shifts})
    write(folder / "export.json", {"files": {"export/finetuned.onnx": {"accuracy": 0.905, "format": "onnx"}}})
    timed = {"unpruned": {"p50": 4.0}, str(folder): {"p50": 1.0}, "another": {"p50": 2.0}}
    originals = {
        "unpruned": {"original": None},
        str(folder): {"original": "unpruned"},
        "another": {"original": "unpruned"},
    }
    write(
        folder / "bench.json",
        {"settings": {"device": "cpu", "batch": 1}, "models": originals, "latencies": {"torch": timed}},
    )
    return folder


def pruned_by(rule: Rule, model: nn.Module) -> dict[str, Any]:
    """What a run writes of the plan that a rule makes for digits_net."""
    example = torch.zeros(1, *models.image_shape("digits_net"))
    plan = ot.plan(model, example, rule)
    costs = (("before", ot.cost(model, example)), ("after", ot.cost(ot.prune(model, plan), example)))
    layers = [asdict(layer) | {"kept": len(layer.kept)} for layer in plan.layers]
    totals = {f"cost_{when}": {"flops": cost.flops, "parameters": cost.parameters} for when, cost in costs}
    return {"rule": plan.rule, "layers": layers, **totals}


def page_of(path: Path, *places: Path) -> Path:
    """The report of these runs."""
    write_page(content(subjects(places)), path)
    return path


def answer(place: Path, delta: float) -> tuple[int, int, list[int]]:
    """FLOPs, parameters and channels that the planner comes to for a run at a δ."""
    model, example = network(subjects([place])[0])
    plan = ot.plan(model, example, ot.OptimalThreshold(delta))
    cost = ot.cost(ot.prune(model, plan), example)
    return cost.flops, cost.parameters, [len(layer.kept) for layer in plan.layers]


def small(num_classes: int = 10) -> nn.Module:
    """Two layers in a row."""
    first, second = (nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 8), (8, 16)))
    return nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU(), second, nn.BatchNorm2d(16), nn.Conv2d(16, num_classes, 1))


def depthwise(num_classes: int = 10) -> nn.Module:
    """A network that the page's sums are wrong for."""
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    depth = [nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*first, *depth, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, num_classes))
