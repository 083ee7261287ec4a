"""Convolutions whose weights lie in wider tensors: the same outputs and gradients, and zeros that stay zeros."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from otprune.inputs import tensors_in
from otprune.training.wide_convolutions import WideConv2d, part_of, widen
from tests.toy_nets import TOYS, Toy, make, values
from tests.trained_steps import odd_vgg


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
    compared(make(toy).train(), *toy.example())


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
    first, second = nn.Conv2d(7, 7, 3), nn.Conv2d(7, 7, 3)
    second.weight = first.weight
    assert len(widen(nn.Sequential(first, second))) == 1
    assert isinstance(first, WideConv2d) and isinstance(second, WideConv2d)
    assert first.wide is second.wide


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
