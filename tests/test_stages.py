"""The stages one by one, as verbs: they add up to the whole run, and each takes its own settings."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from typer.testing import CliRunner

import otprune as ot
from otprune import models
from otprune.cli import app
from otprune.errors import CheckpointError
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import configuration
from otprune.experiments.pipeline import Pipeline, open_data
from otprune.experiments.reporting import Silent
from otprune.files import write_atomically
from otprune.surgery import plans_of
from otprune.training import data as datasets
from otprune.training.run import EpochRecord, Run, Training
from tests import small_runs
from tests.command_line import DIGITS, Done, flags

SHORT: dict[str, object] = {"epochs": 2, "lam": 1e-2, "hold_out": 0.1}


def otprune(verb: str, **options: object) -> Done:
    """A command in this process."""
    result = CliRunner().invoke(app, [verb, *flags(options)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))["results"]
    return found


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "a run"
    done = otprune("train", **DIGITS, **SHORT, out=folder)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == f"next: otprune prune --out '{folder}'"
    return folder


@pytest.fixture(scope="module")
def pruned_once(trained_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(trained_once, tmp_path_factory.mktemp("pruned") / "run"))
    done = otprune("prune", out=folder)
    assert done.code == 0, done.err
    ways = (f"otprune {verb} --out {folder}" for verb in ("finetune", "scratch"))
    assert done.out.splitlines()[-1] == f"next: {' or '.join(ways)}"
    return folder


@pytest.fixture
def pruned(pruned_once: Path, tmp_path: Path) -> Path:
    """A run that has been trained and pruned, with the settings that the whole run has."""
    return Path(shutil.copytree(pruned_once, tmp_path / "run"))


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """A run that has been trained and nothing more."""
    return Path(shutil.copytree(trained_once, tmp_path / "run"))


def test_the_stages_alone_add_up_to_the_whole_run(pruned: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert otprune("run", **DIGITS, **SHORT, finetune_epochs=1, out=whole).code == 0
    assert otprune("finetune", finetune_epochs=1, out=pruned).code == 0
    assert configuration(pruned) == configuration(whole)
    ours, theirs = results(pruned), results(whole)
    assert ours.pop("seconds").keys() == theirs.pop("seconds").keys()
    assert ours == theirs


def test_what_is_held_out_is_measured_beside_the_test_images(pruned: Path) -> None:
    found = results(pruned)
    for stage in ("sparse", "pruned", "folded", "recalibrated"):
        assert 0 <= found[f"accuracy_held_out_{stage}"] <= 1 and 0 <= found[f"accuracy_{stage}"] <= 1
    assert found["accuracy_held_out_sparse"] != found["accuracy_sparse"]


def test_a_later_stage_takes_its_own_settings_until_it_is_done(trained: Path) -> None:
    assert otprune("prune", out=trained, rule="ns", ratio=0.25, max_layer_ratio=0.5).code == 0
    found = configuration(trained)
    assert found is not None and (found.pruning.rule, found.pruning.ratio) == ("ns", 0.25)
    layers = results(trained)["layers"]
    assert len({layer["threshold"] for layer in layers}) == 1
    assert all(layer["kept"] >= layer["channels"] / 2 for layer in layers)
    refused = otprune("prune", out=trained, ratio=0.5)
    assert refused.code == 1 and "belongs to a run with pruning.ratio=0.25, not 0.5" in refused.err
    assert refused.err.count("\n") == 1 and configuration(trained) == found


def test_a_budget_is_met_and_the_record_says_what_was_tried(trained: Path) -> None:
    done = otprune("prune", out=trained, flops=0.5)
    assert done.code == 0, done.err
    found = results(trained)
    assert found["cost_after"]["flops"] <= 0.5 * found["cost_before"]["flops"]
    assert found["rule"]["rule"] == "Shifted"
    assert found["choosing"][-1]["accuracy"] == pytest.approx(found["accuracy_held_out_recalibrated"])


def test_a_budget_is_met_where_no_images_are_held_out(tmp_path: Path) -> None:
    assert otprune("train", **DIGITS, epochs=1, lam=1e-2, out=tmp_path / "run").code == 0
    done = otprune("prune", out=tmp_path / "run", flops=0.4)
    assert done.code == 0, done.err
    found = results(tmp_path / "run")
    assert found["cost_after"]["flops"] <= 0.4 * found["cost_before"]["flops"]
    assert len(found["choosing"]) > 2 and {step["accuracy"] for step in found["choosing"]} == {None}


def test_a_stage_without_the_one_before_says_what_to_do(trained: Path, tmp_path: Path) -> None:
    assert otprune("finetune", out=trained).err == (
        f"{trained} has no pruned.safetensors yet: make it with otprune prune --out {trained}\n"
    )
    nowhere = tmp_path / "nowhere"
    for verb in ("prune", "finetune", "scratch"):
        done = otprune(verb, out=nowhere)
        assert (done.code, done.err) == (1, f"{nowhere} holds no run: begin one with otprune train --out {nowhere}\n")
    assert not nowhere.exists()


def test_a_file_is_resolved_with_flags_into_the_configuration_of_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(
        'model = "digits_net"\ndata = "digits"\n[training]\nepochs = 9\nlam = 1e-2\n[pruning]\ndelta = 0.01'
    )
    done = otprune("train", config=file, epochs=0, decay_at="0.3,0.6", no_augment=None, out=tmp_path / "run")
    assert done.code == 0, done.err
    found = configuration(tmp_path / "run")
    assert found is not None and found.training == Training(epochs=0, lam=1e-2, decay_at=(0.3, 0.6), augment=False)
    assert found.pruning.delta == 0.01 and found.model == "digits_net"
    file.write_text("[training]\nepoch = 9")
    refused = otprune("train", **DIGITS, config=file, out=tmp_path / "other")
    assert refused.code == 1 and not (tmp_path / "other").exists()
    assert refused.err == f"{file}: there is no setting training.epoch; did you mean training.epochs?\n"


def test_distillation_learns_from_the_unpruned_model(pruned: Path, tmp_path: Path) -> None:
    """With all the weight on the teacher, labels do not matter: the fine-tuned model follows the sparse one."""
    plain = Path(shutil.copytree(pruned, tmp_path / "plain"))
    for folder, weight in ((plain, 0), (pruned, 1)):
        assert otprune("finetune", finetune_epochs=1, finetune_rate=0.01, distill=weight, out=folder).code == 0
    paths = (plain / "sparse.safetensors", plain / "finetuned.safetensors", pruned / "finetuned.safetensors")
    taught, alone, following = (outputs(path) for path in paths)
    apart = [F.kl_div(found, taught, reduction="batchmean", log_target=True) for found in (following, alone)]
    assert apart[0] < apart[1] / 2


@torch.no_grad()
def outputs(path: Path) -> Tensor:
    """The logarithms of the probabilities that a model gives the test images."""
    data = datasets.load("digits")
    pixels = (data.test.pixels / 255 - data.mean.view(1, -1, 1, 1)) / data.std.view(1, -1, 1, 1)
    scores: Tensor = ot.load(models.digits_net(), path).eval()(pixels)
    return scores.log_softmax(1)


def test_a_killed_stage_has_noted_the_time_it_took_so_far(tmp_path: Path) -> None:
    noted = []

    class Look(Silent):
        def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
            noted.append(json.loads(pipeline.results_file.read_text())["seconds"]["train"])

    asked = Experiment("digits_net", "digits", training=Training(epochs=3, augment=False))
    pipeline = Pipeline(asked, tmp_path, open_data("digits"), torch.device("cpu"))
    begun = time.perf_counter()
    stages.train([pipeline], Look(), save_every=0)
    assert 0 < noted[0] < noted[1] < noted[2] < pipeline.results["seconds"]["train"] < time.perf_counter() - begun


def test_what_broke_a_stage_off_is_told_even_where_nothing_can_be_written(tmp_path: Path) -> None:
    class Break(Silent):
        def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
            pipeline.results_file.mkdir()
            raise CheckpointError("Make room.")

    asked = Experiment("digits_net", "digits", training=Training(epochs=1, augment=False))
    with pytest.raises(CheckpointError, match="Make room"):
        stages.train([Pipeline(asked, tmp_path, open_data("digits"), torch.device("cpu"))], Break())


def test_a_folder_that_cannot_be_written_to_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = otprune("train", **DIGITS, epochs=0, out=tmp_path / "file" / "run")
    assert done.code == 1 and str(tmp_path / "file" / "run") in done.err and "give the same command again" in done.err


def test_a_full_disk_is_told_with_the_file_that_does_not_fit(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=str(tmp_path / "weights")):
            write_atomically(tmp_path / "weights", bytes(101))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_from_scratch_is_the_pruned_architecture_with_other_weights_on_the_papers_budget(pruned: Path) -> None:
    done = otprune("scratch", out=pruned)
    assert done.code == 0, done.err
    found = results(pruned)
    saving = found["cost_before"]["flops"] / found["cost_after"]["flops"]
    assert len(found["scratch"]) == round(2 * min(saving, 2)) and {epoch["lam"] for epoch in found["scratch"]} == {0}
    assert 0 <= found["accuracy_scratch"] <= 1 and found["seconds"]["scratch"] > 0
    small, fresh = (ot.load(models.digits_net(), pruned / f"{name}.safetensors") for name in ("pruned", "scratch"))
    assert plans_of(small) == plans_of(fresh)
    assert not torch.equal(next(small.parameters()), next(fresh.parameters()))


def test_weights_from_scratch_follow_the_width_that_is_left(tmp_path: Path) -> None:
    asked = Experiment("digits_net", "digits", training=Training(epochs=0, augment=False))
    pipeline = Pipeline(asked, tmp_path, open_data("digits"), torch.device("cpu"))
    sparse = pipeline.fresh_model()
    for norm in (module for module in sparse.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.weight.data[: len(norm.weight) // 2] = 1e-9
    ot.save(sparse, tmp_path / "sparse.safetensors")
    stages.prune(pipeline)
    stages.scratch([pipeline])
    fresh = pipeline.load("scratch.safetensors")
    convs = [module for module in fresh.modules() if isinstance(module, nn.Conv2d) and module.weight.numel() > 500]
    assert convs and all(norm.weight.eq(0.5).all() for norm in fresh.modules() if isinstance(norm, nn.BatchNorm2d))
    for conv in convs:
        spread = (2 / (conv.kernel_size[0] * conv.kernel_size[1] * conv.out_channels)) ** 0.5
        assert conv.weight.std().item() == pytest.approx(spread, rel=0.1)


def test_a_training_can_begin_from_a_checkpoint(pruned: Path, tmp_path: Path) -> None:
    """What iterative pruning does: the pruned model of one pass is where the next one begins."""
    asked = Experiment("digits_net", "digits", training=Training(epochs=0, augment=False))
    start = pruned / "pruned.safetensors"
    pipeline = Pipeline(asked, tmp_path / "next", open_data("digits"), torch.device("cpu"), start=start)
    stages.train([pipeline])
    before, after = ot.load(models.digits_net(), start), pipeline.load("sparse.safetensors")
    torch.testing.assert_close(after.state_dict(), before.state_dict(), rtol=0, atol=0)
    stages.prune(pipeline)
    assert len(plans_of(pipeline.load("pruned.safetensors"))) == 2


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
    done = otprune("run", **own, epochs=1, finetune_epochs=1, hold_out=0.25, out=tmp_path / "run")
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
    assert otprune("train", **own, epochs=1, out=tmp_path / "run").code == 0
    assert all(f"{path} cannot be read" in caplog.text for path in damaged)
    assert otprune("prune", out=tmp_path / "run", device="cpu").code == 0
    assert results(tmp_path / "run")["unreadable"].keys() == {str(path) for path in damaged}
    done = otprune("train", **own, epochs=1, strict=None, out=tmp_path / "strict")
    assert done.code == 1 and "cannot be read" in done.err and "do without `strict`" in done.err


SEVEN_CLASSES = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 7))
"""
A_DICT = """
from torch import nn

class build(nn.Conv2d):
    def __init__(self):
        super().__init__(1, 4, 3)

    def forward(self, x):
        return {"scores": super().forward(x)}
"""
AUXILIARY = """
from torch import nn

class build(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 8), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten())
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        found = self.body(x)
        return (self.head(found), found) if self.training else self.head(found)
"""
WRONG_NETS = {
    SEVEN_CLASSES: "net.py:build returns scores of shape (1, 7) for one image, and the data has 10 classes: ",
    A_DICT: "net.py:build returns a dict, and a classifier is trained by a tensor of scores",
    AUXILIARY: "net.py:build returns a tuple in training mode, and a classifier is trained by a tensor of scores: ",
}


@pytest.mark.parametrize(
    ("text", "message"), WRONG_NETS.items(), ids=["too few classes", "no tensor", "more in training"]
)
def test_a_model_that_gives_no_score_for_each_class_is_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(text)
    done = otprune("train", model="net.py:build", data="digits", out=tmp_path / "run")
    assert done.code == 1 and done.err.startswith(message)
    assert not (tmp_path / "run").exists()


def test_looking_at_a_model_in_training_mode_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that is always the same one, and whose training mode draws random numbers."""
    model = nn.Sequential(nn.Conv2d(1, 4, 8), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4, 10))
    monkeypatch.setattr("tests.small_runs.net", lambda: model)
    before, drawn = {name: tensor.clone() for name, tensor in model.state_dict().items()}, torch.get_rng_state()
    small_runs.pipeline(tmp_path)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), drawn)
