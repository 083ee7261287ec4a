"""Which runs have to be trained first: pruning needs trained weights, and so does a teacher; nothing later does.

So a run goes on without them: where they were deleted to save space, or left behind on another machine.
"""

from collections.abc import Sequence
from pathlib import Path

from otprune.errors import TrainingError
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import DEPENDENT, FINETUNED, PRUNED, SPARSE, left_after_pruning, left_any
from otprune.experiments.pipeline import Pipeline
from otprune.training import distributed

UNTAUGHT = "give --distill 0"


def untrained(pipelines: Sequence[Pipeline], finetuned: bool = True) -> list[Pipeline]:
    """All but those that go on from a pruned model, to be fine-tuned or not.

    >>> untrained([])
    []
    """
    going_on = distributed.led(
        lambda: [goes_on_from_pruned(one.folder, one.experiment, finetuned) for one in pipelines]
    )
    return [pipeline for pipeline, goes_on in zip(pipelines, going_on, strict=True) if not goes_on]


def goes_on_from_pruned(folder: Path, experiment: Experiment, finetuned: bool = True) -> bool:
    """Whether nothing that a run still has to do, be it fine-tuned or not, needs trained weights, there or not.

    >>> goes_on_from_pruned(Path("nowhere"), Experiment("vgg14", "cifar10"))
    False
    """
    is_to_be_taught = finetuned and experiment.finetuning.distill and not (folder / FINETUNED).exists()
    return (folder / PRUNED).exists() and not is_to_be_taught


def require_nothing_made_of_others(folder: Path, experiment: Experiment) -> None:
    """Refuse to train from the start where something was made of weights that are gone: others would be put beside it.

    >>> require_nothing_made_of_others(Path("nowhere"), Experiment("vgg14", "cifar10"))
    """
    made = [name for name in (PRUNED, *left_after_pruning(folder)) if (folder / name).exists()]
    if made:
        begun = left_any(folder, DEPENDENT["finetuning"])  # then it is settled that it is taught
        taught = f", {UNTAUGHT}" if experiment.finetuning.distill and not begun else ""
        raise TrainingError(
            f"{folder}: {' and '.join(made)} came of trained weights that are gone, and another training may come to "
            f"others. Put {SPARSE} back{taught}, or use another folder."
        )


def require_a_teacher(folder: Path) -> None:
    """Refuse to distill from trained weights that are not there.

    >>> require_a_teacher(Path("nowhere"))
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: nowhere: --distill lets the trained network teach the pruned one, and there is no ...
    """
    if not (folder / SPARSE).exists():
        raise TrainingError(
            f"{folder}: --distill lets the trained network teach the pruned one, and there is no {SPARSE}. "
            f"Put it back, or {UNTAUGHT}."
        )
