"""The command line as one of several processes that torchrun started: they train together, and one of them speaks."""

import sys
from collections.abc import Callable, Sequence

from otprune.errors import TrainingError
from otprune.training import distributed

TRAINING = ("run", "train", "finetune", "scratch")


def run_together(command: Callable[[], object], arguments: Sequence[str]) -> None:
    """Run a command in the group that the environment speaks of; what goes wrong in several processes is told once.

    >>> run_together(lambda: print("alone"), ["train"])
    alone
    """
    try:
        group = distributed.launched()
    except TrainingError as error:
        sys.exit(str(error))
    if group is None:
        command()
        return
    if arguments and not arguments[0].startswith("-") and arguments[0] not in TRAINING:
        sys.exit(_refusal(arguments[0], group.size) if group.rank == 0 else 1)
    with distributed.joined(group):
        _tell_once(command)


def _refusal(verb: str, size: int) -> str:
    return (
        f"otprune {verb} is for one process, and torchrun started {size}: start it without. "
        f"Several processes can {', '.join(TRAINING[:-1])} and {TRAINING[-1]} together."
    )


def _tell_once(command: Callable[[], object]) -> None:
    """An error that the command does not tell itself is one process's to tell; a command also ends by `SystemExit`."""
    try:
        command()
    except SystemExit as end:
        if end.code:
            raise
    except Exception:
        if distributed.first_to_tell():
            raise
        sys.exit(1)
