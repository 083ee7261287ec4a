"""A record that a table or a figure needs: an experiment, what is done in it, and where its record lies."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum

from otprune.experiments import paper
from otprune.experiments.experiment import Experiment, Pruning
from otprune.experiments.fields import flat
from otprune.experiments.iterate import Restart, with_the_usual_limit
from otprune.experiments.settings import resolved
from otprune.training.run import PenalizedName

ZEROS_ALONE = 1e-12  # as a δ
BEST = "best"


class Kind(StrEnum):
    """What is done in an experiment.

    >>> Kind("pruned")
    <Kind.PRUNED: 'pruned'>
    """

    BASELINE = "baseline"  # trained without a penalty, and measured
    PRUNED = "pruned"  # trained, pruned, recalibrated, fine-tuned
    SHIFTED = "shifted"  # trained, pruned at shifted thresholds, fine-tuned
    ISTA = "ista"  # trained by ISTA after a warm-up, pruned where γ is zero, fine-tuned
    ROUNDS = "rounds"  # trained and pruned, again and again


@dataclass(frozen=True)
class Needed:
    """A record by what it must hold: `finetuned`, `scratch` and `gammas` ask for what not every record has.

    `recipe` is the one that it is trained by, where that is not the paper's.

    >>> Needed(Experiment("vgg14", "cifar10"), Kind.PRUNED).place
    'cifar10/vgg14/lam1e-4-seed0'
    """

    experiment: Experiment
    kind: Kind
    finetuned: bool = True
    scratch: bool = False
    gammas: bool = False
    restart: Restart | None = None
    recipe: str = ""

    @property
    def place(self) -> str:
        """Where its record lies below results/, and its run below the folder of runs."""
        return place(self.experiment, self._prefix)

    @property
    def trained_at(self) -> str:
        """Where the run lies that its training is shared with: one training serves many prunings."""
        if self.kind is Kind.ISTA or self.recipe:
            return self.place
        return place(replace(self.experiment, pruning=Pruning()))

    @property
    def begins_at(self) -> str:
        """Where the run lies that begins with the trained weights; where nothing else does, they were trained there."""
        if self.kind is Kind.ROUNDS:
            return f"{self.place}/round-1"
        return self.place if self.kind in (Kind.PRUNED, Kind.ISTA) else self.trained_at

    @property
    def _prefix(self) -> str:
        rule = self.experiment.pruning.rule
        if self.recipe:
            return f"{self.recipe}-"
        if self.kind in (Kind.SHIFTED, Kind.ISTA):
            return f"{self.kind}-"
        return "" if self.restart is None else f"rounds-{rule}-{self.restart}-"


def once_each(needs: Iterable[Needed]) -> list[Needed]:
    """Every record once, with all that is needed of it.

    >>> asked = [pruned("cifar10", "vgg14", 1e-4, scratch=True), pruned("cifar10", "vgg14", 1e-4)]
    >>> [(needed.finetuned, needed.scratch) for needed in once_each(asked)]
    [(True, True)]
    """
    found: dict[str, Needed] = {}
    for needed in needs:
        known = found.get(needed.place, needed)
        finetuned, scratch = needed.finetuned or known.finetuned, needed.scratch or known.scratch
        found[needed.place] = replace(needed, finetuned=finetuned, scratch=scratch)
    return list(found.values())


def place(experiment: Experiment, prefix: str = "") -> str:
    """Data, model and the settings that tell one run of the paper from another.

    >>> place(Experiment("vgg14", "cifar10", pruning=Pruning(rule="ns", ratio=0.3)))
    'cifar10/vgg14/ns0.3-lam1e-4-seed0'
    """
    training, pruning = experiment.training, experiment.pruning
    rule = f"ns{pruning.ratio:g}-" if pruning.rule == "ns" and not prefix else ""
    target = training.target_flops
    strength = f"lam{lam_text(training.lam)}" if target is None else f"target{target:g}"
    alone = "" if training.penalized == "all" else f"{training.penalized}-"
    name = f"{prefix}{rule}{alone}{strength}-seed{training.seed}"
    return f"{experiment.data}/{experiment.model}/{name}"


def lam_text(lam: float) -> str:
    """A λ as the paper writes it.

    >>> lam_text(1e-4), lam_text(0.0015), lam_text(0)
    ('1e-4', '1.5e-3', '0')
    """
    if not lam:
        return "0"
    mantissa, _, exponent = f"{Decimal(repr(float(lam))).normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def pruned(
    data: str,
    model: str,
    lam: float,
    *,
    seed: int = 0,
    ratio: float | None = None,
    finetuned: bool = True,
    scratch: bool = False,
    gammas: bool = False,
    penalized: PenalizedName = "all",
) -> Needed:
    """A network trained with λ, pruned by OT, or by Network Slimming where a ratio is given, and usually fine-tuned.

    >>> pruned("cifar10", "vgg14", 2e-4, ratio=0.7003).experiment.pruning.rule
    'ns'
    """
    experiment = trained(data, model, lam, seed, penalized)
    if ratio is not None:
        experiment = replace(experiment, pruning=Pruning(rule="ns", ratio=ratio))
    return Needed(experiment, Kind.PRUNED, finetuned, scratch, gammas)


def baseline(data: str, model: str, seed: int = 0) -> Needed:
    """A network trained without a penalty.

    >>> baseline("cifar10", "vgg14").place
    'cifar10/vgg14/lam0-seed0'
    """
    return Needed(trained(data, model, 0.0, seed), Kind.BASELINE)


def shifted(data: str, model: str, lam: float) -> Needed:
    """A network pruned at shifted thresholds.

    >>> shifted("cifar10", "vgg14", 1e-4).place
    'cifar10/vgg14/shifted-lam1e-4-seed0'
    """
    return Needed(trained(data, model, lam), Kind.SHIFTED)


def rounds(data: str, model: str, lam: float, restart: Restart, ratio: float | None = None) -> Needed:
    """A network pruned in rounds, by OT, or by Network Slimming where a ratio is given.

    >>> rounds("cifar10", "vgg14", 1e-4, Restart.SCRATCH, ratio=0.5).place
    'cifar10/vgg14/rounds-ns-scratch-lam1e-4-seed0'
    """
    experiment = trained(data, model, lam)
    if ratio is not None:
        experiment = with_the_usual_limit(replace(experiment, pruning=Pruning(rule="ns", ratio=ratio)))
    return Needed(experiment, Kind.ROUNDS, restart=restart)


def by_ista(rho: float, seed: int = 0) -> Needed:
    """ResNet-20 as Ye et al. train it, pruned where γ is exactly zero.

    >>> by_ista(0.005).place
    'cifar10/resnet20/ista-lam5e-3-seed0'
    """
    settings = {
        "model": "resnet20",
        "data": "cifar10",
        "training.lam": rho,
        "training.seed": seed,
        "training.epochs": paper.table("points")["ye2018"]["epochs"],
        "training.decay_at": (),
        "training.momentum": 0.0,
        "training.proximal": True,
        "pruning.delta": ZEROS_ALONE,
        "finetuning.epochs": paper.table("points")["ye2018"]["epochs"],
        "finetuning.rate": 0.01,  # without momentum, what 0.001 is with it
    }
    return Needed(resolved(settings, "resnet20"), Kind.ISTA)


def best(goal: paper.Goal, seed: int = 0) -> Needed:
    """A network by the recipe that is to reach a goal beyond the paper, with no training after it is pruned.

    >>> best(paper.goals()[0]).place
    'cifar10/vgg14/best-target...-seed0'
    """
    settings = {"model": goal.model, "data": goal.data, "training.seed": seed, **flat(goal.settings)}
    return Needed(resolved(settings, BEST), Kind.PRUNED, finetuned=False, recipe=BEST)


@functools.cache
def trained(data: str, model: str, lam: float, seed: int = 0, penalized: PenalizedName = "all") -> Experiment:
    """An experiment with the paper's recipe for the model.

    >>> trained("cifar10", "resnet20", 1e-3).training.batch
    125
    """
    flags = {"model": model, "data": data, "training.lam": lam, "training.seed": seed, "training.penalized": penalized}
    return resolved(flags, "resnet20" if model == "resnet20" else None)
