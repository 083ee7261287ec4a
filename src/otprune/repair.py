"""What a pruned model needs before it is trained: batch-norm statistics re-estimated, constants put back."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.channels.graph import ChannelGraph
from otprune.channels.trace import trace
from otprune.errors import ModelError, PlanError
from otprune.inputs import make
from otprune.plan import PruningPlan, fingerprint
from otprune.planning.branches import Branches
from otprune.planning.compensation import compensation
from otprune.planning.constants import constants
from otprune.planning.cuts import Cut
from otprune.planning.weights import Array, Weights
from otprune.surgery import plans_of, require_same_sources
from otprune.tensors import named_tensors


def recalibrate(model: nn.Module, loader: Iterable[Any]) -> nn.Module:
    """Re-estimate the running statistics of every batch norm from batches, as their cumulative average; in place.

    A batch is a tensor, a sequence whose first item is the model's input (as data loaders give them), or a dict of
    keyword arguments. Everything but batch norm runs in evaluation mode, and nothing but the statistics changes. A
    batch norm that no batch reaches keeps its own, and if a batch fails, all are put back as they were.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
    >>> _ = recalibrate(net, [torch.ones(4, 1, 2, 2), torch.zeros(4, 1, 2, 2)])
    >>> bool((net[1].running_mean != 0).all())
    True
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if not norms:
        raise ModelError(f"{type(model).__name__} has no batch norm with running statistics to re-estimate")
    device = next(model.parameters()).device
    batches = 0
    with torch.no_grad(), _averaging(model, norms):
        for batch in loader:
            _feed(model, batch, device)
            batches += 1
        if batches == 0:
            raise ModelError("the loader gave no batch: statistics can only be estimated from data")
    return model


def _feed(model: nn.Module, batch: Any, device: torch.device) -> None:
    if isinstance(batch, Mapping):
        model(**{key: _moved(value, device) for key, value in batch.items()})
    else:
        model(_moved(batch if isinstance(batch, Tensor) else batch[0], device))


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value


@contextmanager
def _averaging(model: nn.Module, norms: list[_BatchNorm]) -> Iterator[None]:
    """Batch norms average what they see; all else evaluates. Modes come back at the end, statistics on failure."""
    flags = [(module, module.training) for module in model.modules()]
    momenta = [norm.momentum for norm in norms]
    saved = [{key: value.clone() for key, value in norm.named_buffers(recurse=False)} for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.training = True
    try:
        yield
        _put_back([(norm, old) for norm, old in zip(norms, saved, strict=True) if not norm.num_batches_tracked])
    except BaseException:
        _put_back(zip(norms, saved, strict=True))
        raise
    finally:
        for module, flag in flags:
            module.training = flag
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def _put_back(statistics: Iterable[tuple[_BatchNorm, dict[str, Tensor]]]) -> None:
    for norm, buffers in statistics:
        for key, value in buffers.items():
            getattr(norm, key).copy_(value)


def fold_constants(small: nn.Module, model: nn.Module, plan: PruningPlan) -> nn.Module:
    """Move the shift β of dropped channels into what follows, without data; changes `small` in place.

    A dropped channel with γ ≈ 0 still emitted act(β), and a whole branch that was removed still added its β. Those
    constants go into the bias of the layer that read them, or are taken off the running mean right after; what a
    branch added may also go into the bias of the layer that it was added to. Exact but for the borders of layers that
    pad with zeros, and where every such layer lies behind an activation: a branch that was added to an activation's
    result, with another activation right behind the sum, leaves its constant nowhere to go. `recalibrate` covers
    those too.

    >>> import otprune as ot
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)).double().eval()
    >>> net[1].weight.data[1], net[1].bias.data[1] = 0, 5.0
    >>> x = torch.randn(1, 3, 8, 8).double()
    >>> p = ot.plan(net, x, ot.GlobalRatio(0.25))
    >>> small = fold_constants(ot.prune(net, p), net, p)
    >>> torch.allclose(small(x), net(x))
    True
    """
    if not plans_of(small) or plans_of(small)[-1] != plan or fingerprint(model) != plan.fingerprint:
        raise PlanError("fold_constants needs the model that was planned, its plan, and what prune made of them")
    require_same_sources(model, plan)
    graph = trace(model, make(plan.inputs, next(model.parameters()).device, torch.Generator().manual_seed(0)))
    weights = Weights(model)
    values = constants(graph, _shifts(graph, plan, weights), Branches(), weights)
    cuts = {cut.tensor: cut for cut in plan.cuts}
    amounts = compensation(graph, values, weights, plan.removed, cuts)
    for fold in plan.folds:  # prune has done this much
        amounts[fold.tensor] = amounts.get(fold.tensor, 0.0) - np.array(fold.amounts)
    tensors = named_tensors(small)
    for name in amounts.keys() & tensors.keys():
        _add(tensors[name], amounts[name], cuts.get(name))
    return small


def _shifts(graph: ChannelGraph, plan: PruningPlan, weights: Weights) -> dict[str, Array]:
    """What each dropped channel of each batch norm emits when its scaling factor is taken as zero."""
    found = {}
    for layer, channels in plan.masked.items():
        node = graph.batch_norms[layer]
        found[layer] = np.full(len(node.writes), np.nan)
        found[layer][channels] = weights.get(node.bias, 0.0, len(node.writes))[channels]
    return found


def _add(tensor: Tensor, amounts: Array, cut: Cut | None) -> None:
    if cut is not None:
        amounts = amounts[cut.keep[0]]
    with torch.no_grad():
        tensor += torch.from_numpy(amounts).to(tensor.device, tensor.dtype)
