"""The verb that shows what can be pruned of a model."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor, nn

from otprune import models
from otprune.checkpoint import load
from otprune.cli.app import app
from otprune.cli.running import errors_in_one_line
from otprune.cli.targets import require_target
from otprune.errors import ExampleError
from otprune.files import write_atomically
from otprune.inspection import Inspection
from otprune.inspection import inspect as inspect_model
from otprune.location import user_location
from otprune.models.building import build_model
from otprune.thresholds import OptimalThreshold

Shape = tuple[int, ...]
USUAL: Shape = (3, 224, 224)


@app.command()
def inspect(
    model: Annotated[
        str,
        typer.Argument(
            help="torchvision:name, timm:name, a model of otprune such as vgg14, or your own: module:function or "
            "file.py:function.",
            show_default=False,
        ),
    ],
    input: Annotated[
        str | None,
        typer.Option(
            help="Shape of an image, such as 3x224x224; of several inputs separated by commas.",
            show_default="what the model says it takes, or 3x224x224",
        ),
    ] = None,
    num_classes: Annotated[
        int | None, typer.Option(min=1, help="Build the model for so many classes.", show_default="its own")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Weights to load, safetensors or a state dict: shows also what OT would drop."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write everything to this file.")] = None,
) -> None:
    """Show which batch-norm channels of a model can go, what they are tied to, and what must stay and why.

    For example: otprune inspect torchvision:resnet50
    """
    with errors_in_one_line():
        built = build_model(model, num_classes)
        if checkpoint is not None:
            built = load(built, checkpoint)
        if json is not None:
            require_target(json, ".json")
        shapes = _parsed(input) if input is not None else [_usual_shape(model, built)]
        found = _inspected(model, built, shapes, OptimalThreshold() if checkpoint is not None else None)
        if json is not None:
            write_atomically(json, found.to_json().encode())
    typer.echo(str(found))


def _parsed(text: str) -> list[Shape]:
    try:
        shapes = [tuple(int(size) for size in part.lower().split("x")) for part in text.split(",")]
    except ValueError:
        shapes = []
    if not shapes or any(size < 1 for shape in shapes for size in shape):
        raise typer.BadParameter(f"{text!r} is no shape: write it as 3x224x224", param_hint="--input")
    return shapes


def _usual_shape(name: str, model: nn.Module) -> Shape:
    """The shape of the images that a model is for, where it says so."""
    if name in models.names():
        return models.image_shape(name)
    configuration = getattr(model, "pretrained_cfg", None) or {}
    return tuple(configuration.get("input_size", USUAL))


def _inspected(name: str, model: nn.Module, shapes: list[Shape], rule: OptimalThreshold | None) -> Inspection:
    example: tuple[Tensor, ...] = tuple(torch.zeros(1, *shape) for shape in shapes)
    try:
        return inspect_model(model, example, rule)
    except ExampleError as error:
        cause = error.__cause__ or error
        tried = ",".join("x".join(map(str, shape)) for shape in shapes)
        raise ExampleError(
            f"{name} does not run on --input {tried}: {cause} ({user_location(cause)}). Say what it takes with "
            "--input; for a model that takes other things than images, call otprune.inspection.inspect(model, example)."
        ) from error
