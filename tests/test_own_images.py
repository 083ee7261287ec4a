"""One's own model on one's own images, from training to the record."""

from pathlib import Path

import pytest
from PIL import Image

from otprune.experiments.run_facts import configuration
from tests.command_line import results, run_here

NET = """
from torch import nn

def build(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=8), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes),
    )
"""


@pytest.fixture
def own(tmp_path: Path) -> dict[str, object]:
    """A model and images of one's own."""
    (tmp_path / "net.py").write_text(NET)
    for part in ("train", "val"):
        for label, color in (("dark", (20, 20, 30)), ("light", (220, 230, 220))):
            (tmp_path / "photos" / part / label).mkdir(parents=True)
            for index in range(4):
                shade = tuple(channel + index for channel in color)
                Image.new("RGB", (32, 32), shade).save(tmp_path / "photos" / part / label / f"{index}.png")
    return {"model": f"{tmp_path / 'net.py'}:build", "data": tmp_path / "photos", "batch": 2, "device": "cpu"}


def test_ones_own_model_on_ones_own_images_goes_all_the_way(own: dict[str, object], tmp_path: Path) -> None:
    done = run_here("run", **own, epochs=1, finetune_epochs=1, hold_out=0.25, out=tmp_path / "run")
    assert done.code == 0, done.err
    found = results(tmp_path / "run")
    assert "unreadable" not in found
    assert {f"accuracy_{stage}" for stage in ("sparse", "recalibrated", "finetuned")} <= found.keys()
    asked = configuration(tmp_path / "run")
    assert asked is not None and (asked.training.lam, asked.training.decay_at) == (2e-4, (1 / 3, 2 / 3))  # as ILSVRC


def test_images_that_cannot_be_read_are_in_the_record_or_end_the_run_where_asked(
    own: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = [tmp_path / "photos" / name for name in ("train/dark/0.png", "val/light/3.png")]
    for path in damaged:
        path.write_bytes(b"no image")
    assert run_here("train", **own, epochs=1, out=tmp_path / "run").code == 0
    assert all(f"{path} cannot be read" in caplog.text for path in damaged)
    assert run_here("prune", out=tmp_path / "run", device="cpu").code == 0
    assert results(tmp_path / "run")["unreadable"].keys() == {str(path) for path in damaged}
    done = run_here("train", **own, epochs=1, strict=None, out=tmp_path / "strict")
    assert done.code == 1 and "cannot be read" in done.err and "do without `strict`" in done.err
