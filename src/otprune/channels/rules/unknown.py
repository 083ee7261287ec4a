"""The rule for operators that have none: what they read must stay as it is, and the reason is written down."""

from typing import TYPE_CHECKING

from torch import Tensor
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from otprune.channels.tracer import Call, Tracer


def unknown(tracer: "Tracer", call: "Call") -> None:
    """Freeze every channel and every parameter among the arguments; the result carries no channel."""
    freeze_arguments(tracer, call, f"{call.func} has no rule")


def factory(tracer: "Tracer", call: "Call") -> None:
    """A tensor made from nothing carries no channel."""


def freeze_arguments(tracer: "Tracer", call: "Call", reason: str) -> None:
    for tensor in pytree.tree_leaves((call.args, call.kwargs)):
        if not isinstance(tensor, Tensor):
            continue
        parameter = tracer.parameter(tensor)
        if parameter is not None:
            tracer.freeze_parameter(parameter.name, reason)
        elif tracer.is_labelled(tensor):
            tracer.freeze(tracer.labels(tensor), reason)
    for tensor in pytree.tree_leaves(call.out):
        if isinstance(tensor, Tensor) and tracer.is_labelled(tensor):
            del tensor._otprune_labels  # type: ignore[attr-defined]
