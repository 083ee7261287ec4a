"""Weight gradients put aside are what they were, whatever a network does with its convolutions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from otprune.training.side_gradients import WeightGradientsAside

LATE = torch.ops.otprune.weight_gradient.default
# Compiling warns of things that are not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")


class Counting(WeightGradientsAside):
    """As it is, but it also tells how many gradients it put aside, and how many of them are late."""

    def __init__(self) -> None:
        self.aside = self.late = self.left = 0

    def __call__(self, graph: fx.Graph) -> None:
        super().__call__(graph)
        aside = [node for node in graph.nodes if node.target is LATE]
        self.aside += len(aside)
        self.late += sum(node.args[-1] for node in aside)
        left = (node for node in graph.nodes if node.target is torch.ops.aten.convolution_backward.default)
        self.left += sum(node.args[-1][1] for node in left)

    def uuid(self) -> Any:
        return None  # never cached, so that it always runs


class Shared(nn.Module):
    """A convolution that is used twice, so that its gradient is a sum, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.once = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.once(self.twice(self.twice(images).relu()).relu())
        return out


def chain() -> nn.Module:
    """Convolutions with and without biases, in groups, transposed, with strides."""
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, groups=2, stride=2, bias=False),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, 2, stride=2),
        nn.ReLU(),
        nn.Conv2d(6, 4, 1),
    )


@pytest.mark.parametrize(
    ("build", "aside", "late", "left"),
    [(chain, 4, 1, 0), (Shared, 1, 0, 2), (lambda: nn.Conv2d(4, 4, 3), 1, 0, 0)],
    ids=["chain", "shared", "alone"],
)
def test_gradients_are_what_they_were(build: Callable[[], nn.Module], aside: int, late: int, left: int) -> None:
    torch.manual_seed(0)
    net, images, put_aside = build(), torch.randn(2, 4, 8, 8), Counting()

    def loss(images: Tensor) -> Tensor:
        out: Tensor = net(images).square().mean()
        return out

    options: dict[str, Any] = {"post_grad_custom_post_pass": put_aside}
    parameters = list(net.parameters())
    expected = torch.autograd.grad(loss(images), parameters)
    found = torch.autograd.grad(torch.compile(loss, fullgraph=True, options=options)(images), parameters)
    torch.testing.assert_close(found, expected)
    assert (put_aside.aside, put_aside.late, put_aside.left) == (aside, late, left)
