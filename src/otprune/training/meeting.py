"""Where processes find each other that were started at the same time.

torchrun starts them again after a failure, and the store in which they leave their addresses may be the same: what
those before them left there must not be taken for theirs.
"""

import json
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from otprune.errors import TrainingError

if TYPE_CHECKING:  # a torch that was built without them still trains in one process
    from torch.distributed import Store  # type: ignore[attr-defined]

WAIT_SECONDS = 1800.0
LOOK_EVERY_SECONDS = 0.02
LEADER = "otprune/leader"


def met(store: "Store", rank: int, size: int) -> "Store":
    """A part of the store for these processes alone, once all of them are there.

    The leader leaves a name that nobody had before. The others answer to the name that they find; if it is that of an
    earlier leader, the answer is not among those that were seen, and they look again.

    >>> from torch.distributed import HashStore
    >>> here = met(HashStore(), rank=0, size=1)
    >>> here.set("who", "alone")
    >>> here.get("who")
    b'alone'
    """
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    name = _seen_all(store, size) if rank == 0 else _seen_by_the_leader(store, rank)
    return PrefixStore(f"otprune/{name}", store)


def _seen_all(store: "Store", size: int) -> str:
    name = secrets.token_hex(8)
    store.set(LEADER, name)
    answers = [_answer(name, rank) for rank in range(1, size)]
    _wait_for(lambda: not answers or store.check(answers))
    store.set(_seen(name), json.dumps([store.get(answer).decode() for answer in answers]))
    return name


def _seen_by_the_leader(store: "Store", rank: int) -> str:
    own, names = secrets.token_hex(8), [""]

    def is_seen() -> bool:
        if not store.check([LEADER]):
            return False
        names[0] = store.get(LEADER).decode()
        store.set(_answer(names[0], rank), own)
        return store.check([_seen(names[0])]) and own in json.loads(store.get(_seen(names[0])))

    _wait_for(is_seen)
    return names[0]


def _answer(name: str, rank: int) -> str:
    return f"otprune/{name}/answer/{rank}"


def _seen(name: str) -> str:
    return f"otprune/{name}/seen"


def _wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > until:
            raise TrainingError(
                f"the other processes that are to train together have not come within {WAIT_SECONDS / 60:.0f} minutes: "
                f"see whether torchrun was started on every machine, with the same --nnodes and endpoint"
            )
        time.sleep(LOOK_EVERY_SECONDS)
