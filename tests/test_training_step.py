"""A training step is what a plain loop with torch's optimizer and otprune's penalties does; on a GPU nearly so."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from otprune.errors import TrainingError
from otprune.training.compiling import compiled
from otprune.training.data.images import Dataset
from otprune.training.loop import train
from otprune.training.run import Run, Training
from otprune.training.step import EpochSums, Optimization, Step
from tests.gpu import GPU
from tests.trained_steps import (
    BATCH,
    L1,
    LEFT_OVER,
    MEAN,
    PROXIMAL,
    STD,
    STEPS,
    Outcome,
    Phase,
    assert_close,
    images,
    odd_vgg,
    plain,
    stepped,
    vgg,
)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)], ids=["fp32", "fp64"])
@pytest.mark.parametrize(
    ("optimization", "phases"),
    [
        (Optimization(), L1),
        (Optimization(momentum=0.8, weight_decay=0.01, label_smoothing=0.1), L1),
        (Optimization(proximal=True), PROXIMAL),
    ],
    ids=["paper", "other constants and label smoothing", "proximal"],
)
def test_equals_a_plain_loop_with_sgd_and_a_penalty(
    optimization: Optimization, phases: list[Phase], dtype: torch.dtype, tolerance: float
) -> None:
    model = vgg().to(dtype)
    expected = plain(copy.deepcopy(model), phases, optimization)
    found = stepped(copy.deepcopy(model), phases, optimization)
    assert_close(found, expected, tolerance)
    without = stepped(model, [Phase(rate, 0.0) for rate, _ in phases], optimization)
    assert (without.tensors["1.weight"] - found.tensors["1.weight"]).abs().max() > 1e-3  # so the penalty was there


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_what_has_no_part_in_the_loss_stays_as_it_is(device: str) -> None:
    """As with torch's own optimizers, whose weight decay does not move it either."""
    model = vgg().to(device)
    model[0].register_module("idle", nn.Linear(3, 3).to(device))
    before = {name: tensor.clone() for name, tensor in model[0].get_submodule("idle").state_dict().items()}
    expected = plain(copy.deepcopy(model), L1, Optimization())
    found = stepped(model, L1, Optimization())
    assert all(torch.equal(found.tensors[f"0.idle.{name}"], tensor) for name, tensor in before.items())
    if device == "cpu":
        assert_close(found, expected, 1e-6)


@pytest.mark.parametrize("together", [True, False], ids=["weights channels-last", "gradients channels-last"])
def test_tensors_in_another_memory_order_train_alike(together: bool) -> None:
    model = vgg().double()
    expected = plain(copy.deepcopy(model), L1, Optimization())
    if together:
        model.to(memory_format=torch.channels_last)
    else:
        for module in model:
            if isinstance(module, nn.Conv2d):
                module.weight.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))
    assert_close(stepped(model, L1, Optimization()), expected, 1e-13)


def test_the_proximal_step_leaves_exact_zeros_where_the_plain_loop_does() -> None:
    optimization = Optimization(proximal=True)
    expected, found = (loop(vgg(), PROXIMAL, optimization).tensors for loop in (plain, stepped))
    zeros = sum(int((found[name] == 0).sum()) for name in ("1.weight", "5.weight", "9.weight"))
    assert 0 < zeros < 30
    for name in ("1.weight", "5.weight", "9.weight"):
        assert torch.equal(found[name] == 0, expected[name] == 0)


def test_images_that_fill_no_batch_are_left_out() -> None:
    data, other = images(0), images(0)
    other.pixels[-LEFT_OVER:] = 0
    training = Training(epochs=1, batch=BATCH)
    outcomes = []
    for drawn in (data, other):
        step = Step(vgg(), MEAN, STD, BATCH)
        step.begin(rate=0.1, lam=0.0)
        step.load(drawn.pixels, drawn.labels)
        for _ in range(STEPS):
            step()
        outcomes.append(step.sums())
    assert outcomes[0] == outcomes[1]
    run = Run(vgg(), Dataset.of(data, data, ("a", "b", "c")), training)
    train(run)
    assert run.steps == run.step.sums().steps == STEPS
    assert run.history[0].accuracy * BATCH * STEPS == run.step.sums().hits


def test_fewer_images_than_a_batch_are_refused() -> None:
    few = images(0, count=BATCH - 1)
    with pytest.raises(TrainingError, match="15 images do not fill one batch of 16"):
        Run(vgg(), Dataset.of(few, few, ("a", "b", "c")), Training(batch=BATCH))


@pytest.mark.parametrize(
    "setting",
    [
        *({"lam": -1.0}, {"lam": math.nan}, {"rate": math.inf}, {"epochs": -1}, {"batch": 0}, {"target_flops": 1.0}),
        *({"decay_at": (80, 120)}, {"decay_at": (math.nan,)}, {"label_smoothing": 1.1}, {"momentum": 1.0}),
        *({"schedule": "linear"}, {"cutout": -1}),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused_by_name(setting: dict[str, object]) -> None:
    with pytest.raises(TrainingError, match=f"^{next(iter(setting))} must"):
        Training(**setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize(("optimization", "phases"), [(Optimization(), L1), (Optimization(proximal=True), PROXIMAL)])
def test_large_tensors_are_updated_like_small_ones(
    device: str, optimization: Optimization, phases: list[Phase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones have kernels of their own, and their gradients may not be late."""
    model = vgg().to(device)
    expected = plain(copy.deepcopy(model), phases, optimization)
    for limit in (1, 12, 500):  # everything is large; so are scaling factors of one layer; one weight alone
        for module in ("step", "side_gradients"):
            monkeypatch.setattr(f"otprune.training.{module}.LARGE", limit)
        torch.compiler.reset()
        found = stepped(copy.deepcopy(model), phases, optimization)
        assert found.losses == pytest.approx(expected.losses, abs=0.05 * expected.losses[0])
        for name in ("1.weight", "5.weight", "9.weight", "14.weight"):
            torch.testing.assert_close(found.tensors[name], expected.tensors[name], rtol=0.05, atol=0.03)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_odd_channel_counts_train_as_in_a_plain_loop(device: str) -> None:
    """Where the step is a compiled graph in bf16, losses come near those of fp32, and nothing is NaN."""
    model, phases = odd_vgg().to(device), [Phase(0.1, 1e-4)] * 8
    expected = plain(copy.deepcopy(model), phases, Optimization())
    found = stepped(model, phases, Optimization())
    assert all(bool(tensor.isfinite().all()) for tensor in (*found.tensors.values(), *found.momenta))
    assert found.losses[-1] < found.losses[0] / 2
    if device == "cpu":
        assert_close(found, expected, 1e-5)
    assert found.losses == pytest.approx(expected.losses, abs=0.05 * expected.losses[0])


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_an_epoch_can_be_gone_on_with_at_its_last_step(device: str) -> None:
    """A GPU warms up before it goes on, and there are no images after the last step to do that with."""
    drawn = images(0, count=BATCH * STEPS)
    step = Step(vgg().to(device), MEAN, STD, BATCH)
    step.begin(0.05, 0.0, EpochSums(10.0, 7, STEPS - 1, -1))
    step.load(drawn.pixels.to(device), drawn.labels.to(device), done=STEPS - 1)
    step()
    sums = step.sums()
    assert (sums.steps, sums.failed) == (STEPS, -1)
    assert sums.loss > 10 and sums.hits >= 7


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_model_in_evaluation_mode_is_trained_like_any_other(device: str) -> None:
    losses = [stepped(model.to(device), L1, Optimization()).losses for model in (vgg(), vgg().eval())]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9 if device == "cpu" else 0.01)


def flat(x: Tensor) -> Tensor:
    return x.view(-1)


@pytest.mark.filterwarnings("default")
def test_a_sweep_may_compile_more_networks_than_torch_allows_by_itself() -> None:
    """As many shapes as there are pruned networks; torch refuses the ninth unless told otherwise."""
    assert [compiled(flat)(torch.zeros(2, width)).numel() for width in range(2, 14)] == list(range(4, 28, 2))


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_batch_by_batch_is_the_same_as_a_whole_epoch_at_once(device: str) -> None:
    """A stream loads each batch before its step; on a GPU from the CPU's memory, into what the graph reads."""
    found = []
    for size in (BATCH * STEPS, BATCH, 2 * BATCH):
        model = vgg().to(device)
        step = Step(model, MEAN, STD, BATCH)
        for number, phase in enumerate(L1):
            drawn = images(number, count=BATCH * STEPS)
            step.begin(*phase)
            for pixels, labels in drawn.batches(size):
                step.load(pixels, labels)
                for _ in range(size // BATCH):
                    step()
        assert (step.sums().steps, step.sums().failed) == (STEPS, -1)
        found.append(Outcome(model.state_dict(), step.momenta, [step.sums().loss], [step.sums().hits]))
    for other in found[1:]:
        if device == "cpu":
            assert_close(other, found[0], 0)
        else:
            assert other.losses == pytest.approx(found[0].losses, rel=0.01)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_floating_point_is_not_divided_by_255(device: str) -> None:
    drawn, losses = images(0), []
    for pixels in (drawn.pixels, drawn.pixels / 255):
        step = Step(vgg().to(device), MEAN, STD, BATCH)
        step.begin(0.05, 0.0)
        step.load(pixels, drawn.labels)
        step()
        losses.append(step.sums().loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6 if device == "cpu" else 0.01)


def test_a_step_that_fails_is_counted_in_the_epoch_not_in_its_batch() -> None:
    drawn = images(0, count=BATCH)
    step = Step(vgg(), MEAN, STD, BATCH)
    step.begin(0.05, 0.0)
    for pixels in (drawn.pixels / 255, drawn.pixels / 255, drawn.pixels * torch.nan):
        step.load(pixels, drawn.labels)
        step()
    assert (step.sums().steps, step.sums().failed) == (3, 2)
