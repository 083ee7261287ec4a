"""Convolutions whose weights lie in wider tensors: the same outputs and gradients, and zeros that stay zeros."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from otprune.inputs import tensors_in
from otprune.training.step import Step
from otprune.training.wide_convolutions import WideConv2d, part_of, widen
from otprune.training.working_copy import working_copy
from tests.gpu import needs_gpu
from tests.toy_nets import TOYS, Toy, make, values
from tests.trained_steps import BATCH, MEAN, STD, STEPS, images, odd_vgg

WITHOUT = ("Linears", "OneDimensional", "ThreeDimensional")  # no two-dimensional convolution there


def compared(model: nn.Module, *inputs: Tensor) -> list[WideConv2d]:
    """Assert that a model computes and learns the same when it is widened; the convolutions that were."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()  # what is drawn depends on how a tensor lies in memory
    wide = copy.deepcopy(model)
    weights = dict(wide.named_parameters())
    made = widen(wide)
    found, expected = (learned(one, *inputs) for one in (wide, model))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for name, parameter in model.named_parameters():
        seen = made.get(id(weights[name]), weights[name])
        assert (parameter.grad is None) == (seen.grad is None), name
        if parameter.grad is not None and seen.grad is not None:
            gradient = part_of(seen.grad, parameter.shape)
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-8, atol=1e-8)
    return [module for module in wide.modules() if isinstance(module, WideConv2d)]


def learned(model: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """The outputs, after gradients of some sum of them were computed."""
    model.zero_grad()
    outputs = list(tensors_in(model(*inputs)))
    torch.stack([(output * values(*output.shape)).sum() for output in outputs]).sum().backward()
    return outputs


@pytest.mark.parametrize("toy", TOYS.values(), ids=TOYS)
def test_a_widened_network_computes_and_learns_the_same(toy: type[Toy]) -> None:
    found = compared(make(toy).train(), *toy.example())
    assert found or toy.__name__ in WITHOUT


def test_all_odd_convolutions_of_a_pruned_network_are_widened() -> None:
    found = compared(odd_vgg().double().train(), values(4, 1, 9, 9))
    assert [tuple(module.wide.shape[:2]) for module in found] == [(16, 1), (8, 16), (16, 8)]
    assert all(module.wide.is_contiguous(memory_format=torch.channels_last) for module in found)


@pytest.mark.parametrize(
    "options",
    [
        {"bias": True},
        {"stride": 2, "padding": 1},
        {"dilation": 2, "padding": "same"},
        {"padding": "valid", "bias": False},
    ],
    ids=str,
)
def test_settings_of_a_convolution_hold(options: dict[str, object]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(5, 7, 3, **options)).double()  # type: ignore[arg-type]
    assert len(compared(net, values(2, 5, 9, 9))) == 1
    assert len(compared(net, values(5, 9, 9))) == 1  # a single image


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(16, 32, 3),
        nn.Conv2d(3, 8, 3),
        nn.Conv2d(6, 6, 3, groups=2),
        nn.Conv2d(5, 7, 3, padding=1, padding_mode="reflect"),
        nn.ConvTranspose2d(5, 7, 3),
        nn.Conv1d(5, 7, 3),
    ],
    ids=str,
)
def test_what_gains_nothing_or_is_something_else_stays(layer: nn.Module) -> None:
    assert widen(nn.Sequential(layer)) == {}
    assert type(layer) is not WideConv2d


def test_a_convolution_of_ones_own_stays() -> None:
    class Scaled(nn.Conv2d):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    assert widen(nn.Sequential(Scaled(5, 7, 3))) == {}


def test_two_layers_with_one_weight_still_have_one() -> None:
    first, second = nn.Conv2d(7, 7, 3, padding=1), nn.Conv2d(7, 7, 3)
    second.weight = first.weight
    found = compared(nn.Sequential(first, second).double(), values(2, 7, 9, 9))
    assert len(found) == 2 and found[0].wide is found[1].wide


class Reads(nn.Module):
    """Reads the weight of a convolution beside it, as a filter of its own."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.filter = weight

    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(images, self.filter)


@pytest.mark.parametrize(
    "other",
    [nn.ConvTranspose2d(7, 7, 3), nn.Conv2d(7, 7, 3, padding_mode="reflect", padding=1), Reads(nn.Parameter())],
    ids=lambda other: type(other).__name__,
)
def test_a_weight_that_something_else_reads_too_stays(other: nn.Module) -> None:
    """Or the two would train apart."""
    layer = nn.Conv2d(7, 7, 3, padding=1)
    setattr(other, "filter" if isinstance(other, Reads) else "weight", layer.weight)
    assert compared(nn.Sequential(layer, other).double(), values(2, 7, 9, 9)) == []


def test_a_weight_that_is_made_from_call_to_call_stays() -> None:
    with warnings.catch_warnings(action="ignore"):
        layer = nn.utils.weight_norm(nn.Conv2d(5, 7, 3))
    assert widen(nn.Sequential(layer)) == {}
    parametrized = nn.utils.parametrizations.weight_norm(nn.Conv2d(5, 7, 3))
    assert widen(nn.Sequential(parametrized)) == {}


class Onto(nn.Module):
    """A sum that is written onto what a convolution wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(7, 7, 3, padding=1, bias=False) for _ in range(2))

    def forward(self, images: Tensor) -> Tensor:
        shortcut = self.first(images)
        summed: Tensor = self.second(shortcut)
        summed += shortcut
        return summed


@pytest.mark.parametrize(
    "net",
    [nn.Sequential(nn.Conv2d(7, 5, 3, bias=False), nn.ReLU(inplace=True)), Onto()],
    ids=["activation", "sum"],
)
def test_outputs_can_be_changed_in_place(net: nn.Module) -> None:
    assert compared(net.double(), values(2, 7, 9, 9))


def test_outputs_lie_in_memory_as_they_did() -> None:
    layer = nn.Conv2d(8, 5, 3, bias=False)
    images = torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)
    expected = layer.to(memory_format=torch.channels_last)(images).stride()
    widen(nn.Sequential(layer))
    assert layer(images).stride() == expected


def test_a_step_trains_wide_copies_as_it_trains_narrow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only a GPU does otherwise, in fp64 and without a compiler: copies that follow, and zeros that stay."""
    monkeypatch.setattr("otprune.training.working_copy._half", lambda weight: nn.Parameter(weight.detach().clone()))
    narrow, wide = (followed(odd_vgg().double(), widened) for widened in (False, True))
    torch.testing.assert_close(wide.model.state_dict(), narrow.model.state_dict(), rtol=1e-10, atol=1e-10)
    assert wide.sums().loss == pytest.approx(narrow.sums().loss, rel=1e-10)
    found = [module for module in wide._worker.modules() if isinstance(module, WideConv2d)]
    for module, weight in zip(found, (wide.model.get_parameter(f"{name}.weight") for name in (0, 4, 8)), strict=True):
        assert torch.equal(module.weight, weight)
        assert module.wide.count_nonzero() == weight.count_nonzero()


def followed(model: nn.Module, widened: bool) -> Step:
    """A step after some images, with a working copy of the model."""
    step, drawn = Step(model, MEAN, STD, BATCH), images(0)
    step._worker, step._seen = working_copy(model, step.parameters)
    if widened:
        step._widen_convolutions()
    step.begin(0.05, 0.01)
    step.load(drawn.pixels, drawn.labels)
    for _ in range(STEPS):
        step()
    return step


@needs_gpu
def test_a_gpu_trains_odd_convolutions_in_wider_tensors_after_every_change_of_what_is_loaded() -> None:
    step, drawn = Step(odd_vgg().to("cuda"), MEAN, STD, BATCH), images(0)
    step.begin(0.05, 0.0)
    for count in (BATCH, 2 * BATCH):  # for each the step is captured anew
        step.load(drawn.pixels[:count].to("cuda"), drawn.labels[:count].to("cuda"))
        step()
    assert step.sums().steps == 2 and step.sums().failed == -1
    found = [module for module in step._worker.modules() if isinstance(module, WideConv2d)]
    assert [tuple(module.wide.shape[:2]) for module in found] == [(16, 1), (8, 16), (16, 8)]
    for module, name in zip(found, ("0.weight", "4.weight", "8.weight"), strict=True):
        assert torch.equal(module.weight, step.model.get_parameter(name).bfloat16())
        assert module.wide.count_nonzero() == module.weight.count_nonzero()


def test_what_others_read_of_a_weight_is_what_it_was() -> None:
    layer = nn.Conv2d(5, 7, 3)
    before = layer.weight.detach().clone()
    widen(nn.Sequential(layer))
    assert torch.equal(layer.weight, before)
    layer.weight.sum().backward()
    assert layer.wide.grad is not None
    assert layer.wide.grad.sum() == before.numel()


def test_the_gradient_of_a_channels_last_output_is_channels_last_in_its_whole_width() -> None:
    """A contiguous one would be copied once more before the convolution's backward pass."""
    layer = nn.Conv2d(16, 13, 3)
    widen(nn.Sequential(layer))
    images = torch.randn(2, 16, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    scores = layer(images).relu().sum()
    with Gradients() as gradients:
        scores.backward()
    (seen,) = gradients.seen
    assert seen.shape[1] == 16
    assert seen.is_contiguous(memory_format=torch.channels_last)


class Gradients(TorchDispatchMode):
    """Those that convolutions get from behind."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Tensor] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.convolution_backward.default:
            self.seen.append(args[0])
        return function(*args, **(kwargs or {}))
