"""The tables and figures of the paper by name, and the records that each needs. A table first; what fills it after."""

import difflib
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from otprune.errors import TrainingError
from otprune.experiments import paper
from otprune.experiments.iterate import Restart
from otprune.experiments.reproduce.needed import BEST, Needed, baseline, best, by_ista, pruned, rounds, shifted
from otprune.training.run import PenalizedName

# In the order that they are run in: what is quick and what most depends on first.
PAIRS = (
    ("cifar10", "vgg14"),
    ("cifar100", "vgg14"),
    ("cifar100", "densenet121"),
    ("cifar100", "resnet50"),
    ("cifar10", "densenet121"),
    ("cifar10", "resnet50"),
)
# The paper does not say which shares of the channels Network Slimming removed; these span its figures.
RATIOS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class Row:
    """A table or a figure: what it shows, the records behind it, and what else is to be said of it."""

    name: str
    title: str
    needs: tuple[Needed, ...] = ()
    remark: str = ""


@functools.cache
def rows() -> Mapping[str, Row]:
    """Everything that the paper shows, and what goes beyond it, by name.

    >>> list(rows())[:3]
    ['baselines', 'threshold-demo', 'layer-distributions']
    """
    everything = (
        Row("baselines", "Table: baselines", tuple(_baselines())),
        Row("threshold-demo", "Figure: threshold demo", (shifted("cifar10", "vgg14", _LAYERS_LAM),)),
        Row("layer-distributions", "Figure: distributions of γ in two layers", (_gammas(_LAYERS_LAM),)),
        Row("lambda-distributions", "Figure: distributions of γ under two λ", tuple(map(_gammas, _LAMBDAS))),
        Row("accuracy-vs-cost", "Figure: accuracy against pruned FLOPs and parameters", tuple(_sweeps(trained=True))),
        Row("without-training", "Figure: accuracy without any training", tuple(_sweeps(trained=False))),
        Row("statistics", "Table: statistics over 11 seeds", tuple(_statistics())),
        Row("one-training", "New: OT and Network Slimming on one training", tuple(_of_one_training())),
        Row("resnet20", "Figure: ResNet-20 and the ISTA method of Ye et al. 2018", tuple(_resnet20())),
        Row("iterative", "Figure: iterative pruning", tuple(_iterative())),
        Row("edge-latency", "Figure: latency at the edge", remark=EDGE),
        Row("ilsvrc", "Table: ILSVRC-2012", remark=ILSVRC),
        Row(BEST, "Beyond the paper", tuple(needed for goal in paper.goals() for needed in towards(goal))),
    )
    return {row.name: row for row in everything}


ILSVRC = (
    "ILSVRC-2012 is not here, so no accuracy can be measured. The recipe is run for a few steps on made images, to "
    "show that it runs; what the unpruned networks cost does not depend on the images."
)
EDGE = (
    "The paper's neural compute stick is not here: benchmarks/latency.py times the networks on one thread of a CPU, in "
    "three runtimes."
)
_POINTS = paper.table("points")
_LAYERS_LAM: float = _POINTS["distributions"]["layers_lam"]
_LAMBDAS: list[float] = _POINTS["distributions"]["lambdas"]


def row(name: str) -> Row:
    """A table or figure by its name.

    >>> row("iterativ")
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: the paper has no iterativ here; did you mean iterative?
    """
    found = rows()
    if name in found:
        return found[name]
    near = difflib.get_close_matches(name, found, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(found)}"
    raise TrainingError(f"the paper has no {name} here; {hint}")


def sweep(
    data: str, model: str, scratch: bool = False, finetuned: bool = True, penalized: PenalizedName = "all"
) -> tuple[Needed, ...]:
    """OT at every λ of the paper's table.

    >>> len(sweep("cifar10", "vgg14"))
    7
    """
    return tuple(
        pruned(data, model, lam, scratch=scratch, finetuned=finetuned, penalized=penalized)
        for lam in paper.lambdas()[data, model]
    )


def sweeps_of_resnet20() -> dict[str, tuple[Needed, ...]]:
    """The same of ResNet-20, by what is penalized: the paper says neither that it is all batch norms nor which.

    Ye et al., whose settings it takes over, penalize those inside of blocks alone.

    >>> {name: needs[0].place for name, needs in sweeps_of_resnet20().items()}
    {'OT': 'cifar10/resnet20/lam8e-4-seed0', 'OT inside blocks': 'cifar10/resnet20/untied-lam8e-4-seed0'}
    """
    ways: dict[str, PenalizedName] = {"OT": "all", "OT inside blocks": "untied"}
    return {name: sweep("cifar10", "resnet20", penalized=penalized) for name, penalized in ways.items()}


def slimming(data: str, model: str, scratch: bool = False, finetuned: bool = True) -> tuple[Needed, ...]:
    """Network Slimming at several ratios of one training.

    >>> len({needed.trained_at for needed in slimming("cifar10", "vgg14")})
    1
    """
    lam = paper.slimming_lam(model)
    return tuple(pruned(data, model, lam, ratio=ratio, scratch=scratch, finetuned=finetuned) for ratio in RATIOS)


def ista() -> tuple[Needed, ...]:
    """The runs of Ye et al., made here.

    >>> len(ista())
    2
    """
    return tuple(by_ista(rho) for rho in _POINTS["ye2018"]["rhos"])


def seeds(data: str, rule: str) -> tuple[Needed, ...]:
    """A column of the statistics table: one λ, every seed; Network Slimming keeps as many channels as in the paper.

    >>> seeds("cifar10", "ns")[0].place
    'cifar10/vgg14/ns0.7003-lam2e-4-seed0'
    """
    table = paper.table("statistics")
    kept = paper.statistics(data, "ns").total.mean
    ratio = _ratio_that_keeps(round(kept), sum(table["channels"])) if rule == "ns" else None
    return tuple(pruned(data, table["model"], table["lam"], seed=seed, ratio=ratio) for seed in range(table["runs"]))


def printed() -> dict[str, str]:
    """The runs whose accuracy the paper gives as a number, by place, and the stage that ends with it.

    The headline's λ is not given, so each of its network's may be the one.

    >>> printed()["cifar100/vgg14/lam0-seed0"], printed()["cifar10/vgg14/lam2e-4-seed10"]
    ('train', 'finetune')
    """
    unpruned = (baseline(data, model) for data, model in paper.baselines())
    asked = _POINTS["headline"]
    pruned = (*_statistics(), *sweep(asked["data"], asked["model"]))
    return {needed.place: "train" for needed in unpruned} | {needed.place: "finetune" for needed in pruned}


def towards(goal: paper.Goal) -> tuple[Needed, ...]:
    """The runs of a goal beyond the paper, one for each seed.

    >>> [needed.experiment.training.seed for needed in towards(paper.goals()[0])]
    [0, 1, 2]
    """
    return tuple(best(goal, seed) for seed in range(paper.table("goals")["seeds"]))


def _ratio_that_keeps(kept: int, channels: int) -> float:
    """The shortest ratio, to four digits, that leaves so many channels."""
    return math.ceil(10_000 * (channels - kept) / channels) / 10_000


def _baselines() -> Iterator[Needed]:
    yield from (baseline(data, model) for data, model in PAIRS)


def _gammas(lam: float) -> Needed:
    return pruned("cifar10", "vgg14", lam, gammas=True)


def _sweeps(trained: bool) -> Iterator[Needed]:
    """Networks that are trained after they were pruned, in both ways, or that are not."""
    for data, model in PAIRS:
        yield baseline(data, model)
        yield from sweep(data, model, scratch=trained, finetuned=trained)
        yield from slimming(data, model, scratch=trained, finetuned=trained)


def _statistics() -> Iterator[Needed]:
    for data in ("cifar10", "cifar100"):
        yield from seeds(data, "ot")
        yield from seeds(data, "ns")


def _of_one_training() -> Iterator[Needed]:
    """Of VGG-14 the scaling factors at every λ; what is pruned of them need not be trained."""
    model = paper.table("statistics")["model"]
    for data in ("cifar10", "cifar100"):
        for lam in paper.lambdas()[data, model]:
            yield pruned(data, model, lam, finetuned=False, gammas=True)


def _resnet20() -> Iterator[Needed]:
    yield baseline("cifar10", "resnet20")
    for needs in sweeps_of_resnet20().values():
        yield from needs
    yield from ista()


def _iterative() -> Iterator[Needed]:
    asked = _POINTS["iterative"]
    for ratio in (None, asked["slimming_ratio"]):
        for restart in Restart:
            yield rounds(asked["data"], asked["model"], asked["lam"], restart, ratio)
