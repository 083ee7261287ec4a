"""A plan and a model make a smaller model: same classes, same names, smaller tensors. The original is untouched."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from otprune.absent import Removed
from otprune.abstract import refuse_wrapped
from otprune.channels.rules.shaping import SELECTION, SELECTION_WITH_ZEROS
from otprune.copying import copied
from otprune.errors import PlanError
from otprune.fitting import require_doable
from otprune.plan import PruningPlan, fingerprint
from otprune.planning.cuts import ZEROS, Cut, Memorized
from otprune.planning.weights import Weights
from otprune.rehearsal import rehearse
from otprune.tensors import named_tensors
from otprune.verify import require_same_values

PLANS = "otprune_plans"
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def prune(model: nn.Module, plan: PruningPlan) -> nn.Module:
    """Return a smaller model that computes what `model` computes with the plan's channels masked.

    `model` is untouched. The result is run once without computing before it is handed back; where it does not run,
    because the model's own code counts on the old sizes, the error names the line. Where sizes that modules remember
    are changed, it is also compared with the masked original. A plan made before the model was trained further still
    fits, unless it replaces channels by constants and what those come from has changed; the error then names the layer.

    >>> import otprune as ot
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    >>> net[1].weight.data[1] = 1e-6
    >>> small = prune(net, ot.plan(net, torch.zeros(1, 3, 8, 8)))
    >>> small[0].weight.shape
    torch.Size([3, 3, 3, 3])
    """
    small = apply(model, plan)
    require_same_sources(model, plan)
    rehearse(small, plan)
    if plan.memories:  # code can do with a number what no trace hears of
        require_same_values(model, small, plan)
    return small


def apply(model: nn.Module, plan: PruningPlan) -> nn.Module:
    """Do the surgery alone: cut tensors, resize layers, put in selections, take out branches."""
    refuse_wrapped(model)
    _require_fit(model, plan)
    require_doable(model, plan)
    small = copied(model, _replacements(model, plan))
    for cut in plan.cuts:
        _resize(small.get_submodule(cut.tensor.rpartition(".")[0]), cut)
    for name, module in small.named_modules():
        _select(module, plan.selections.get(name))
    for memory in plan.memories:
        _memorize(small.get_submodule(memory.module), memory)
    for name in plan.not_in_place:
        small.get_submodule(name).inplace = False  # type: ignore[assignment]
    setattr(small, PLANS, (*plans_of(model), plan))
    return small


def require_same_sources(model: nn.Module, plan: PruningPlan) -> None:
    """Raise where a tensor that the plan's constants come from has changed since.

    >>> import otprune as ot
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sigmoid(), nn.Conv2d(4, 2, 1))
    >>> net[1].weight.data[1] = 1e-6
    >>> p = ot.plan(net, torch.zeros(1, 3, 8, 8))
    >>> net[3].weight.data += 1
    >>> require_same_sources(net, p)
    Traceback (most recent call last):
    otprune.errors.PlanError: layer 3: its weight has changed since the plan was made, ... Make a new plan ...
    """
    weights = Weights(model)
    for name, digest in plan.sources.items():
        if weights.digest(name) != digest:
            layer, _, tensor = name.rpartition(".")
            raise PlanError(
                f"layer {layer}: its {tensor} has changed since the plan was made, and channels were to be replaced by "
                f"constants that are computed from it. Make a new plan for the model as it is now."
            )


def plans_of(model: nn.Module) -> tuple[PruningPlan, ...]:
    """The plans that made a pruned model from its original, first to last."""
    found: tuple[PruningPlan, ...] = getattr(model, PLANS, ())
    return found


def select_channels(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Forward pre-hook of a batch norm that reads only some of the channels that arrive."""
    return inputs[0].index_select(1, getattr(module, SELECTION)), *inputs[1:]


def select_channels_and_zeros(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same for one that still makes constants of channels that are gone: they are zeros to it."""
    source = inputs[0]
    with_zeros = F.pad(source, (0, 0) * (source.dim() - 2) + (1, 0))
    return with_zeros.index_select(1, getattr(module, SELECTION_WITH_ZEROS)), *inputs[1:]


def _require_fit(model: nn.Module, plan: PruningPlan) -> None:
    if fingerprint(model) == plan.fingerprint:
        return
    tensors = model.state_dict()
    for cut in plan.cuts:
        found = tuple(tensors[cut.tensor].shape) if cut.tensor in tensors else None
        if found != cut.shape:
            have = "is not in the model" if found is None else f"has shape {found}"
            raise PlanError(
                f"the plan was made for another model ({plan.model}): it expects {cut.tensor} of shape {cut.shape}, "
                f"which {have}. Make a new plan for this {type(model).__name__}."
            )
    raise PlanError(
        f"the plan was made for another model ({plan.model}): tensors differ in name or shape, or channels are "
        f"selected differently. Make a new plan for this {type(model).__name__}."
    )


def _replacements(model: nn.Module, plan: PruningPlan) -> dict[int, Any]:
    """What the copy is to have in place of each module that goes and each tensor that shrinks or takes a constant."""
    cuts = {cut.tensor: cut for cut in plan.cuts}
    indices = Indices()
    folds = {fold.tensor: fold.amounts for fold in plan.folds}
    memo: dict[int, Any] = {id(model.get_submodule(name)): Removed() for name in plan.removed}
    for name, tensor in named_tensors(model).items():
        smaller = tensor.detach()
        if name in folds:
            amounts = torch.tensor(folds[name], dtype=torch.float64, device=smaller.device)
            smaller = (smaller.double() + amounts).to(tensor.dtype)
        if name in cuts:
            smaller = cut_tensor(smaller, cuts[name], indices)
        if smaller.shape != tensor.shape or name in folds:
            memo[id(tensor)] = _same_kind(smaller, tensor)
    return memo


def _same_kind(smaller: Tensor, tensor: Tensor) -> Tensor:
    """Laid out in memory like `tensor`, and a parameter where that is one."""
    channels_last = CHANNELS_LAST.get(tensor.dim())
    if channels_last and tensor.is_contiguous(memory_format=channels_last) and not tensor.is_contiguous():
        smaller = smaller.contiguous(memory_format=channels_last)
    return nn.Parameter(smaller, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else smaller


class Indices:
    """Lists of indices as tensors. Each list cuts half a dozen tensors and is converted once."""

    def __init__(self) -> None:
        self._made: dict[tuple[torch.device, tuple[int, ...]], Tensor] = {}

    def on(self, device: torch.device, indices: list[int]) -> Tensor:
        """The list as a tensor on a device."""
        key = (device, tuple(indices))
        if key not in self._made:
            self._made[key] = torch.tensor(indices, device=device)
        return self._made[key]


def cut_tensor(tensor: Tensor, cut: Cut, indices: Indices) -> Tensor:
    """The part of a tensor that stays, in memory of its own.

    >>> cut_tensor(torch.arange(4), Cut("bias", (4,), {0: [1, 3]}), Indices())
    tensor([1, 3])
    """
    for axis, stays in sorted(cut.keep.items()):
        if axis == 1 and cut.groups is not None:
            tensor = _columns_of_groups(tensor, indices.on(tensor.device, stays), cut.groups)
        elif len(stays) < tensor.shape[axis]:
            tensor = tensor.index_select(axis, indices.on(tensor.device, stays))
    return tensor


def _columns_of_groups(tensor: Tensor, indices: Tensor, groups: int) -> Tensor:
    """From the rows of each group, the columns that its own list names."""
    columns = indices.view(groups, -1)
    if columns.shape[1] == tensor.shape[1]:
        return tensor
    rows = torch.arange(tensor.shape[0], device=tensor.device)[:, None]
    return tensor[rows, columns.repeat_interleave(tensor.shape[0] // groups, 0)]


def _resize(module: nn.Module, cut: Cut) -> None:
    """Bring a layer's own record of its sizes in line with its tensors."""
    if isinstance(module, _ConvNd):
        if cut.groups is not None:
            module.groups = cut.groups
        rows, columns = module.weight.shape[0], module.weight.shape[1] * module.groups
        transposed = isinstance(module, _ConvTransposeNd)
        module.in_channels, module.out_channels = (rows, columns) if transposed else (columns, rows)
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.PReLU):
        module.num_parameters = module.weight.numel()
    elif "num_features" in vars(module):
        module.num_features = len(next(iter(cut.keep.values())))  # type: ignore[assignment]


def _memorize(module: nn.Module, memory: Memorized) -> None:
    """Have a module remember how many channels there are now, whatever its class has to say about being changed."""
    attributes = vars(module)
    if memory.item is None:
        attributes[memory.attribute] = memory.count
    else:
        sizes = list(attributes[memory.attribute])
        sizes[memory.item] = memory.count
        attributes[memory.attribute] = type(attributes[memory.attribute])(sizes)


def _select(module: nn.Module, positions: list[int] | None) -> None:
    """Give a batch norm the selection it needs, or take away one it no longer needs."""
    hooks = module._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if hook in SELECTING]:
        delattr(module, SELECTING[hooks.pop(key)])
    if positions is not None:
        hook, shift = (select_channels_and_zeros, 1) if ZEROS in positions else (select_channels, 0)
        device = next(iter(module.state_dict().values())).device
        module.register_buffer(SELECTING[hook], torch.tensor(positions, device=device) + shift, persistent=False)
        module.register_forward_pre_hook(hook)


# What selects channels, and the buffer that says which.
SELECTING: dict[Any, str] = {select_channels: SELECTION, select_channels_and_zeros: SELECTION_WITH_ZEROS}
