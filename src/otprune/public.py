"""What `import otprune as ot` offers."""

from otprune.channels.trace import trace
from otprune.checkpoint import load, save
from otprune.cost import cost
from otprune.plan import PruningPlan, plan
from otprune.repair import fold_constants, recalibrate
from otprune.sparsity import L1Penalty, ProximalL1
from otprune.surgery import prune
from otprune.thresholds import GlobalRatio, OptimalThreshold, Shifted, optimal_threshold, separation
from otprune.verify import verify

__all__ = [
    "GlobalRatio",
    "L1Penalty",
    "OptimalThreshold",
    "ProximalL1",
    "PruningPlan",
    "Shifted",
    "cost",
    "fold_constants",
    "load",
    "optimal_threshold",
    "plan",
    "prune",
    "recalibrate",
    "save",
    "separation",
    "trace",
    "verify",
]
