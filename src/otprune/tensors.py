"""The tensors of a model by name, and others in their place for the length of a `with` block."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, each under its first name alone, found in one walk through the modules.

    >>> list(named_tensors(nn.BatchNorm1d(2)))
    ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']
    """
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found[prefix + name] = tensor
    return found


@contextmanager
def substituted(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Put tensors in place of the parameters and buffers of those names, wherever the model holds the same ones.

    Unlike `torch.func.functional_call`, this puts everything back where one module is registered under two names.

    >>> import torch
    >>> net = nn.Linear(2, 1, bias=False)
    >>> with substituted(net, {"weight": torch.ones(1, 2)}):
    ...     net(torch.ones(1, 2))
    tensor([[2.]])
    """
    own = named_tensors(model)
    with replaced(model, {id(own[name]): tensor for name, tensor in tensors.items()}):
        yield


@contextmanager
def replaced(model: nn.Module, replacements: Mapping[int, Tensor]) -> Iterator[None]:
    """Put tensors in place of those with the given identities, and those back at the end."""
    places = [
        (holder, key, tensor)
        for module in model.modules()
        for holder in (module._parameters, module._buffers)
        for key, tensor in holder.items()
        if tensor is not None and id(tensor) in replacements
    ]
    try:
        for holder, key, tensor in places:
            holder[key] = replacements[id(tensor)]  # type: ignore[assignment]
        yield
    finally:
        for holder, key, tensor in places:
            holder[key] = tensor  # type: ignore[assignment]
