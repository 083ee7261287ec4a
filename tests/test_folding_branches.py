"""Constants of removed branches are folded into whatever reads the sum."""

import pytest
from torch import Tensor
from torch.nn import functional as F

import otprune as ot
from tests.checking import MaskRule, shrink
from tests.folding import differences, errors
from tests.net_layers import conv, linear, norm
from tests.toy_nets import ResidualIdentity, ResidualProjection, Toy, conv3, make
from tests.unchanged import unchanged


class LinearBottlenecks(Toy):
    """Branches added to a stream without activations, which later blocks, a batch norm and a pool read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        for block in (2, 3):
            self.add_module(f"expand{block}", conv(2, 6, 8))
            self.add_module(f"bn_expand{block}", norm(2, 8))
            self.add_module(f"project{block}", conv(2, 8, 6))
            self.add_module(f"bn{block}", norm(2, 6))
        self.bn_last, self.mix, self.head = norm(2, 6), conv(2, 6, 5, bias=True), linear(6, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.bn1(self.conv1(x)).relu()
        x = x + self.bn2(self.project2(self.bn_expand2(self.expand2(x)).relu()))
        x = x + self.bn3(self.project3(self.bn_expand3(self.expand3(x)).relu()))
        return self.head(F.max_pool2d(x, 2).mean((2, 3))), self.bn_last(x).relu(), self.mix(x)


def without(model: Toy, *layers: str) -> Toy:
    """Scaling factors of zero: these layers emit nothing but their shift, which they keep."""
    for layer in layers:
        gamma = model.get_parameter(f"{layer}.weight")
        shrink(model, {layer: list(range(len(gamma)))})
        gamma.data.zero_()
    return model


def errors_of_all(model: Toy) -> tuple[float, float]:
    """The largest error of any output, not folded and folded."""
    plan = ot.plan(model, model.example(), MaskRule())
    assert plan.removed
    before, after = (max(float(a.max()) for a in found) for found in differences(model, plan, model.example()))
    return before, after


@pytest.mark.parametrize("layers", [["bn2"], ["bn3"], ["bn2", "bn3"]], ids=" and ".join)
def test_the_constant_of_a_removed_branch_goes_into_every_layer_that_reads_the_sum(layers: list[str]) -> None:
    before, after = errors_of_all(without(make(LinearBottlenecks), *layers))
    assert before > 1e-2
    assert after < 1e-12


@pytest.mark.parametrize("layer", ["bn2", "bn_project"])
def test_the_constant_of_a_removed_branch_goes_into_the_layer_it_was_added_to(layer: str) -> None:
    before, after = errors_of_all(without(make(ResidualProjection), layer))
    assert before > 1e-2
    assert after < 1e-12


def test_the_constants_of_branches_on_channels_that_go_too() -> None:
    model = without(make(ResidualProjection), "bn2")
    model.head = conv(2, 8, 4, bias=True).double()
    shrink(model, {"bn_project": [1, 4]})
    model.get_parameter("bn_project.weight").data[[1, 4]] = 0
    before, after = errors_of_all(model)
    assert before > 1e-2
    assert after < 1e-12


def test_nothing_is_folded_of_a_branch_between_two_activations() -> None:
    model = without(make(ResidualIdentity), "bn3")
    plan = ot.plan(model, model.example(), MaskRule())
    small = ot.prune(model, plan)
    with unchanged(small):
        ot.fold_constants(small, model, plan)


def test_what_a_convolution_without_a_batch_norm_is_short_of_is_made_up_for_behind_the_sum() -> None:
    class Stream(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.conv2 = conv3(3, 6), norm(2, 6), conv(2, 6, 6)
            self.bn_last, self.head = norm(2, 6), conv(2, 6, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv1(x)
            return self.head(self.bn_last(x + self.conv2(self.bn1(x).relu())).relu())

    model = make(Stream)
    shrink(model, {"bn1": [1, 4]})
    model.bn1.weight.data[[1, 4]], model.bn1.bias.data[[1, 4]] = 0, 1.0
    before, after = errors(model, model.example())
    assert before.max() > 1e-2
    assert after.max() < 1e-12
