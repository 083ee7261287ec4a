"""Cost: the paper's numbers to the last digit, every rule by hand, and a model that stays as it was."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from otprune import models
from otprune.cost import Cost, LayerCost, cost
from otprune.errors import ExampleError


def layer(result: Cost, name: str) -> LayerCost:
    return next(layer for layer in result.layers if layer.name == name)


def work(model: nn.Module, *shape: int) -> tuple[int, int]:
    result = cost(model, torch.randn(shape))
    assert result.uncounted == ()
    return result.macs, result.flops


@pytest.mark.parametrize(
    ("name", "num_classes", "size", "flops"),
    [
        ("vgg14", 10, 32, 314_589_174),
        ("vgg14", 100, 32, 314_681_244),
        ("densenet121", 10, 32, 908_210_166),
        ("densenet121", 100, 32, 908_394_396),
        ("resnet50", 10, 32, 1_311_580_150),
        ("vgg16_bn", 1000, 224, 15_661_659_160),
        ("preresnet50", 1000, 224, 4_136_490_008),
    ],
)
def test_flops_are_the_papers(name: str, num_classes: int, size: int, flops: int) -> None:
    if name in ("resnet50", "densenet121"):
        pytest.importorskip("torchvision")
    with torch.device("meta"):
        model = models.build(name, num_classes)
    assert cost(model, torch.empty(2, 3, size, size, device="meta")).flops == flops


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "vit_b_32"])
def test_macs_and_parameters_are_those_torchvision_publishes(name: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    with torch.device("meta"):
        model = torchvision.models.get_model(name)
    published = torchvision.models.get_model_weights(name).DEFAULT.meta
    counted = cost(model, torch.empty(1, 3, 224, 224, device="meta"))
    assert counted.parameters == published["num_params"]
    assert counted.macs / 1e9 == pytest.approx(published["_ops"], abs=5e-4)


@pytest.mark.parametrize(
    ("model", "shape", "macs", "flops"),
    [
        (nn.Conv2d(4, 6, 3, bias=False), (1, 4, 7, 7), 150 * 36, 150 * 36),
        (nn.Conv2d(4, 6, 3), (1, 4, 7, 7), 150 * 36, 150 * 36 + 150),
        (nn.Conv2d(4, 6, 3, groups=2), (1, 4, 7, 7), 150 * 18, 150 * 18 + 150),
        (nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4, bias=False), (1, 4, 8, 8), 64 * 9, 64 * 9),
        (nn.Conv1d(4, 6, 3, bias=False), (1, 4, 7), 30 * 12, 30 * 12),
        (nn.Conv3d(2, 3, 2, bias=False), (1, 2, 3, 3, 3), 24 * 16, 24 * 16),
        (nn.ConvTranspose2d(4, 6, 3, stride=2), (1, 4, 5, 5), 100 * 54, 100 * 54 + 6 * 121),
        (nn.ConvTranspose1d(4, 6, 2, groups=2, bias=False), (1, 4, 5), 20 * 6, 20 * 6),
        (nn.Linear(5, 3), (1, 5), 15, 3 * 9),
        (nn.Linear(5, 3, bias=False), (1, 7, 5), 105, 21 * 9),
        (nn.BatchNorm2d(3), (1, 3, 4, 4), 0, 4 * 48),
        (nn.BatchNorm1d(3), (2, 3), 0, 4 * 3),
        (nn.BatchNorm3d(3, affine=False), (1, 3, 2, 2, 2), 0, 4 * 24),
        (nn.AvgPool2d(2), (1, 3, 4, 4), 0, 3 * 12),
        (nn.AvgPool1d(3), (1, 2, 9), 0, 2 * 6),
        (nn.AvgPool3d(2), (1, 2, 4, 4, 4), 0, 7 * 16),
        (nn.AdaptiveAvgPool2d(1), (1, 3, 4, 4), 0, 0),
        (nn.AdaptiveAvgPool2d(2), (1, 3, 4, 4), 0, 0),
        (nn.MaxPool2d(2), (1, 3, 4, 4), 0, 0),
        (nn.Sequential(nn.ReLU(), nn.Hardswish(), nn.SiLU(), nn.PReLU(), nn.Dropout()), (1, 3, 4, 4), 0, 0),
        (nn.Sequential(nn.ZeroPad2d(1), nn.PixelShuffle(2), nn.ChannelShuffle(1), nn.Flatten()), (1, 4, 4, 4), 0, 0),
    ],
)
def test_one_operator_by_hand(model: nn.Module, shape: tuple[int, ...], macs: int, flops: int) -> None:
    assert work(model, *shape) == (macs, flops)


class Attention(nn.Module):
    def __init__(self, *, reads_data: bool) -> None:
        super().__init__()
        self.reads_data = reads_data

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.reads_data:
            int(query.argmax())
        return F.scaled_dot_product_attention(query, key, value)


@pytest.mark.parametrize("reads_data", [False, True])
def test_attention_is_two_matrix_products(reads_data: bool) -> None:
    example = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    result = cost(Attention(reads_data=reads_data), example)
    assert result.macs == 2 * 4 * 6 * (8 + 8)
    assert result.flops == 2 * (4 * 6 * 15 + 4 * 8 * 11)


class ReadsData(nn.Module):
    """A model that does not run without data, so that it is run for real."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        int(x.argmax())
        return self.inner(x)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (models.digits_net(), (2, 1, 8, 8)),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 4, 8)),
    ],
)
def test_a_real_run_counts_the_same_as_one_without_data(model: nn.Module, shape: tuple[int, ...]) -> None:
    abstract, real = cost(model, torch.randn(shape)), cost(ReadsData(model), torch.randn(shape))
    assert (real.parameters, real.macs, real.flops) == (abstract.parameters, abstract.macs, abstract.flops)
    assert real.macs > 0


def test_cost_is_that_of_one_image() -> None:
    model = models.digits_net()
    assert cost(model, torch.randn(1, 1, 8, 8)) == cost(model, torch.randn(5, 1, 8, 8))


def test_layers_are_in_the_models_order_and_add_up() -> None:
    result = cost(models.digits_net(), torch.randn(2, 1, 8, 8))
    assert [layer.name for layer in result.layers][:3] == ["conv", "bn", "blocks.0.conv1"]
    assert sum(layer.flops for layer in result.layers) == result.flops
    assert layer(result, "fc") == LayerCost("fc", parameters=650, macs=640, flops=1270)


class Borrower(nn.Module):
    """Multiplies by the weight of a layer that it does not call, and pools by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.lender = nn.Linear(4, 4, bias=False)
        self.pool = nn.Sequential(nn.AvgPool1d(2))

    def forward(self, x: Tensor) -> Tensor:
        product = F.linear(x, self.lender.weight)
        pooled: Tensor = self.pool(product.unsqueeze(1))
        return F.avg_pool1d(pooled, 2)


def test_work_goes_to_the_owner_of_the_weight_or_to_the_running_module() -> None:
    assert cost(Borrower(), torch.randn(1, 4)).layers == (
        LayerCost("lender", parameters=16, macs=16, flops=4 * 7),
        LayerCost("pool.0", parameters=0, macs=0, flops=2),
        LayerCost("(functional)", parameters=0, macs=0, flops=1),
    )


def test_a_bare_layer_is_the_whole_model() -> None:
    assert cost(nn.Linear(4, 2), torch.randn(1, 4)).layers == (LayerCost("(model)", 10, 8, 14),)


class Twice(nn.Module):
    """One conv run twice, and a second one with the first one's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1, bias=False)
        self.tied = nn.Conv2d(4, 4, 1, bias=False)
        self.tied.weight = self.conv.weight

    def forward(self, x: Tensor) -> Any:
        return self.tied(self.conv(self.conv(x)))


def test_shared_parameters_count_once_and_their_work_every_time() -> None:
    result = cost(Twice(), torch.randn(1, 4, 2, 2))
    assert (result.parameters, result.macs) == (16, 3 * 4 * 16)


def test_a_layer_that_does_not_run_costs_its_parameters_alone() -> None:
    model = models.digits_net()
    model.unused = nn.Linear(3, 3)
    assert layer(cost(model, torch.randn(1, 1, 8, 8)), "unused") == LayerCost("unused", 12, 0, 0)


def test_what_runs_is_what_counts() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.Conv2d(5, 2, 1, bias=False))
    kept = torch.tensor([0, 2, 3, 5, 7])
    model[1].register_forward_pre_hook(lambda module, args: (args[0].index_select(1, kept),))
    before = cost(model, torch.randn(1, 3, 4, 4))
    assert (before.macs, before.uncounted) == (16 * (3 * 8 + 5 * 2), ())
    model[0] = nn.Identity()
    model[1] = nn.Conv2d(3, 2, 1, bias=False)
    assert cost(model, torch.randn(1, 3, 4, 4)).macs == 16 * 3 * 2


def test_operators_without_a_rule_are_named() -> None:
    result = cost(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Softmax(dim=1)), torch.randn(1, 4))
    assert result.uncounted == ("aten._softmax", "aten.native_layer_norm")
    assert "not counted: aten._softmax, aten.native_layer_norm" in str(result)


def test_a_dict_of_keyword_arguments_is_an_example() -> None:
    query, key = torch.randn(3, 2, 4, 8), torch.randn(3, 2, 6, 8)
    result = cost(Attention(reads_data=False), {"query": query, "key": key, "value": key})
    assert result.macs == 2 * 4 * 6 * (8 + 8)


def test_the_model_stays_as_it_was() -> None:
    model = models.digits_net().train()
    model.get_submodule("blocks.1").eval()
    flags = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    identities = [id(parameter) for parameter in model.parameters()]
    cost(model, torch.randn(2, 1, 8, 8))
    assert [module.training for module in model.modules()] == flags
    assert [id(parameter) for parameter in model.parameters()] == identities
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_no_hook_for_all_modules_stays_behind_when_the_model_fails() -> None:
    with pytest.raises(ExampleError):
        cost(models.digits_net(), torch.randn(2, 3, 8, 8))
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("example", [torch.randn(0, 1, 8, 8), torch.tensor(1.0), (), {"x": 3}])
def test_an_example_without_an_image_is_refused(example: Any) -> None:
    with pytest.raises(ExampleError, match="batch of at least one"):
        cost(models.digits_net(), example)


def test_a_cost_goes_through_json() -> None:
    result = cost(models.digits_net(), torch.randn(1, 1, 8, 8))
    data = json.loads(json.dumps(result.to_dict()))
    assert (data["parameters"], data["macs"], data["flops"]) == (result.parameters, result.macs, result.flops)
    assert tuple(LayerCost(**entry) for entry in data["layers"]) == result.layers


def test_the_table_has_a_row_a_layer_and_the_totals() -> None:
    result = cost(models.digits_net(), torch.randn(1, 1, 8, 8))
    lines = str(result).splitlines()
    assert lines[0].split() == ["layer", "parameters", "MACs", "FLOPs"]
    assert len(lines) == len(result.layers) + 2
    assert len({len(line) for line in lines}) == 1
    assert lines[-1].split() == ["total", "169,834", "4,475,520", "4,537,590"]
