"""Models in the style people write them, each of which once came out wrong, crashed, or was changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import otprune as ot
from otprune.errors import VerificationError
from tests.checking import MaskRule, Outcome, check_model, shrink
from tests.net_layers import conv, norm
from tests.toy_nets import Toy, conv3, make
from tests.unchanged import unchanged

EVERYTHING = list(range(6))
Mask = dict[str, list[int]]
Rest = Callable[[Any, Tensor, Tensor], Any]


def net(rest: Rest, **layers: Callable[[], Any]) -> type[Toy]:
    """A network that runs its input through two convs with batch norms, and hands both results to `rest`."""

    class Net(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
            self.conv2, self.bn2 = conv3(3, 6), norm(2, 6)
            self.head, self.other = conv(2, 6, 4, bias=True), conv(2, 6, 4, bias=True)
            for name, layer in layers.items():
                setattr(self, name, layer())

        def forward(self, x: Tensor) -> Any:
            return rest(self, self.bn1(self.conv1(x)), self.bn2(self.conv2(x)))

    return Net


def outcome(toy: type[Toy], mask: Mask) -> Outcome:
    """Pruned equals masked on inputs that matter, and the pruned network still trains."""
    model = make(toy)
    found = check_model(model, toy.example(), mask)
    assert found.informative
    trained = ot.prune(model, ot.plan(model, toy.example(), MaskRule())).train()
    result = trained(*toy.example())
    (result[0] if isinstance(result, tuple) else result).sum().backward()
    return found


def refusal(toy: type[Toy], mask: Mask) -> str:
    model = make(toy)
    shrink(model, mask)
    plan = ot.plan(model, toy.example(), MaskRule())
    with unchanged(model), pytest.raises(VerificationError) as caught:
        ot.prune(model, plan)
    return str(caught.value)


MEETINGS: dict[str, tuple[Rest, dict[str, Callable[[], Any]]]] = {
    "along the height": (lambda m, a, b: m.head(torch.cat([a, b], 2)), {}),
    "along the batch": (lambda m, a, b: m.head(torch.cat([a, b])), {}),
    "in one batch norm": (lambda m, a, b: m.head(m.bn3(torch.cat([a, b], 3)).relu()), {"bn3": lambda: norm(2, 6)}),
    "stacked": (lambda m, a, b: m.deep(torch.stack([a, b], 2)), {"deep": lambda: conv(3, 6, 4)}),
}


@pytest.mark.parametrize("how", MEETINGS)
def test_a_channel_that_is_zero_at_some_positions_only_stays(how: str) -> None:
    rest, layers = MEETINGS[how]
    found = outcome(net(rest, **layers), {"bn1": [0, 1, 2], "bn2": [2, 3]})
    assert found.removed == (3 if "bn3" in layers else 2)


def test_pixels_of_one_channel_go_together_or_stay() -> None:
    toy = net(
        lambda m, a, b: m.small(F.pixel_shuffle(m.bn3(m.wide(a + b)), 2)),
        wide=lambda: conv3(6, 12),
        bn3=lambda: norm(2, 12),
        small=lambda: conv(2, 3, 4),
    )
    assert outcome(toy, {"bn3": [0, 1, 4, 5, 6, 7]}).removed == 4


def test_a_branch_that_goes_is_masked_even_if_a_gate_ties_it_to_what_stays() -> None:
    toy = net(lambda m, a, b: m.head(a * torch.sigmoid(b) + b * (1 - torch.sigmoid(b))))
    assert outcome(toy, {"bn1": EVERYTHING}).removed == 6


def in_place_on_the_operand(m: Any, a: Tensor, b: Tensor) -> Tensor:
    summed = a + b
    changed = m.relu(a)
    found: Tensor = m.head(summed) + m.other(changed)
    return found


def multiplied_in_place(m: Any, a: Tensor, b: Tensor) -> Tensor:
    summed = a + b
    a.mul_(3)
    found: Tensor = m.head(summed) + m.other(a)
    return found


def set_in_place(m: Any, a: Tensor, b: Tensor) -> Tensor:
    summed = a + b
    summed[:, :, 0] = 5
    return m.head(summed) + m.other(a)


@pytest.mark.parametrize("rest", [in_place_on_the_operand, multiplied_in_place, set_in_place])
def test_a_sum_and_the_operand_left_of_it_are_not_mixed_up(rest: Rest) -> None:
    model = make(net(rest, relu=lambda: nn.ReLU(inplace=True)))
    check_model(model, Toy.example(), {"bn2": EVERYTHING})


def test_branches_added_in_place_one_after_the_other_all_go() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        a += b
        a += m.bn3(m.conv3(a.relu()))
        return m.head(F.relu_(a))

    toy = net(rest, conv3=lambda: conv3(6, 6), bn3=lambda: norm(2, 6))
    assert outcome(toy, {"bn2": EVERYTHING, "bn3": EVERYTHING}).removed == 12


def test_an_in_place_module_whose_result_is_ignored_is_refused() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        summed = a + b
        m.relu(summed)
        return m.head(summed)

    message = refusal(net(rest, relu=lambda: nn.ReLU(inplace=True)), {"bn2": EVERYTHING})
    assert "layer relu" in message and "x = self.relu(x)" in message


def test_an_in_place_module_whose_reader_went_with_a_branch_is_none_of_those() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        found: Tensor = m.head(a + b) + m.other(a + b * m.relu(a + b))
        return found

    assert outcome(net(rest, relu=lambda: nn.ReLU(inplace=False)), {"bn2": EVERYTHING}).removed == 6
    check_model(make(net(rest, relu=lambda: nn.ReLU(inplace=True))), Toy.example(), {"bn2": EVERYTHING})


class BatchStatistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("var", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, training=True, momentum=0)  # type: ignore[arg-type]


def test_a_constant_is_lost_on_a_batch_norm_that_goes_by_its_batch() -> None:
    toy = net(lambda m, a, b: m.head(m.layer(a.sigmoid())) + m.other(b), layer=BatchStatistics)
    assert outcome(toy, {"bn1": [0, 3]}).removed == 0


@pytest.mark.parametrize("shared", ["weight", "bias"])
def test_batch_norms_that_share_half_their_parameters_are_left_alone(shared: str) -> None:
    def tied() -> nn.Module:
        pair = nn.ModuleList([nn.BatchNorm2d(6), nn.BatchNorm2d(6)])
        setattr(pair[1], shared, getattr(pair[0], shared))
        return pair

    toy = net(lambda m, a, b: m.head(m.bns[0](a).sigmoid()) + m.other(m.bns[1](b).sigmoid()), bns=tied)
    assert outcome(toy, {"bn1": [0, 1], "bns.0": [0, 1], "bns.1": [0]}).removed == 0


ABSORBERS: dict[str, tuple[Rest, bool]] = {
    "bias": (lambda m, a, b: m.head(m.mix(a.sigmoid())) + m.other(b * m.mix.bias.view(-1, 1, 1)), True),
    "mean": (
        lambda m, a, b: m.head(m.bn3(m.mix(a.sigmoid()))) + m.other(b * m.bn3.running_mean.view(-1, 1, 1)),
        False,
    ),
}


@pytest.mark.parametrize("kind", ABSORBERS)
def test_no_constant_goes_into_a_tensor_that_others_read(kind: str) -> None:
    rest, bias = ABSORBERS[kind]
    toy = net(rest, mix=lambda: conv(2, 6, 6, bias=bias), bn3=lambda: norm(2, 6))
    assert outcome(toy, {"bn1": [0, 1]}).removed == 0


OVER_CHANNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "shifted": lambda x: F.pad(x, (0, 0, 0, 0, 1, -1)),
    "largest of neighbours": lambda x: F.max_pool2d(x.transpose(1, 3), (1, 3), 1, (0, 1)).transpose(1, 3),
    "average of neighbours": lambda x: F.avg_pool2d(x.transpose(1, 3), (1, 3), 1, (0, 1)).transpose(1, 3),
    "interpolated": lambda x: F.interpolate(x.transpose(1, 3), (8, 6), mode="bilinear").transpose(1, 3),
    "reflected": lambda x: F.pad(x.flatten(2).transpose(1, 2), (1, -1), "reflect").transpose(1, 2).view(x.shape),
}


@pytest.mark.parametrize("how", OVER_CHANNELS)
def test_what_moves_channels_without_changing_their_number_freezes_them(how: str) -> None:
    toy = net(lambda m, a, b: m.head(OVER_CHANNELS[how](a)) + m.other(b))
    assert outcome(toy, {"bn1": [0, 3]}).removed == 0


def test_places_of_maxima_have_channels_too() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        largest, places = F.max_pool2d(a, 2, return_indices=True)
        return m.head(largest) + places.double().mean((1, 2, 3)).view(-1, 1, 1, 1) + m.other(b).mean()

    assert outcome(net(rest), {"bn1": [0, 3]}).removed == 0


WEIGHTS_ELSEWHERE: dict[str, Rest] = {
    "concatenated": lambda m, a, b: m.mix(a).mean() + F.conv2d(b, torch.cat([m.mix.weight, m.more.weight])).sum(1),
    "stacked": lambda m, a, b: m.mix(a).mean() + F.conv2d(b, torch.stack([m.mix.weight, m.more.weight]).sum(0)),
    "flipped": lambda m, a, b: m.mix(a) + F.conv2d(b, m.mix.weight.flip(1)),
    "scaled product": lambda m, a, b: torch.addmm(m.head.bias, a.sigmoid().mean((2, 3)), m.flat.t(), beta=0.5, alpha=3),
    "batched product": lambda m, a, b: m.bn3(
        torch.bmm(a.sigmoid().flatten(2).permute(2, 0, 1)[:3], m.solid.permute(2, 1, 0)).flatten(0, 1)
    ),
    "one bias for all": lambda m, a, b: m.bn3(F.linear(a.mean((2, 3)), m.flat5, m.single)),
}


@pytest.mark.parametrize("how", WEIGHTS_ELSEWHERE)
def test_weights_that_are_more_than_a_layer_s_own(how: str) -> None:
    class Stacked(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.conv2, self.bn2 = conv3(3, 6), norm(2, 6), conv3(3, 6), norm(2, 6)
            self.head, self.mix, self.more = conv(2, 6, 4, bias=True), conv(2, 6, 6), conv(2, 6, 6)
            self.flat, self.flat5 = nn.Parameter(torch.ones(4, 6)), nn.Parameter(torch.ones(5, 6))
            self.solid, self.single = nn.Parameter(torch.ones(5, 6, 3)), nn.Parameter(torch.ones(1))
            self.bn3 = norm(0, 5)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = WEIGHTS_ELSEWHERE[how](self, self.bn1(self.conv1(x)), self.bn2(self.conv2(x)))
            return found

    outcome(Stacked, {"bn1": [0, 2], "bn2": [0, 2], "bn3": [4]})
    check_model(make(Stacked), Toy.example(), {"bn1": EVERYTHING})


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.gru(x.flatten(2).transpose(1, 2))[0]
        return found.transpose(1, 2).unsqueeze(-1)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)
        found: Tensor = self.attention(x, x, x)[0]
        return found.transpose(1, 2).unsqueeze(-1)


@pytest.mark.parametrize("layer", [Recurrent, Attending])
def test_layers_that_check_their_own_sizes_keep_them(layer: Callable[[], nn.Module]) -> None:
    toy = net(lambda m, a, b: m.head(m.layer(a)) + m.other(b).mean(), layer=layer)
    model = make(toy)
    shrink(model, {"bn1": [0, 3]})
    plan = ot.plan(model, toy.example(), MaskRule())
    assert any("keeps its sizes to itself" in reason for reason in plan.frozen)
    small = ot.prune(model, plan)
    assert ot.verify(model, small, plan, toy.example()).relative < 1e-9


def kept_on_the_model(m: Any, a: Tensor, b: Tensor) -> Tensor:
    if m.table is None:
        m.table = torch.arange(8, dtype=a.dtype, device=a.device)
    m.tables.setdefault("rows", m.table.view(8, 1))
    m.seen.append(a.shape)
    m.last = a
    found: Tensor = m.head(a * m.table + b * m.tables["rows"])
    return found


def test_what_a_forward_keeps_on_the_model_is_not_left_there() -> None:
    model = make(net(kept_on_the_model, table=lambda: None, tables=dict, seen=list, last=lambda: None))
    shrink(model, {"bn1": [0, 3], "bn2": [0, 3]})
    small = ot.prune(model, ot.plan(model, Toy.example(), MaskRule()))
    assert (model.table, model.tables, model.seen, model.last) == (None, {}, [], None)
    assert (small.table, small.tables, small.seen, small.last) == (None, {}, [], None)


def test_a_model_that_keeps_a_part_of_its_graph_can_be_pruned() -> None:
    model = make(net(kept_on_the_model, table=lambda: None, tables=dict, seen=list, last=lambda: None)).train()
    model(*Toy.example()).sum().backward()
    shrink(model, {"bn1": [0, 3], "bn2": [0, 3]})
    small = ot.prune(model, ot.plan(model, Toy.example(), MaskRule()))
    assert small.head.weight.shape[1] == 4 and small.last.is_leaf


def test_a_parameter_that_the_model_writes_into_is_left_as_it_was() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        if float(a.detach().mean()) < 1e9 and m.training:
            m.head.weight.data.mul_(0.5)
        found: Tensor = m.head(a) + m.other(b)
        return found

    model = make(net(rest))
    with unchanged(model):
        ot.trace(model, Toy.example())


COUNTING: dict[str, Callable[[Tensor], Tensor]] = {
    "groups of a fixed size": lambda x: x.view(2, -1, 4, 8, 8).transpose(1, 2).reshape(2, -1, 8, 8),
    "groups of groups": lambda x: x.view(2, 2, -1, 8, 8).view(2, 4, -1, 8, 8).transpose(1, 2).reshape(2, -1, 8, 8),
    "pieces of a fixed size": lambda x: torch.cat([p * k for p, k in zip(x.split(8, 1), (1, 2, 3), strict=False)], 1),
    "divided by their number": lambda x: x / x.shape[1],
}


@pytest.mark.parametrize("how", COUNTING)
def test_a_line_that_counts_channels_is_refused_and_named(how: str) -> None:
    toy = net(lambda m, a, b: m.narrow(COUNTING[how](m.bn3(m.wide(a + b)))), wide=lambda: conv3(6, 16),
              bn3=lambda: norm(2, 16), narrow=lambda: conv(2, 16, 4))  # fmt: skip
    mask = {"groups of a fixed size": [0, 1, 4, 5, 8, 9, 12, 13], "groups of groups": [0, 1, 8, 9]}.get(how, [0, 8])
    message = refusal(toy, {"bn3": mask})
    assert "test_review_cases.py" in message and "ignore=[...]" in message


EVALUATED: dict[str, Rest] = {
    "shifted": lambda m, a, b: m.head(a if m.training else a + 1) + m.other(b),
    "another head": lambda m, a, b: m.head(a + b) if m.training else m.other(a + b),
}


@pytest.mark.parametrize("how", EVALUATED)
def test_what_only_evaluation_mode_does_is_seen(how: str) -> None:
    model = make(net(EVALUATED[how]))
    assert check_model(model, Toy.example(), {"bn1": [0, 3]}).removed == 0
    assert any("in evaluation mode alone" in reason for reason in ot.plan(model, Toy.example(), MaskRule()).frozen)


def test_a_softmax_in_evaluation_mode_costs_nothing() -> None:
    toy = net(lambda m, a, b: m.head(a + b) if m.training else m.head(a + b).softmax(1))
    assert outcome(toy, {"bn1": [0, 3], "bn2": [0, 3]}).removed == 4


UNEVALUATED: dict[str, tuple[Rest, str]] = {
    "missing input": (lambda m, a, b: m.head(a + b) if m.training else m.head(a) + m.extra, "no attribute 'extra'"),
    "branching": (lambda m, a, b: m.head(a + b) if m.training or a.mean() > 0 else m.other(b), "branches on its data"),
}


@pytest.mark.parametrize("how", UNEVALUATED)
def test_a_model_that_does_not_run_in_evaluation_mode_is_planned_with_a_note(how: str) -> None:
    rest, cause = UNEVALUATED[how]
    plan = ot.plan(make(net(rest)), Toy.example(), MaskRule())
    (note,) = plan.notes
    assert "evaluation mode was not looked at" in note and cause in note and "test_review_cases.py" in note
    assert f"note: {note}" in str(plan).splitlines()
    assert f"note: {note}" in str(ot.trace(make(net(rest)), Toy.example())).splitlines()
    assert ot.PruningPlan.from_json(plan.to_json()) == plan


def test_a_model_that_runs_in_both_modes_needs_no_note() -> None:
    assert ot.plan(make(net(EVALUATED["shifted"])), Toy.example(), MaskRule()).notes == []


ASKED: dict[str, Rest] = {
    "shape": lambda m, a, b: m.head(F.interpolate(a, size=b.shape[2:]) + b),
    "size": lambda m, a, b: m.head((2 * a).view(b.size(0), -1, 8, 8) + 3 * a) + m.other(a + b),
    "rank": lambda m, a, b: m.head(a.mean(b.dim() - 1, keepdim=True) + 3 * a) + m.other(a + b),
    "type": lambda m, a, b: m.head(a + b) if isinstance(b, Tensor) else m.other(a),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_branch_that_the_model_asks_about_stays(what: str) -> None:
    assert outcome(net(ASKED[what]), {"bn2": EVERYTHING}).removed == 0


STAYING: dict[str, tuple[Rest, str]] = {
    "shape": (ASKED["shape"], "a branch that was pruned away has no shape (test_review_cases.py:"),
    "size": (ASKED["size"], "has no size (test_review_cases.py:"),
    "type": (ASKED["type"], "does something else where it is gone"),
    "view": (lambda m, a, b: m.head(a + b.view(2, 6, 64).view(2, 6, 8, 8)), "a view"),
    "read": (lambda m, a, b: m.head(a + b) + m.other(b), "layer other reads it too"),
    "output": (lambda m, a, b: (m.head(a + b), b), "is an output of the model"),
    "made other than zero": (lambda m, a, b: m.head(a + b) + m.other(torch.cos(b)), "aten.cos.default reads it too"),
    "overwritten": (multiplied_in_place, "changed in place"),
    "in use elsewhere": (lambda m, a, b: m.head(m.bn2(a) + b), "runs several times"),
}


@pytest.mark.parametrize("what", STAYING)
def test_the_plan_says_why_a_branch_under_the_threshold_stays(what: str) -> None:
    rest, reason = STAYING[what]
    model = make(net(rest))
    shrink(model, {"bn2": EVERYTHING})
    plan = ot.plan(model, Toy.example(), MaskRule())
    note = {layer.name: layer.note for layer in plan.layers}["bn2"]
    assert plan.removed == [] and "the branch stays: " in note and reason in note
    assert note in str(plan)


def test_a_layer_under_the_threshold_that_is_no_branch_is_not_called_one() -> None:
    model = make(net(lambda m, a, b: m.head(a.relu()) + m.other(b.relu())))
    shrink(model, {"bn2": EVERYTHING})
    assert not any("branch" in layer.note for layer in ot.plan(model, Toy.example(), MaskRule()).layers)


class DropPath(nn.Module):
    """Drops whole images of a branch in training, for which it asks how many there are."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rand(x.shape[0], 1, 1, 1, dtype=x.dtype).round() * 2 if self.training else x


def test_noise_on_a_branch_goes_with_it() -> None:
    toy = net(lambda m, a, b: m.head(a + m.drop(x=b)), drop=DropPath)
    assert outcome(toy, {"bn2": EVERYTHING}).removed == 6


def test_noise_on_two_branches_stays_for_the_one_that_does() -> None:
    toy = net(lambda m, a, b: m.head(a + m.drop(b)) + m.other(m.drop(a)), drop=DropPath)
    model = make(toy)
    shrink(model, {"bn2": EVERYTHING})
    plan = ot.plan(model, toy.example(), MaskRule())
    assert plan.removed == []
    assert "has no shape" in {layer.name: layer.note for layer in plan.layers}["bn2"]


def test_a_sum_by_keyword_loses_a_branch() -> None:
    assert outcome(net(lambda m, a, b: m.head(torch.add(input=a, other=b))), {"bn2": EVERYTHING}).removed == 6


VALUES_A_CHANNEL: dict[str, tuple[Callable[[Any, Tensor], Tensor], bool]] = {
    "added": (lambda m, x: torch.sigmoid(x + m.each), True),
    "scaled and shifted": (lambda m, x: torch.sigmoid(x * m.one + m.each), True),
    "clamped": (lambda m, x: torch.clamp(x, min=m.each), True),
    "one for all": (lambda m, x: torch.sigmoid(x + m.one), True),
    "along positions": (lambda m, x: torch.sigmoid(x[..., :6] + m.row), False),
    "of a batch norm": (lambda m, x: torch.sigmoid(x + m.bn1.weight.view(-1, 1, 1)), False),
}


@pytest.mark.parametrize("how", VALUES_A_CHANNEL)
def test_a_parameter_with_a_value_a_channel_takes_part_in_constants(how: str) -> None:
    activation, goes = VALUES_A_CHANNEL[how]
    toy = net(
        lambda m, a, b: m.head(activation(m, a)) + m.other(b).mean(),
        each=lambda: nn.Parameter(torch.ones(1, 6, 1, 1)),
        one=lambda: nn.Parameter(torch.ones(1)),
        row=lambda: nn.Parameter(torch.ones(1, 1, 1, 6)),
    )
    assert outcome(toy, {"bn1": [0, 3]}).removed == (2 if goes else 0)


def test_a_slope_that_is_computed_freezes() -> None:
    toy = net(lambda m, a, b: m.head(torch.prelu(m.other(a), b.mean((0, 2, 3))[:4])), head=lambda: conv(2, 4, 4))
    assert outcome(toy, {"bn2": [0, 1]}).removed == 0


@dataclass
class Result:
    scores: Tensor
    best: Tensor
    none: Tensor


def test_outputs_of_any_type_in_any_container_are_verified() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Result:
        scores = m.head(a + b)
        return Result(scores, scores > 0, scores[:0])

    model = make(net(rest))
    shrink(model, {"bn1": [0, 3], "bn2": [0, 3]})
    plan = ot.plan(model, Toy.example(), MaskRule())
    small = ot.prune(model, plan)
    assert ot.verify(model, small, plan, Toy.example()).relative < 1e-9
    small.head.bias.data += 1
    wrong = ot.verify(model, small, plan, Toy.example())
    assert wrong.relative > 1e-3 and wrong.where == "output.scores"


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv, self.bn = nn.Embedding(9, 5), nn.Conv1d(5, 6, 3, padding=1), nn.BatchNorm1d(6)
        self.head = nn.Conv1d(6, 2, 1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.head(self.bn(self.conv(self.table(tokens).transpose(1, 2))).relu())
        packed = nn.utils.rnn.pack_padded_sequence(x.transpose(1, 2), lengths.cpu(), batch_first=True)
        return packed.data


def test_whole_numbers_in_an_example_are_kept_and_verified() -> None:
    model = Tokens().double().eval()
    example = (torch.arange(14).view(2, 7) % 9, torch.tensor([7, 4]))
    found = check_model(model, example, {"bn": [0, 3]})
    assert found.removed == 2 and found.informative


def test_a_parameter_that_is_an_output_stays() -> None:
    toy = net(lambda m, a, b: (m.head(a) + m.other(b), m.head.weight))
    assert outcome(toy, {"bn1": [0, 3], "bn2": [0]}).removed == 1


def test_an_operator_with_an_out_argument_freezes() -> None:
    toy = net(lambda m, a, b: m.head(torch.add(a, 1, out=torch.empty_like(a))) + m.other(b))
    assert check_model(make(toy), Toy.example(), {"bn1": [0, 3]}).removed == 0


def test_an_operator_with_two_results_freezes() -> None:
    toy = net(lambda m, a, b: m.head(torch.frexp(a.detach())[0]) + m.other(b))
    assert check_model(make(toy), Toy.example(), {"bn1": [0, 3]}).removed == 0


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6, 1, 1))

    @property
    def num_features(self) -> int:
        return len(self.scale)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_module_that_computes_its_number_of_features_is_not_told() -> None:
    toy = net(lambda m, a, b: m.head(m.layer(a)) + m.other(b), layer=Scaled)
    assert outcome(toy, {"bn1": [0, 3]}).removed == 2
