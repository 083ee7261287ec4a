"""Bad input: one clear error that names the thing and the way out, and everything is left as it was."""

import math
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.errors import (
    CheckpointError,
    ExampleError,
    ModelError,
    OtpruneError,
    PenaltyError,
    PlanError,
    ThresholdError,
    VerificationError,
)
from tests.checking import MaskRule, shrink
from tests.net_layers import conv, norm
from tests.toy_nets import InPlace, PreActivation, ResidualIdentity, Sequential, Toy, TwoReaders, conv3, make
from tests.unchanged import unchanged

THIS_FILE = Path(__file__).name


def refused(error: type[OtpruneError], *words: str, models: tuple[nn.Module, ...], call: Callable[[], Any]) -> str:
    """The message of the error that `call` raises: of that very class, with all of the words, nothing changed."""
    with unchanged(*models), pytest.raises(OtpruneError) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error, f"{type(caught.value).__name__}: {message}"
    for word in words:
        assert word in message, message
    return message


def busy(model: nn.Module) -> nn.Module:
    """A model in the middle of training: mixed modes, gradients, a hook of the user's."""
    model.train()
    next(iter(model.children())).eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model.register_forward_hook(lambda module, inputs, out: None)
    return model


def line_of(source: Callable[..., Any], text: str) -> str:
    """`file:line` of the one line of a function that holds `text`."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    start = source.__code__.co_firstlineno
    found = [number for number in range(start, start + 30) if text in lines[number - 1]]
    return f"{THIS_FILE}:{found[0]}"


def lines_in(message: str) -> list[str]:
    return re.findall(r"[\w.]+\.py:\d+", message)


class TestModels:
    def test_without_a_batch_norm(self) -> None:
        model = busy(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)))
        example = torch.randn(2, 3, 8, 8)
        refused(
            ModelError, "Sequential has no batch norm", "Put BatchNorm layers",
            models=(model,), call=lambda: ot.plan(model, example),
        )  # fmt: skip
        refused(PenaltyError, "no batch norm", "affine=True", models=(model,), call=lambda: ot.L1Penalty(model, 1e-4))
        refused(ModelError, "no batch norm", models=(model,), call=lambda: ot.recalibrate(model, [example]))

    def test_with_batch_norms_that_have_no_scaling_factors(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), nn.Conv2d(4, 2, 1))
        refused(
            ModelError, "no batch norm with scaling factors",
            models=(model,), call=lambda: ot.plan(model, torch.zeros(2, 3, 8, 8)),
        )  # fmt: skip

    def test_wrapped_in_data_parallel(self) -> None:
        model = make(Sequential)
        self._refused_everywhere(nn.DataParallel(model), model, "DataParallel", "model.module")

    def test_wrapped_in_distributed_data_parallel(self, process_group: None) -> None:
        model = make(Sequential)
        wrapped = nn.parallel.DistributedDataParallel(model)
        self._refused_everywhere(wrapped, model, "DistributedDataParallel", "model.module")

    def test_wrapped_by_torch_compile(self) -> None:
        model = make(Sequential)
        self._refused_everywhere(torch.compile(model, backend="eager"), model, "torch.compile", "model._orig_mod")

    def test_compiled_in_place(self) -> None:
        model = make(Sequential)
        plan = ot.plan(model, model.example())
        model.compile(backend="eager")
        self._refused_everywhere(model, model, "compiled in place", "compile the result", plan=plan)

    def test_with_a_part_compiled_in_place(self) -> None:
        model = make(Sequential)
        model.conv2.compile(backend="eager")
        refused(ModelError, "conv2 was compiled", models=(model,), call=lambda: ot.plan(model, model.example()))

    @pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
    def test_scripted(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        scripted = torch.jit.script(model)
        refused(
            ModelError, "ScriptModule", "the module it was made from",
            models=(model,), call=lambda: ot.plan(scripted, torch.zeros(1, 3, 8, 8)),
        )  # fmt: skip

    def _refused_everywhere(self, wrapped: Any, model: Toy, *words: str, plan: ot.PruningPlan | None = None) -> None:
        made = plan or ot.plan(model, model.example())
        target = Path("never-written.safetensors")
        for call in (
            lambda: ot.plan(wrapped, model.example()),
            lambda: ot.trace(wrapped, model.example()),
            lambda: ot.prune(wrapped, made),
            lambda: ot.save(wrapped, target),
        ):
            refused(ModelError, *words, models=(model,), call=call)
        assert not target.exists()

    @pytest.fixture
    def process_group(self, tmp_path: Path) -> Iterator[None]:
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", world_size=1, rank=0)
        yield
        torch.distributed.destroy_process_group()


class BranchesOnData(Sequential):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        if x.sum() > 0:
            x = -x
        return self.head(torch.relu(self.bn2(self.conv2(x))))


class AssertsOnData(Sequential):
    def forward(self, x: Tensor) -> Tensor:
        assert (x < 1e9).all()
        return super().forward(x)


class LoopsOnData(Sequential):
    def forward(self, x: Tensor) -> Tensor:
        while bool(x.abs().max() > 1):
            x = x / 2
        return super().forward(x)


@pytest.mark.parametrize(
    ("toy", "culprit"),
    [
        (BranchesOnData, "if x.sum() > 0"),
        (AssertsOnData, "assert (x < 1e9)"),
        (LoopsOnData, "while bool("),
    ],
)
def test_a_model_that_branches_on_data(toy: type[Toy], culprit: str) -> None:
    model = busy(make(toy))
    refused(
        ModelError, "branches on its data", line_of(toy.forward, culprit), "torch.where",
        models=(model,), call=lambda: ot.plan(model, toy.example()),
    )  # fmt: skip


class TestThresholds:
    @pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan, math.inf, "1e-3", None])
    def test_delta_outside_of_its_range(self, delta: Any) -> None:
        for call in (
            lambda: ot.OptimalThreshold(delta=delta),
            lambda: ot.optimal_threshold(torch.ones(3), delta),
            lambda: ot.separation(torch.ones(3), delta),
        ):
            refused(ThresholdError, "δ must lie strictly between 0 and 1", repr(delta), "1e-3", models=(), call=call)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("rule", [ot.OptimalThreshold(), ot.GlobalRatio(0.5), ot.Shifted(ot.OptimalThreshold(), 1)])
    def test_scaling_factors_that_are_not_finite(self, rule: Any, value: float) -> None:
        model = busy(make(Sequential))
        model.get_parameter("bn2.weight").data[3] = value
        refused(
            ThresholdError, "layer bn2", "NaN or infinite", "Load weights from before",
            models=(model,), call=lambda: ot.plan(model, Sequential.example(), rule),
        )  # fmt: skip

    def test_scaling_factors_that_are_not_finite_in_a_layer_left_alone(self) -> None:
        model = make(Sequential)
        model.get_parameter("bn2.weight").data[3] = math.nan
        assert [len(layer.kept) for layer in ot.plan(model, model.example(), ignore=["bn2"]).layers][1] == 8

    @pytest.mark.parametrize("rule", [ot.OptimalThreshold(), ot.GlobalRatio(0.2)])
    def test_a_layer_whose_scaling_factors_are_all_zero(self, rule: Any) -> None:
        model = busy(make(Sequential))
        model.get_parameter("bn1.weight").data.zero_()
        refused(
            ThresholdError, "layer bn1", "all scaling factors are zero", "smaller λ", 'ignore=["bn1"]',
            models=(model,), call=lambda: ot.plan(model, Sequential.example(), rule),
        )  # fmt: skip
        left_alone = ot.plan(model, Sequential.example(), rule, ignore=["bn1"])
        assert len(left_alone.layers[0].kept) == left_alone.layers[0].channels

    @pytest.mark.parametrize("toy", [ResidualIdentity, InPlace])
    @pytest.mark.parametrize("rule", [ot.OptimalThreshold(), ot.GlobalRatio(0.2)])
    def test_a_branch_whose_last_scaling_factors_are_all_zero_goes(self, toy: type[Toy], rule: Any) -> None:
        model = make(toy)
        last = {"ResidualIdentity": "bn3", "InPlace": "bn2"}[toy.__name__]
        model.get_parameter(f"{last}.weight").data.zero_()
        plan = ot.plan(model, toy.example(), rule)
        assert last in plan.removed
        assert ot.verify(model, ot.prune(model, plan), plan, toy.example()).relative < 1e-9

    def test_every_scaling_factor_of_the_network_zero(self) -> None:
        model = make(ResidualIdentity)
        for name in ("bn1", "bn2", "bn3"):
            model.get_parameter(f"{name}.weight").data.zero_()
        refused(
            ThresholdError, "no layer of the network", "smaller λ",
            models=(model,), call=lambda: ot.plan(model, model.example()),
        )  # fmt: skip


@pytest.mark.parametrize("lam", [-1e-4, math.nan, math.inf, torch.tensor(-1.0), torch.tensor(math.nan)])
@pytest.mark.parametrize("penalty", [ot.L1Penalty, ot.ProximalL1])
def test_a_penalty_that_is_negative_or_no_number(penalty: Any, lam: Any) -> None:
    model = busy(make(Sequential))
    refused(
        PenaltyError, "λ must be finite and not negative", repr(float(lam)), "1e-4",
        models=(model,), call=lambda: penalty(model, lam=lam),
    )  # fmt: skip
    working = penalty(model, lam=1e-4)
    with pytest.raises(PenaltyError):
        working.lam = lam
    assert working.lam == 1e-4


class TestExamples:
    @pytest.mark.parametrize(
        ("example", "named"),
        [
            (torch.zeros(2, 4, 8, 8, dtype=torch.float64), "(2, 4, 8, 8)"),
            (torch.zeros(3, 8, dtype=torch.float64), "(3, 8)"),
            ({"image": torch.zeros(2, 3, 8, 8, dtype=torch.float64)}, "(2, 3, 8, 8)"),
            ((torch.zeros(2, 3, 8, 8, dtype=torch.float64), 1), "(2, 3, 8, 8)"),
            ("an image", "str"),
        ],
        ids=["channels", "rank", "keyword", "too-many", "text"],
    )
    def test_that_the_model_does_not_take(self, example: Any, named: str) -> None:
        model = busy(make(Sequential))
        for call in (lambda: ot.plan(model, example), lambda: ot.trace(model, example)):
            refused(
                ExampleError, f"Sequential does not run on the example of shape {named}", "Pass an example",
                models=(model,), call=call,
            )  # fmt: skip

    def test_of_the_wrong_shape_names_the_line_that_fails(self) -> None:
        model = make(HardCodedView)
        message = refused(
            ExampleError, "(2, 3, 9, 8)",
            models=(model,), call=lambda: ot.plan(model, torch.zeros(2, 3, 9, 8, dtype=torch.float64)),
        )  # fmt: skip
        assert lines_in(message) == [line_of(HardCodedView.forward, "x.view(-1")]

    @pytest.mark.parametrize("size", [1, 2])
    def test_too_small_for_a_kernel(self, size: int) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))
        refused(
            ExampleError, f"(1, 3, {size}, {size})", "Kernel size",
            models=(model,), call=lambda: ot.plan(model, torch.zeros(1, 3, size, size)),
        )  # fmt: skip

    def test_that_a_plan_cannot_write_down(self) -> None:
        model = make(Sequential)
        refused(
            PlanError, "the example holds a object", "use tensors",
            models=(model,), call=lambda: ot.plan(model, {"x": object()}),
        )  # fmt: skip


class TestLimits:
    @pytest.mark.parametrize(
        ("limits", "word"),
        [
            ({"ignore": "bn1"}, 'ignore=["bn1"]'),
            ({"ignore": ["bn7"]}, "'bn7', which is no layer"),
            ({"round_to": 0}, "round_to is 0"),
            ({"max_ratio": 1.5}, "max_ratio is 1.5"),
            ({"max_ratio": -0.5}, "max_ratio is -0.5"),
            ({"max_ratio": math.nan}, "max_ratio is nan"),
        ],
    )
    def test_that_make_no_sense(self, limits: Any, word: str) -> None:
        model = busy(make(Sequential))
        refused(PlanError, word, models=(model,), call=lambda: ot.plan(model, Sequential.example(), **limits))


class TestPlans:
    def test_for_another_model(self) -> None:
        model, other = make(Sequential), busy(make(ResidualIdentity))
        shrink(model, {"bn1": [0]})
        plan = ot.plan(model, model.example())
        refused(
            PlanError, "another model (Sequential)", "Make a new plan for this ResidualIdentity",
            models=(model, other), call=lambda: ot.prune(other, plan),
        )  # fmt: skip

    def test_for_a_model_of_other_sizes_names_the_tensor(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))
        wider = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 2, 1))
        shrink(model, {"1": [0]})
        plan = ot.plan(model, torch.zeros(1, 3, 8, 8))
        refused(
            PlanError, "expects 0.weight of shape (4, 3, 3, 3), which has shape (6, 3, 3, 3)",
            models=(model, wider), call=lambda: ot.prune(wider, plan),
        )  # fmt: skip

    def test_applied_a_second_time(self) -> None:
        model = make(Sequential)
        shrink(model, {"bn1": [0]})
        plan = ot.plan(model, model.example())
        small = ot.prune(model, plan)
        refused(PlanError, "another model", models=(small,), call=lambda: ot.prune(small, plan))

    def test_for_a_model_that_selects_other_channels(self) -> None:
        small = {}
        for key, dropped in {"one": [0, 1], "other": [2, 3]}.items():
            model = make(TwoReaders)
            shrink(model, {"bn1": dropped})
            small[key] = ot.prune(model, ot.plan(model, model.example()))
        assert {key: tuple(tensor.shape) for key, tensor in small["one"].state_dict().items()} == {
            key: tuple(tensor.shape) for key, tensor in small["other"].state_dict().items()
        }
        plan = ot.plan(small["one"], TwoReaders.example())
        refused(
            PlanError, "selected differently",
            models=(small["other"],), call=lambda: ot.prune(small["other"], plan),
        )  # fmt: skip

    @pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", "{}", '{"format": 99}', '{"format": 1}', "\0"])
    def test_damaged(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "plan.json"
        path.write_text(text)
        refused(PlanError, "plan.json", "plan", models=(), call=lambda: ot.PruningPlan.load(path))

    def test_of_bytes(self, tmp_path: Path) -> None:
        path = tmp_path / "plan.json"
        path.write_bytes(b"\x80\x04\xff")
        refused(PlanError, "plan.json", "plan.save(path)", models=(), call=lambda: ot.PruningPlan.load(path))

    def test_of_another_model_for_fold_constants(self) -> None:
        model, other = make(Sequential), make(ResidualIdentity)
        plan = ot.plan(model, model.example())
        small = ot.prune(model, plan)
        for call in (
            lambda: ot.fold_constants(small, other, plan),
            lambda: ot.fold_constants(model, model, plan),
            lambda: ot.fold_constants(small, model, ot.plan(other, other.example())),
        ):
            refused(PlanError, "the model that was planned", models=(model, other, small), call=call)


class HardCodedView(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = nn.Linear(6 * 8 * 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x.view(-1, 6 * 8 * 8))


class HardCodedGroups(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        shuffled = x.view(2, 2, 3, 8, 8).transpose(1, 2)
        return self.head(shuffled.flatten(1, 2))


class HardCodedSplit(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.conv3 = conv3(3, 4), conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        one, other = torch.relu(self.bn1(self.conv1(x))).split(3, dim=1)
        return self.conv2(one) + self.conv3(other)


class HardCodedSplitNormalized(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.bn2, self.bn3 = norm(2, 3), norm(2, 3)
        self.head = conv(2, 6, 4, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        one, other = torch.relu(self.bn1(self.conv1(x))).split(3, dim=1)
        one = self.bn2(one)
        return self.head(torch.cat([one, self.bn3(other)], 1))


@pytest.mark.parametrize(
    ("toy", "mask", "culprit"),
    [
        (HardCodedView, [1], "x.view(-1"),
        (HardCodedGroups, [1, 4], "x.view(2, 2, 3"),
        (HardCodedSplit, [1, 4], "self.conv2(one)"),
        (HardCodedSplitNormalized, [1, 4], "self.bn2(one)"),
    ],
)
def test_a_forward_that_counts_on_its_sizes(toy: type[Toy], mask: list[int], culprit: str) -> None:
    model = busy(make(toy))
    shrink(model, {"bn1": mask})
    plan = ot.plan(model, toy.example(), MaskRule())
    message = refused(
        VerificationError, "does not run", "from the tensor's own shape", "ignore=[...]",
        models=(model,), call=lambda: ot.prune(model, plan),
    )  # fmt: skip
    assert lines_in(message) == [line_of(toy.forward, culprit)]
    left_alone = ot.plan(model, toy.example(), MaskRule(), ignore=["bn1"])
    assert ot.verify(model, ot.prune(model, left_alone), left_alone, toy.example()).relative < 1e-9


class TwiceNormalized(Toy):
    """One batch norm module called at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.conv2 = conv3(3, 6), norm(2, 6), conv3(6, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn1(self.conv2(x))))


def test_a_batch_norm_called_twice_goes_on_working() -> None:
    model = make(TwiceNormalized)
    shrink(model, {"bn1": [0, 4]})
    plan = ot.plan(model, model.example(), MaskRule())
    assert [layer.name for layer in plan.layers] == ["bn1"]
    assert plan.layers[0].kept == [1, 2, 3, 5]
    assert ot.verify(model, ot.prune(model, plan), plan, model.example()).relative < 1e-9


class TestVerify:
    def test_outputs_that_do_not_depend_on_inputs(self) -> None:
        model = make(Sequential)
        plan = ot.plan(model, model.example())
        model.get_parameter("head.weight").data.zero_()
        model.head.bias = nn.Parameter(torch.ones(4, dtype=torch.float64))
        small = ot.prune(model, ot.plan(model, model.example()))
        refused(
            VerificationError, "do not depend on its inputs",
            models=(model, small), call=lambda: ot.verify(model, small, plan, model.example()),
        )  # fmt: skip

    @pytest.mark.parametrize("first", [True, False])
    def test_outputs_that_are_not_finite(self, first: bool) -> None:
        class WithRoot(Sequential):
            def forward(self, x: Tensor) -> Any:
                out = super().forward(x)
                return (out.sqrt(), out) if first else (out, out.sqrt())

        model = make(WithRoot)
        plan = ot.plan(model, model.example())
        small = ot.prune(model, plan)
        refused(
            VerificationError, f"output[{0 if first else 1}]", "not finite",
            models=(model, small), call=lambda: ot.verify(model, small, plan, model.example()),
        )  # fmt: skip

    def test_a_wrong_model_is_told_apart_from_the_right_one(self) -> None:
        model = make(Sequential)
        shrink(model, {"bn1": [0], "bn2": [1, 2]})
        plan = ot.plan(model, model.example())
        small = ot.prune(model, plan)
        small.get_parameter("bn1.bias").data[2] += 1e-3
        with unchanged(model, small):
            found = ot.verify(model, small, plan, model.example())
        assert found.relative > 1e-6 and found.first_layer == "bn1"


class TestCheckpoints:
    @pytest.fixture
    def saved(self, tmp_path: Path) -> Path:
        model = make(PreActivation)
        shrink(model, {"bn1": [0, 2], "bn2": [1]})
        ot.save(ot.prune(model, ot.plan(model, model.example())), tmp_path / "small.safetensors")
        return tmp_path / "small.safetensors"

    @pytest.mark.parametrize("share", [0, 0.001, 0.02, 0.3, 0.6, 0.9, 0.999])
    @pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
    def test_truncated(self, kind: str, share: float, saved: Path, tmp_path: Path) -> None:
        model, path = busy(make(PreActivation)), tmp_path / "model"
        if kind == "safetensors":
            content = saved.read_bytes()
        else:
            torch.save(model.state_dict(), path, _use_new_zipfile_serialization=kind == "zip")
            content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])
        refused(CheckpointError, str(path), models=(model,), call=lambda: ot.load(model, path))

    @pytest.mark.parametrize(
        "content", [b"", b"{}", b"PK\3\4 no archive", b"\x89PNG\r\n", b"\x80\x02\x95", b"x" * 10000]
    )
    def test_foreign(self, content: bytes, tmp_path: Path) -> None:
        model, path = busy(make(Sequential)), tmp_path / "model"
        path.write_bytes(content)
        refused(CheckpointError, str(path), "state dict", models=(model,), call=lambda: ot.load(model, path))

    def test_missing(self, tmp_path: Path) -> None:
        model = make(Sequential)
        for path in (tmp_path / "nothing", tmp_path):
            refused(CheckpointError, f"{path}: no such file", models=(model,), call=lambda p=path: ot.load(model, p))

    def test_of_another_class(self, saved: Path) -> None:
        model = busy(make(Sequential))
        refused(
            CheckpointError, str(saved), "saved from a PreActivation, not a Sequential", "Build the model",
            models=(model,), call=lambda: ot.load(model, saved),
        )  # fmt: skip

    @pytest.mark.parametrize("plans", ["", "5", "null", "[5]", '"a"', "[{}]", '[{"format": 1}]', '[{"format": 99}]'])
    def test_with_a_damaged_plan(self, plans: str, tmp_path: Path) -> None:
        model, path = busy(make(Sequential)), tmp_path / "model"
        safetensors.torch.save_file(make(Sequential).state_dict(), path, {"otprune.plans": plans})
        refused(
            CheckpointError, str(path), "plan inside is damaged", models=(model,), call=lambda: ot.load(model, path)
        )

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_a_pickle_is_not_executed(self, protocol: int, tmp_path: Path) -> None:
        model, path = busy(make(Sequential)), tmp_path / "model.pt"
        path.write_bytes(pickle.dumps(Executed(tmp_path / "executed"), protocol))
        refused(CheckpointError, str(path), "state dict", models=(model,), call=lambda: ot.load(model, path))
        assert not (tmp_path / "executed").exists()

    @pytest.mark.parametrize("zipped", [True, False])
    @pytest.mark.parametrize("beside_weights", [True, False])
    def test_a_pickle_that_torch_wrote_is_not_executed(
        self, zipped: bool, beside_weights: bool, tmp_path: Path
    ) -> None:
        model, path = busy(make(Sequential)), tmp_path / "model.pt"
        bomb = Executed(tmp_path / "executed")
        content = {**model.state_dict(), "bomb": bomb} if beside_weights else bomb
        torch.save(content, path, _use_new_zipfile_serialization=zipped)
        refused(CheckpointError, str(path), "state dict", models=(model,), call=lambda: ot.load(model, path))
        assert not (tmp_path / "executed").exists()

    def test_the_pickle_would_have_been_executed(self, tmp_path: Path) -> None:
        pickle.loads(pickle.dumps(Executed(tmp_path / "executed")))
        assert (tmp_path / "executed").exists()

    def test_a_whole_model_saved_by_torch(self, tmp_path: Path) -> None:
        model, path = make(Sequential), tmp_path / "model.pt"
        torch.save(model, path)
        refused(
            CheckpointError, str(path), "torch.save(model.state_dict(), path)",
            models=(model,), call=lambda: ot.load(model, path),
        )  # fmt: skip

    def test_a_training_checkpoint_says_to_save_the_state_dict_alone(self, tmp_path: Path) -> None:
        model, path = make(Sequential), tmp_path / "model.pt"
        torch.save({"model": model.state_dict(), "epoch": 3}, path)
        refused(
            CheckpointError,
            str(path),
            "Save model.state_dict() alone",
            models=(model,),
            call=lambda: ot.load(model, path),
        )


class Executed:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


class TestSavingFails:
    def test_in_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        model = make(Sequential)
        with unchanged(model), pytest.raises(CheckpointError, match=r"there is no folder .*nowhere; make it first"):
            ot.save(model, tmp_path / "nowhere" / "model.safetensors")
        assert list(tmp_path.iterdir()) == []

    def test_over_a_folder(self, tmp_path: Path) -> None:
        target = tmp_path / "folder"
        target.mkdir()
        with pytest.raises(OSError, match="folder"):
            ot.save(make(Sequential), target)
        assert list(tmp_path.iterdir()) == [target]

    def test_when_the_disk_is_full_the_old_files_stay_whole(self, tmp_path: Path) -> None:
        """A limit on the size of files stands for the full disk: the write breaks off in the middle."""
        old = {tmp_path / "model": b"the old model", tmp_path / "plan": b"the old plan"}
        for path, content in old.items():
            path.write_bytes(content)
        done = subprocess.run(
            [sys.executable, "-B", "-c", textwrap.dedent(SAVES_ON_A_FULL_DISK), *map(str, old)],
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == ["EFBIG", "EFBIG"], done.stderr
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == old


SAVES_ON_A_FULL_DISK = """
    import errno, resource, signal, sys
    import otprune as ot
    from tests.toy_nets import Sequential, make

    model = make(Sequential)
    plan = ot.plan(model, model.example())
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
    for save in (lambda: ot.save(model, sys.argv[1]), lambda: plan.save(sys.argv[2])):
        try:
            save()
        except OSError as error:
            print(errno.errorcode[error.errno])
"""
