"""A training step is what a plain loop with torch's optimizer and otprune's penalties does; on a GPU nearly so."""

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import otprune as ot
from otprune.errors import TrainingError
from otprune.training.batch_loss import Teacher
from otprune.training.compiling import compiled
from otprune.training.data.images import Dataset, Images
from otprune.training.loop import train, train_together
from otprune.training.run import Run, Training
from otprune.training.step import EpochSums, Optimization, Step
from tests.checking import MaskRule, shrink
from tests.gpu import GPU

BATCH, STEPS, LEFT_OVER, CLASSES = 16, 4, 6, 3
MEAN, STD = torch.tensor([0.4]), torch.tensor([0.3])


class Phase(NamedTuple):
    """An epoch's learning rate and λ."""

    rate: float
    lam: float


class Outcome(NamedTuple):
    """Everything a training leaves behind."""

    tensors: dict[str, Tensor]
    momenta: list[Tensor]
    losses: list[float]
    hits: list[int]


def images(seed: int, count: int = BATCH * STEPS + LEFT_OVER) -> Images:
    """Noise with a bright stripe whose place is the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    pixels = torch.randint(130, (count, 1, 9, 9), generator=generator)
    pixels[torch.arange(count), :, 1 + 3 * labels] += 120
    return Images(pixels.to(torch.uint8), labels)


def vgg(widths: tuple[int, ...] = (8, 12, 10)) -> nn.Sequential:
    """Convs with biases, batch norms and pools, as VGG has them."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, width in zip((1, *widths), widths, strict=False):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
        nn.init.uniform_(layers[-3].weight, 0.3, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))


def odd_vgg() -> nn.Module:
    """A pruned VGG whose channels are 13, 7 and 11."""
    model = vgg((16, 16, 16))
    shrink(model, {"1": [0, 3, 9], "5": list(range(9)), "9": [1, 2, 5, 10, 15]})
    small = ot.prune(model, ot.plan(model, torch.zeros(1, 1, 9, 9), MaskRule()))
    assert [module.num_features for module in small.modules() if isinstance(module, nn.BatchNorm2d)] == [13, 7, 11]
    return small


def stepped(model: nn.Module, phases: list[Phase], optimization: Optimization) -> Outcome:
    step = Step(model, MEAN, STD, BATCH, optimization)
    epochs = []
    for number, phase in enumerate(phases):
        drawn = images(number)
        device = step.device
        step.begin(*phase)
        step.load(drawn.pixels.to(device), drawn.labels.to(device))
        for _ in range(STEPS):
            step()
        epochs.append(step.sums())
    assert {(epoch.steps, epoch.failed) for epoch in epochs} == {(STEPS, -1)}
    return Outcome(model.state_dict(), step.momenta, [epoch.loss for epoch in epochs], [epoch.hits for epoch in epochs])


def plain(model: nn.Module, phases: list[Phase], optimization: Optimization) -> Outcome:
    """The loop that everyone writes, in the model's own precision."""
    own = list(model.parameters())
    constants = {"momentum": optimization.momentum, "weight_decay": optimization.weight_decay}
    optimizer = torch.optim.SGD(own, lr=1.0, nesterov=True, **constants)
    penalty = (ot.ProximalL1 if optimization.proximal else ot.L1Penalty)(model, lam=0.0).attach(optimizer)
    losses, hits = [0.0] * len(phases), [0] * len(phases)
    mean, std = MEAN.to(own[0]), STD.to(own[0])
    for number, (rate, lam) in enumerate(phases):
        drawn = images(number)
        optimizer.param_groups[0]["lr"], penalty.lam = rate, lam
        batches = zip(drawn.pixels.to(own[0]).split(BATCH), drawn.labels.to(own[0].device).split(BATCH), strict=True)
        for pixels, labels in list(batches)[:STEPS]:
            outputs = model((pixels / 255 - mean) / std)
            loss = F.cross_entropy(outputs, labels, label_smoothing=optimization.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[number] += loss.item() * BATCH
            hits[number] += int((outputs.argmax(1) == labels).sum())
    return Outcome(model.state_dict(), [optimizer.state[p]["momentum_buffer"] for p in own], losses, hits)


def assert_close(found: Outcome, expected: Outcome, tolerance: float) -> None:
    torch.testing.assert_close(found.tensors, expected.tensors, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(found.momenta, expected.momenta, rtol=tolerance, atol=tolerance)
    assert found.losses == pytest.approx(expected.losses, rel=tolerance)
    assert found.hits == expected.hits


L1 = [Phase(0.05, 0.02), Phase(0.05, 0.04), Phase(0.005, 0.04), Phase(0.005, 0.0)]
PROXIMAL = [Phase(0.05, 2.0), Phase(0.05, 1.0), Phase(0.01, 1.0)]


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


def constant_logits(*logits: float) -> nn.Sequential:
    """A model whose outputs do not depend on the image."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, len(logits))).double()
    nn.init.zeros_(model[1].weight)
    model[1].bias.data = torch.tensor(logits, dtype=torch.float64)
    return model


def test_distillation_by_hand() -> None:
    """Divided by the temperature 2, the teacher's outputs say 1/5 and 4/5, the student's 1/4 and 3/4."""
    student, teacher = constant_logits(0, 2 * math.log(3)), constant_logits(0, 2 * math.log(4))
    weight, temperature, rate = 0.7, 2.0, 0.1
    none = Optimization(momentum=0.0, weight_decay=0.0)
    step = Step(student, torch.zeros(1), torch.ones(1), 1, none, Teacher(teacher, weight, temperature))
    step.begin(rate, lam=0.0)
    step.load(torch.zeros(1, 1, 1, 1, dtype=torch.uint8), torch.tensor([1]))
    step()
    hard = -math.log(9 / 10)  # at temperature 1, the student says 1/10 and 9/10
    soft = 1 / 5 * math.log(4 / 5) + 4 / 5 * math.log(16 / 15)
    assert step.sums().loss == pytest.approx((1 - weight) * hard + weight * temperature**2 * soft, rel=1e-12)
    slope = (1 - weight) * (1 / 10) + weight * temperature * (1 / 4 - 1 / 5)
    assert student[1].bias.tolist() == pytest.approx([-rate * slope, 2 * math.log(3) + rate * slope], rel=1e-12)
    assert teacher[1].bias.tolist() == [0, 2 * math.log(4)]


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_teacher_teaches_and_is_not_changed(device: str) -> None:
    teacher, drawn = vgg((5, 6, 7)).to(device), images(0)
    before = copy.deepcopy(teacher.state_dict())
    found = []
    for weight in (0.0, 0.9):
        step = Step(vgg().to(device), MEAN, STD, BATCH, teacher=Teacher(teacher.train(), weight))
        step.begin(rate=0.05, lam=0.0)
        step.load(drawn.pixels.to(device), drawn.labels.to(device))
        step()
        found.append(step.sums().loss)
    torch.testing.assert_close(teacher.state_dict(), before, rtol=0, atol=0)
    assert all(map(math.isfinite, found)) and found[0] != pytest.approx(found[1], rel=1e-2)


class Dropping(nn.Module):
    """A model with random numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.dropout, self.head = vgg()[:-1], nn.Dropout(0.3), vgg()[-1]

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.dropout(self.body(x)))
        return scores


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("build", [vgg, Dropping])
def test_side_by_side_each_run_is_what_it_is_alone(build: Callable[[], nn.Module], device: str) -> None:
    data = Dataset.of(images(0), images(1), ("a", "b", "c"))
    trainings = [
        Training(epochs=2, batch=BATCH, lam=1e-3),
        Training(epochs=1, batch=8, lam=1e-2, seed=1, augment=False),
        Training(epochs=3, batch=BATCH, lam=1e-3, proximal=True, label_smoothing=0.1),
    ]
    together, alone = ([Run(build().to(device), data, training) for training in trainings] for _ in range(2))
    train_together(together)
    for run in alone:
        train(run)
    noise = {"rtol": 0, "atol": 0} if device == "cpu" else {"rtol": 0.02, "atol": 0.02}
    for left, right in zip(together, alone, strict=True):
        losses = ([epoch.loss for epoch in run.history] for run in (left, right))
        torch.testing.assert_close(*losses, **noise)
        assert len(left.history) == left.training.epochs
        torch.testing.assert_close(dict(left._tensors()), dict(right._tensors()), **noise)
    assert len({run.history[0].loss for run in together}) == 3


def dropout_run(device: str) -> Run:
    """Images and weights stay the same, so what differs from step to step is what dropout drops."""
    one = images(0)[torch.zeros(4, dtype=torch.int64)]
    same = Dataset.of(one, one, ("a", "b", "c"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(81, CLASSES)).to(device)
    return Run(model, same, Training(epochs=2, batch=1, rate=0.0, augment=False))


def losses_step_by_step(run: Run) -> list[float]:
    losses = []
    for _ in range(run.training.epochs):
        run.begin_epoch()
        for _ in range(run.steps):
            before = run.step.sums().loss
            run.advance()
            losses.append(round(run.step.sums().loss - before, 6))
        run.end_epoch()
    return losses


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_every_step_draws_random_numbers_of_its_own_and_leaves_others_alone(device: str) -> None:
    run, again = dropout_run(device), dropout_run(device)
    state = torch.get_rng_state()
    losses = losses_step_by_step(run)
    assert len(set(losses)) == 8
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3, device=device)
    assert losses_step_by_step(again) == losses


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
