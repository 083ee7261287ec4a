"""Every example runs as a user would run it, and what it leaves behind is the smaller network."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from safetensors import safe_open

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NEEDS = {
    "own_loop": (),
    "with_lightning": ("lightning",),
    "with_timm": ("timm",),
    "with_transformers": ("transformers", "accelerate"),
    "with_ultralytics": ("ultralytics", "onnx", "onnxruntime"),
}
# Enough for the penalty to part scaling factors where the example prunes by that, and as few as possible elsewhere.
EPOCHS = {"own_loop": 12}
LONGEST = 60  # lines
OUT = Path("runs", "example")  # from where it is started; it is for the example to make


def ran(example: str, folder: Path, *more: str) -> str:
    """What an example prints. It finds no network, no accelerator and no settings of a user."""
    for module in NEEDS[example]:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    alone = {"HOME": str(folder), "YOLO_CONFIG_DIR": str(folder), "YOLO_AUTOINSTALL": "false", "YOLO_OFFLINE": "true"}
    alone |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    line = [sys.executable, str(EXAMPLES / f"{example}.py"), str(OUT), str(EPOCHS.get(example, 2)), *more]
    done = subprocess.run(line, capture_output=True, text=True, cwd=folder, env=os.environ | alone, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


def parameters(printed: str) -> tuple[int, int]:
    found = re.search(r"^parameters: ([\d,]+) → ([\d,]+)$", printed, flags=re.MULTILINE)
    assert found is not None, printed
    before, after = (int(number.replace(",", "")) for number in found.groups())
    return before, after


def in_file(path: Path) -> int:
    """The values of weights and biases in a checkpoint."""
    with safe_open(path, "pt") as file:
        names = [name for name in file.keys() if name.endswith((".weight", ".bias"))]  # noqa: SIM118
        return sum(file.get_tensor(name).numel() for name in names)


def test_every_example_is_tested_and_short() -> None:
    lengths = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    assert lengths.keys() == NEEDS.keys()
    assert {name: length for name, length in lengths.items() if length >= LONGEST} == {}


@pytest.mark.parametrize("example", ["with_lightning", "with_timm", "with_transformers"])
def test_an_example_saves_a_smaller_network(example: str, tmp_path: Path) -> None:
    before, after = parameters(ran(example, tmp_path))
    assert after < 0.9 * before
    assert in_file(tmp_path / OUT / "small.safetensors") == after


def test_the_own_loop_learns_what_it_is_shown_and_prunes_by_optimal_thresholds(tmp_path: Path) -> None:
    before, after = parameters(printed := ran("own_loop", tmp_path))
    assert after < 0.9 * before
    assert in_file(tmp_path / OUT / "small.safetensors") == after
    assert float(printed.rpartition("accuracy: ")[2]) > 0.95


@pytest.mark.parametrize("network", ["yolov8n", "yolov8n-seg", "yolo11n", "yolo11n-seg"])
def test_yolo_is_pruned_trained_on_and_exported_by_its_own_trainer(network: str, tmp_path: Path) -> None:
    before, after = parameters(printed := ran("with_ultralytics", tmp_path, f"{network}.yaml"))
    assert after < 0.9 * before
    import onnx
    import onnxruntime

    path = printed.rpartition("exported: ")[2].strip()
    session = onnxruntime.InferenceSession(path)
    (image,) = session.get_inputs()
    assert image.shape == [1, 3, 64, 64]
    weights = sum(len(tensor.raw_data) // 4 for tensor in onnx.load(path).graph.initializer if tensor.data_type == 1)
    assert weights < 1.02 * after  # batch norms are folded, and a few constants added
