"""How the networks start: the initialization that the paper trains from."""

import math

from torch import nn

INITIAL_SCALE = 0.5


def initialize(model: nn.Module) -> None:
    """Initialize convs, batch norms and linear layers in place, as the paper does.

    Convs are normal with standard deviation sqrt(2 / (k²·c_out)), scaling factors γ are 0.5, linear layers are normal
    with standard deviation 0.01, and every shift and bias is zero.

    >>> from torch import nn
    >>> norm = nn.BatchNorm2d(2)
    >>> initialize(norm)
    >>> norm.weight.tolist()
    [0.5, 0.5]
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, std=math.sqrt(2 / (math.prod(module.kernel_size) * module.out_channels)))
        elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.constant_(module.weight, INITIAL_SCALE)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)
