"""Other tensors in place of a model's own, for the length of a `with` block."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


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
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    replacements = {id(own[name]): tensor for name, tensor in tensors.items()}
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
