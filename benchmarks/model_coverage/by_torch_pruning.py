"""One model pruned by Torch-Pruning."""

import copy
import time
from typing import Any

import torch
import torch_pruning
from torch import Tensor, nn

from otprune.abstract import arguments
from otprune.inputs import tensors_by_path, tensors_in

from .batch_norms import Mask, batch_norms
from .outcome import WRONG, Outcome, judged

# All that rank as low as the lowest go, and that are the channels whose scaling factors are zero throughout.
_LOWEST_ALONE = 1e-9


def prune(model: nn.Module, example: Any, mask: Mask) -> Outcome:
    """Take out what is zero in all batch norms of a group, and compare with the model as it was."""
    small = copy.deepcopy(model)
    start = time.perf_counter()
    _pruner(small, example).step()
    seconds = time.perf_counter() - start
    removed = sum(layer.num_features for layer in batch_norms(model).values())
    removed -= sum(len(layer.weight) for layer in batch_norms(small).values())
    status, message, error = _compared(_outputs(model, example), _outputs(small, example))
    return Outcome(status, message, removed=removed, error=error, seconds=seconds)


def largest_scale(group: Any, **_: Any) -> Tensor | None:
    """The importance of a group's channels: the largest scaling factor; one where no batch norm has a say."""
    found = [item for item in group if isinstance(item.dep.layer, nn.modules.batchnorm._BatchNorm)]
    if not found:
        return None
    scales = torch.full((len(group[0].idxs),), -1.0, dtype=torch.float64)
    for item in found:
        gammas = item.dep.layer.weight.detach().abs()[list(item.idxs)]
        scales.scatter_reduce_(0, torch.tensor(item.root_idxs), gammas, "amax")
    return torch.where(scales < 0, 1.0, scales)


def _pruner(model: nn.Module, example: Any) -> Any:
    args, kwargs = arguments(example)
    return torch_pruning.pruner.BasePruner(
        model,
        example,
        importance=largest_scale,
        global_pruning=True,
        pruning_ratio=_LOWEST_ALONE,
        forward_fn=lambda network, _: network(*args, **kwargs),
        output_transform=tensors_in,
        in_channel_groups={},  # its defaults are shared by all pruners of a process
        out_channel_groups={},
    )


def _outputs(model: nn.Module, example: Any) -> dict[str, Tensor]:
    args, kwargs = arguments(example)
    with torch.no_grad():
        return tensors_by_path(model(*args, **kwargs), "output")


def _compared(expected: dict[str, Tensor], found: dict[str, Tensor]) -> tuple[str, str, float | None]:
    differing = [n for n, tensor in expected.items() if n not in found or found[n].shape != tensor.shape]
    if differing:
        return WRONG, f"{differing[0]} has another shape, or is missing", None
    full = [name for name, tensor in expected.items() if tensor.numel()]
    error = max((float((expected[n].double() - found[n].double()).abs().max()) for n in full), default=0.0)
    scale = max((float(expected[n].double().abs().max()) for n in full), default=1.0)
    return *judged(error / scale), error / scale
