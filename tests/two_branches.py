"""Networks of two branches that meet in any way a test wants, and what becomes of them when they are pruned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

import otprune as ot
from otprune.errors import VerificationError
from tests.checking import MaskRule, Outcome, check_model, shrink
from tests.net_layers import conv, norm
from tests.pruned_toys import Mask
from tests.toy_nets import Toy, conv3, make
from tests.unchanged import unchanged

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
    """The message with which pruning by the plan is refused; the model is left as it was."""
    model = make(toy)
    shrink(model, mask)
    plan = ot.plan(model, toy.example(), MaskRule())
    with unchanged(model), pytest.raises(VerificationError) as caught:
        ot.prune(model, plan)
    return str(caught.value)


def multiplied_in_place(m: Any, a: Tensor, b: Tensor) -> Tensor:
    """The left operand of a sum is changed once the sum is made."""
    summed = a + b
    a.mul_(3)
    found: Tensor = m.head(summed) + m.other(a)
    return found
