"""YOLO by ultralytics: train with the penalty in its own trainer, prune, go on in the same trainer, export.

python examples/with_ultralytics.py FOLDER [EPOCHS [NETWORK]]    FOLDER gets a made dataset, and what trainings write
"""

import sys
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from ultralytics import YOLO
from ultralytics.models.yolo import detect, segment
from ultralytics.nn.modules import C2f

import otprune as ot

NETWORK, SIZE = sys.argv[3] if len(sys.argv) > 3 else "yolov8n.yaml", 64  # or yolo11n.yaml, yolov8n-seg.yaml, ...


def made_dataset(folder: Path) -> Path:
    """A few images with a bright square each, in the layout that ultralytics reads."""
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for index, left in enumerate(range(4, 36, 4)):
        image = Image.new("RGB", (SIZE, SIZE))
        ImageDraw.Draw(image).rectangle((left, 20, left + 20, 40), fill="white")
        image.save(folder / "images" / f"{index}.png")
        outline = (left, 20, left + 20, 20, left + 20, 40, left, 40)  # which does for boxes as well
        (folder / "labels" / f"{index}.txt").write_text(" ".join(["0", *(str(place / SIZE) for place in outline)]))
    (description := folder / "data.yaml").write_text(f"path: {folder}\ntrain: images\nval: images\nnames: [square]\n")
    return description


def trained(folder: Path, epochs: int, lam: float, model: torch.nn.Module | None = None) -> detect.DetectionTrainer:
    """The trainer of ultralytics after it trained a new network, or a model that is there already."""
    settings = {"data": made_dataset(folder / "data"), "imgsz": SIZE, "epochs": epochs, "batch": 4, "nbs": 4}
    settings |= {"optimizer": "SGD", "warmup_epochs": 0, "workers": 0, "device": "cpu", "amp": False, "plots": False}
    settings |= {"model": NETWORK, "pretrained": False, "project": folder, "name": f"lam{lam:g}"}
    trainer = (segment.SegmentationTrainer if "-seg" in NETWORK else detect.DetectionTrainer)(overrides=settings)
    trainer.model = model or NETWORK  # a model is taken as it is; YOLO(...).train would build one from its description
    trainer.add_callback("on_train_start", lambda t: ot.L1Penalty(t.model, lam).attach(t.optimizer))
    trainer.train()
    return trainer


def main(folder: Path, epochs: int) -> None:
    """Train, prune, train again, export; layers that could not be fused with their batch norms then are left alone."""
    model, example = trained(folder, epochs, lam=1e-3).ema.ema, torch.zeros(1, 3, SIZE, SIZE)
    plan = ot.plan(model, example, rule := ot.GlobalRatio(0.5))  # after a full training: ot.OptimalThreshold()
    small = ot.prune(model, ot.plan(model, example, rule, ignore=plan.selections)).requires_grad_()  # an average is not
    for block in (module for module in small.modules() if isinstance(module, C2f)):
        block.c = block.cv1.conv.out_channels // 2  # a note that forward does not read and the exporter does
    finished = YOLO(trained(folder, epochs, lam=0, model=small).best)
    print(f"parameters: {ot.cost(model, example).parameters:,} → {ot.cost(finished.model, example).parameters:,}")
    print("exported:", finished.export(format="onnx", imgsz=SIZE, simplify=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
