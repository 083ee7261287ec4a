"""The benchmarks at ILSVRC's size, with everything tiny: what they write down is what they measured."""

import json
from pathlib import Path

import ilsvrc_input
import ilsvrc_step
import pytest
from PIL import Image

from otprune.experiments import paper


def test_the_step_is_that_of_the_recipe_and_its_flops_are_the_papers() -> None:
    whole = ilsvrc_step.parse_options(["--device", "cuda"])
    assert (whole.nets, whole.batch, whole.side) == (["vgg16_bn", "preresnet50"], 256, 224)
    for net, row in paper.table("ilsvrc").items():
        multiply_adds = ilsvrc_step.training_flops(net, whole) / 6
        assert multiply_adds == pytest.approx(row["baseline"]["flops"], rel=0.02)


def test_steps_are_timed_and_told() -> None:
    tiny = ["--nets", "preresnet50", "--side", "32", "--batch", "2", "--batches", "2", "--classes", "10"]
    options = ilsvrc_step.parse_options([*tiny, "--repeats", "2"])
    found = ilsvrc_step.measure("preresnet50", options)
    assert len(found["seconds"]) == 2 and found["on_a_gpu"] is None
    lowest, highest = found["images_per_second_interval"]
    assert lowest <= found["images_per_second"] <= highest
    assert found["ms_per_step"] * found["images_per_second"] == pytest.approx(1e3 * 2)
    assert ilsvrc_step.row("preresnet50", found)[-2:] == ("", "")


def test_a_gpu_is_told_by_its_peak_and_by_the_whole_recipe() -> None:
    options = ilsvrc_step.parse_options(["--side", "224"])
    told = ilsvrc_step.of_gpu("preresnet50", options, images_per_second=4000.0)
    assert told["share_of_peak"] == pytest.approx(6 * 4.1e9 * 4000 / 989e12, rel=0.03)
    assert told["whole_recipe"]["assumes"] == "perfect scaling"
    assert told["whole_recipe"]["hours"] == pytest.approx(90 * 1_281_167 / 32_000 / 3600, abs=1e-3)


def test_made_images_are_of_ilsvrcs_size_and_their_reading_is_told_by_its_parts(tmp_path: Path) -> None:
    ilsvrc_input.write_images(tmp_path / "images", 12, seed=0)
    files = sorted((tmp_path / "images").glob("train/*/*.jpg"))
    with Image.open(files[0]) as image:
        assert (image.size, image.format, len(files)) == ((500, 375), "JPEG", 12)
    step = tmp_path / "step.json"
    step.write_text(json.dumps({"configuration": {"device": "cuda"}, "results": {"net": {"images_per_second": 1e4}}}))
    options = ["--images", "12", "--batch", "4", "--workers", "1", "--repeats", "1", "--step", str(step)]
    found = ilsvrc_input.measure(tmp_path / "images", ilsvrc_input.parse_options(options))
    assert 90e3 < found["bytes_per_image"] < 130e3
    parts, (alone,) = found["ms_of_a_core_per_image"], found["by_workers"]
    assert parts["whole"] == pytest.approx(parts["decode"] + parts["crop and resize"] + parts["the rest"])
    assert alone["workers"] == 1 and alone["images_per_second"] > 0
    assert found["cores_per_gpu"] == {"net": pytest.approx(1e4 / alone["images_per_core_second"])}
    assert ilsvrc_input.cores_per_gpu(tmp_path / "none.json", 100.0) is None
