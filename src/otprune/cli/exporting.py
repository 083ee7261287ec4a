"""The verb that writes a run's model for another runtime."""

from pathlib import Path
from typing import Annotated, Any

import typer

from otprune.cli.app import app
from otprune.cli.running import console, errors_in_one_line, opened, require_begun, say
from otprune.deploy import export as exporting
from otprune.deploy.formats import FORMATS, chosen_format
from otprune.deploy.quantizing import CALIBRATION_IMAGES
from otprune.experiments.passed_over import PassedOver, require_flags_of_use
from otprune.experiments.settings import resolved

IMAGES = "--calibration-images"
WITHOUT_INT8 = PassedOver(IMAGES, "without eight bits", "int8")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    to: Annotated[str, typer.Option(help="The format to write.", metavar="|".join(FORMATS))],
    int8: Annotated[
        bool, typer.Option("--int8", help="In eight bits, calibrated on training images; for onnx and openvino.")
    ] = False,
    calibration_images: Annotated[
        int | None,
        typer.Option(min=1, help="Training images to calibrate eight bits on.", show_default=str(CALIBRATION_IMAGES)),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            help="The model of that stage.",
            metavar="|".join(exporting.STAGES),
            show_default="fine-tuned, or else from scratch, or else pruned",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="export/STAGE.… in the run's folder")
    ] = None,
) -> None:
    """Write a run's pruned model for another runtime, check it there, and measure its accuracy; adds to export.json.

    For example: otprune export runs/vgg14 --to onnx --int8
    """
    with errors_in_one_line():
        chosen_format(to, int8)
        require_flags_of_use({IMAGES: calibration_images}, [] if int8 else [WITHOUT_INT8])
        require_begun(run)
        exporting.chosen_stage(run, stage)
        screen = console()
        (pipeline,) = opened({run: resolved({}, None, run)}, "cpu", screen)
        request = exporting.Request(to, int8, stage, out, calibration_images or CALIBRATION_IMAGES)
        for line in _told(exporting.export(pipeline, request)):
            say(screen, line)


def _told(entry: dict[str, Any]) -> list[str]:
    lines = [
        f"{entry['file']}: {_size(entry)}; how to feed it is inside",
        f"{entry['accuracy']:.2%} of {entry['test_images']} test images in {entry['runtime']}{_beside(entry)}",
    ]
    if "tolerance" in entry:
        lines.append(f"its outputs are torch's, within {entry['difference']:.1e} of the largest")
    return lines + [f"warning: {remark}" for remark in entry["remarks"]]


def _beside(entry: dict[str, Any]) -> str:
    before, in_the_run = entry.get("before_quantization"), entry["accuracy_of_run"]
    if before is not None:
        return f", {before['accuracy']:.2%} before quantization, in {_size(before)}"
    return "" if in_the_run is None else f", {in_the_run:.2%} in the run"


def _size(entry: dict[str, Any]) -> str:
    return f"{entry['bytes'] / 1e6:.2f} MB"
