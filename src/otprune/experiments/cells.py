"""Numbers of a run as tables show them."""

from collections.abc import Mapping
from typing import Any

STAGES = ("sparse", "pruned", "recalibrated", "finetuned", "scratch")
COSTS = {"flops": "FLOPs", "parameters": "parameters"}
UNITS = ("", "k", "M", "G", "T")


def lam(training: Mapping[str, Any]) -> str:
    """The λ of a training.

    >>> lam({"lam": 1e-4, "target_flops": None}), lam({"lam": 1e-4, "target_flops": 0.4})
    ('0.0001', 'steered')
    """
    return f"{training['lam']:.3g}" if training["target_flops"] is None else "steered"


def percent(share: float | None) -> str:
    """A share, or nothing.

    >>> percent(0.9365), percent(None)
    ('93.65%', '')
    """
    return "" if share is None else f"{share:.2%}"


def gain(before: float, after: float) -> str:
    """What something cost, and what it costs now.

    >>> gain(9_627_463_178, 1e9)
    '9.63G → 1.00G (10.4%)'
    """
    return f"{short(before)} → {short(after)} ({after / before:.1%})"


def cost_of_trained(results: Mapping[str, Any]) -> Mapping[str, float]:
    """What the network cost that `accuracy_sparse` is of: less than the one that was built, where rounds go before.

    >>> cost_of_trained({"cost_before": {"flops": 4}, "cost_sparse": {"flops": 2}}), cost_of_trained({})
    ({'flops': 2}, {})
    """
    found: Mapping[str, float] = results.get("cost_sparse") or results.get("cost_before") or {}
    return found


def latency(results: Mapping[str, Any]) -> str:
    """What a network took, and takes pruned, in milliseconds, where it was pruned to a latency; or nothing.

    >>> latency({"latency": {"unpruned_ms": 0.16123, "measured_ms": 0.0684, "budget_ms": 0.07}}), latency({})
    ('0.161 → 0.0684', '')
    """
    found = results.get("latency", {})
    times = [found[name] for name in ("unpruned_ms", "measured_ms") if name in found]
    return " → ".join(f"{ms:.3g}" if ms < 1000 else f"{ms:.0f}" for ms in times)


def short(number: float) -> str:
    """A number to three digits, so that a table fits on the screen.

    >>> short(1_472_826), short(12)
    ('1.47M', '12')
    """
    unit = 0
    while number >= 999.5 and unit < len(UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:#.3g}".rstrip(".") + UNITS[unit] if unit else f"{number:g}"
