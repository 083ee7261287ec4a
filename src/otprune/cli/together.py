"""The command line as one of several processes that torchrun started: they train together, and one of them speaks."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

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
    refused = bool(arguments) and not arguments[0].startswith("-") and arguments[0] not in TRAINING
    with distributed.joined(group):
        _tell_once(partial(_refuse, arguments[0], group.size) if refused else command)


def _refuse(verb: str, size: int) -> None:
    with distributed.telling() as for_me:
        if for_me:
            print(
                f"otprune {verb} is for one process, and torchrun started {size}: start it without. "
                f"Several processes can {', '.join(TRAINING[:-1])} and {TRAINING[-1]} together.",
                file=sys.stderr,
                flush=True,
            )
    sys.exit(1)


def _tell_once(command: Callable[[], object]) -> None:
    """An error that the command does not tell itself is one process's to tell; a command also ends by `SystemExit`."""
    try:
        command()
    except SystemExit as end:
        if end.code:
            raise
    except Exception as error:
        with distributed.telling() as for_me:
            if for_me:
                sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
