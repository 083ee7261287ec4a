"""On a GPU, the gradients of convolutions' weights beside the rest of the backward pass, on a stream of their own.

The backward pass goes from layer to layer through the gradients of their inputs. Those of the weights are wanted by the
update alone, but computed in between they make all others wait. On a stream of lower priority they take what the others
leave of the GPU; most layers leave much of it.

`WeightGradientsAside` rewrites a compiled backward pass. Where a convolution's input needs no gradient, as in a first
layer, the gradient of its weight is the last to come and holds up nothing but its own update: it is still under way
when the backward pass ends, until `finish` waits for it.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, library
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from otprune.training.sgd import LARGE

_backward = torch.ops.aten.convolution_backward.default
_SETTINGS = "int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups"
library.define(
    "otprune::weight_gradient",
    f"(Tensor gradient, Tensor read, Tensor weight, {_SETTINGS}, bool late) -> Tensor",
)
# It writes nothing, but whoever reads the gradients must come after it, and what they are made of must last so long.
library.define("otprune::join", "(Tensor(a!)[] gradients, Tensor[] held) -> ()")


class WeightGradientsAside(CustomGraphPass):
    """A pass of torch's compiler over a backward graph; it leaves alone a gradient that the graph itself reads.

    >>> net = torch.nn.Conv2d(1, 1, 1)
    >>> options = {"post_grad_custom_post_pass": WeightGradientsAside()}
    >>> compiled = torch.compile(net, options=options)
    """

    def __call__(self, graph: fx.Graph) -> None:
        """Put each weight gradient aside, and wait for all but the last at the end."""
        nodes = [node for node in graph.nodes if node.target is _backward and _only_returned(node)]
        late = [node for node in nodes if _is_late(node)]
        if len(late) == len(nodes):
            late = []  # there would be nothing left to hold what they read
        gradients: list[fx.Node] = []
        held: list[Any] = []
        for node in nodes:
            held += node.args[:2]
            (held if node in late else gradients).append(_set_aside(graph, node, late=node in late))
        if gradients:
            with graph.inserting_before(graph.output_node()):
                graph.call_function(torch.ops.otprune.join.default, (gradients, held))

    def uuid(self) -> bytes:
        """What compiled code is cached by."""
        return get_hash_for_files((__file__,))


def finish(device: torch.device) -> None:
    """Let what is sent to the device from here on wait for gradients that were still under way.

    >>> finish(torch.device("cuda")) if torch.cuda.is_available() else None
    """
    if device in _under_way:  # else there may be nothing on that stream that a graph being captured could wait for
        _under_way.remove(device)
        torch.cuda.current_stream(device).wait_stream(_streams(device)[True])


_under_way: set[torch.device] = set()


@functools.cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """For gradients that the backward pass ends with, and for late ones; both have the lowest priority."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


def _weight_gradient(gradient: Tensor, read: Tensor, weight: Tensor, *settings: Any) -> Tensor:
    *convolution, _ = settings
    found: Tensor = _backward(gradient, read, weight, None, *convolution, [False, True, False])[1]
    return found


def _weight_gradient_aside(gradient: Tensor, read: Tensor, weight: Tensor, *settings: Any) -> Tensor:
    late = settings[-1]
    current, aside = torch.cuda.current_stream(read.device), _streams(read.device)[late]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        found = _weight_gradient(gradient, read, weight, *settings)
    if late:  # the graph ends before it does
        _under_way.add(read.device)
        for tensor in (gradient, read):
            tensor.record_stream(aside)
    return found


def _join(gradients: Sequence[Tensor], held: Sequence[Tensor]) -> None:
    """On a CPU, and for shapes alone, there is nothing to wait for."""


def _join_aside(gradients: Sequence[Tensor], held: Sequence[Tensor]) -> None:
    device = gradients[0].device
    torch.cuda.current_stream(device).wait_stream(_streams(device)[False])


for _kind, _gradient_on, _join_on in (("CPU", _weight_gradient, _join), ("CUDA", _weight_gradient_aside, _join_aside)):
    library.impl("otprune::weight_gradient", _kind, _gradient_on)
    library.impl("otprune::join", _kind, _join_on)
library.register_fake("otprune::weight_gradient", _weight_gradient)
library.register_fake("otprune::join", _join)


def _only_returned(node: fx.Node) -> bool:
    """Whether the weight's gradient is asked for and nothing in the graph reads it."""
    found = _weight_part(node)
    return found is not None and all(user.op == "output" for user in found.users)


def _weight_part(node: fx.Node) -> fx.Node | None:
    return next((user for user in node.users if user.args[1] == 1), None)


def _is_late(node: fx.Node) -> bool:
    """Whether nothing comes after it, and its update is among the last."""
    return not _mask(node)[0] and node.meta["val"][1].numel() < LARGE


def _mask(node: fx.Node) -> list[bool]:
    """Which gradients are asked for: of the input, the weight, the bias."""
    mask: Any = node.args[-1]
    return list(mask)


def _set_aside(graph: fx.Graph, node: fx.Node, late: bool) -> fx.Node:
    """Compute the gradient of the weight apart from those of input and bias."""
    tensors, settings = node.args[:3], node.args[4:-1]
    with graph.inserting_before(node):
        aside = graph.call_function(torch.ops.otprune.weight_gradient.default, (*tensors, *settings, late))
    aside.meta["val"] = node.meta["val"][1]
    replaced = _weight_part(node)
    assert replaced is not None
    replaced.replace_all_uses_with(aside)
    graph.erase_node(replaced)
    _ask_for_the_others(graph, node)
    return aside


def _ask_for_the_others(graph: fx.Graph, node: fx.Node) -> None:
    of_input, _, of_bias = _mask(node)
    mask = [of_input, False, of_bias]
    if not any(mask):
        graph.erase_node(node)
        return
    node.args = (*node.args[:-1], mask)
    wanted = zip(node.meta["val"], mask, strict=True)
    node.meta["val"] = tuple(value if asked else None for value, asked in wanted)
