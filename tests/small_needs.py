"""Records of a small network on digits that something may need, each made in a second or two."""

from dataclasses import replace

from otprune.experiments.experiment import Experiment, Pruning
from otprune.experiments.iterate import Restart, with_the_usual_limit
from otprune.experiments.reproduce.needed import ZEROS_ALONE, Kind, Needed
from otprune.training.run import Training
from tests.small_runs import EXPERIMENT, FINETUNING

SMALL = replace(EXPERIMENT, training=replace(EXPERIMENT.training, epochs=2))
PRUNED = Needed(SMALL, Kind.PRUNED, scratch=True)
PRUNED_ONCE = replace(PRUNED, scratch=False)


def slimmed(ratio: float) -> Experiment:
    return replace(SMALL, pruning=Pruning(rule="ns", ratio=ratio))


SLIMMED = [Needed(slimmed(ratio), Kind.PRUNED, scratch=ratio == 0.25) for ratio in (0.25, 0.5)]
BASELINE = Needed(replace(SMALL, training=replace(SMALL.training, lam=0.0)), Kind.BASELINE)
SHIFTED = Needed(SMALL, Kind.SHIFTED)
ROUNDS = Needed(with_the_usual_limit(slimmed(0.5)), Kind.ROUNDS, restart=Restart.FINETUNED)
EVERYTHING = [BASELINE, PRUNED, *SLIMMED, SHIFTED, ROUNDS]
BY_ISTA = [
    Needed(
        Experiment(
            "digits_net",
            "digits",
            training=Training(epochs=3, lam=rho, decay_at=(), momentum=0.0, proximal=True, augment=False),
            pruning=Pruning(delta=ZEROS_ALONE),
            finetuning=FINETUNING,
        ),
        Kind.ISTA,
    )
    for rho in (0.05, 0.2)
]
