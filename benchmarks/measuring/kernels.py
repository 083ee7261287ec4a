"""On which kinds of GPU kernels a training step spends its time; some run beside others, so they add up to more."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

# The first kind whose word is in a kernel's name has it.
KINDS = {
    "weight gradients of convolutions": ("wgrad",),
    "input gradients of convolutions": ("dgrad",),
    "forward convolutions and matrix products": ("fprop", "gemm", "cutlass", "cudnn", "conv2d", "nhwc"),
    "SGD, penalty and copies in bf16": ("triton_for", "copy__mul_sub"),
    "batch norm, ReLU, pools, loss: reductions": ("triton_red", "triton_per"),
    "batch norm, ReLU, pools, loss: element by element": ("triton_poi",),
    "everything else": ("",),
}
STEPS = 5


def time_by_kind(step: Callable[[], None]) -> dict[str, dict[str, float]]:
    """Microseconds and kernels of one step, by kind."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    spent = {kind: {"us": 0.0, "kernels": 0.0} for kind in KINDS}
    for event in profiled.key_averages():
        kind = next(kind for kind, words in KINDS.items() if any(word in event.key for word in words))
        spent[kind]["us"] += event.device_time_total / STEPS
        spent[kind]["kernels"] += event.count / STEPS
    return spent
