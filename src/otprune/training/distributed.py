"""Several processes that train one model together, as torchrun starts them.

Each is told by its environment who it is. What they have to tell each other on the CPU goes through gloo, what lies on
GPUs through NCCL. One of them leads: it alone writes files and speaks to the user, and the others do what it says.

A process alone is in no group. For it `led` just does, `most` just returns, and nothing here touches torch.distributed.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist

from otprune.errors import TrainingError
from otprune.training.data.share import WHOLE, Share
from otprune.training.meeting import met
from otprune.training.stopping import Interrupted

if TYPE_CHECKING:  # a torch that was built without them still trains in one process
    from torch.distributed import Store  # type: ignore[attr-defined]

Result = TypeVar("Result")

# The others wait while the leader evaluates or prunes. Processes that die are noticed at once, whatever this is.
TIMEOUT = timedelta(hours=6)
TELLING, TOLD = "otprune/telling", "otprune/told"
TELLING_TAKES = timedelta(minutes=1)  # at most, on a busy machine

# What gloo, NCCL and the store say of a peer that is gone, and not of what is wrong with this machine or its GPUs.
GONE = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted)|broken pipe|socket closed|remote process exit|"
    r"ncclRemoteError|communicator was aborted",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Group:
    """Which of how many processes this one is; `local_rank` counts those on its machine.

    >>> Group(rank=1, size=2).share
    Share(number=1, of=2)
    """

    rank: int
    size: int
    local_rank: int = 0

    @property
    def share(self) -> Share:
        """What this process trains on."""
        return Share(self.rank, self.size)


@dataclass
class _Joined:
    """The group that this process is in, and where its members leave notes for each other."""

    group: Group | None = None
    store: "Store | None" = None
    leader_failed: bool = False  # and tells so itself


_here = _Joined()


def launched(environment: Mapping[str, str] | None = None) -> Group | None:
    """Who torchrun says that this process is; None where it is alone.

    >>> where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    >>> launched({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"} | where)
    Group(rank=1, size=2, local_rank=1)
    >>> launched({})
    """
    found = os.environ if environment is None else environment
    if found.get("WORLD_SIZE", "1") == "1":
        return None
    try:
        rank, size, local = (int(found[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    except (KeyError, ValueError) as error:
        raise TrainingError(
            f"WORLD_SIZE={found['WORLD_SIZE']} is set, so this is one of several processes, but RANK and LOCAL_RANK do "
            f"not say which: start them with torchrun, or unset WORLD_SIZE"
        ) from error
    if not found.get("MASTER_ADDR") or not found.get("MASTER_PORT", "").isdigit():
        raise TrainingError(
            f"WORLD_SIZE={found['WORLD_SIZE']} is set, so this is one of several processes, but MASTER_ADDR and "
            f"MASTER_PORT do not say where they meet: start them with torchrun, or unset WORLD_SIZE"
        )
    return Group(rank, size, local)


@contextmanager
def joined(group: Group | None) -> Iterator[None]:
    """Be in a group for a while, as MASTER_ADDR and MASTER_PORT say where; without one, be alone.

    >>> with joined(None):
    ...     share()
    Share(number=0, of=1)
    """
    if group is None:
        yield
        return
    from torch.distributed.rendezvous import rendezvous

    known, _, _ = next(rendezvous("env://", group.rank, group.size))
    store = met(known, group.rank, group.size)
    dist.init_process_group(_backend(), store=store, rank=group.rank, world_size=group.size, timeout=TIMEOUT)
    _here.group, _here.store = group, store
    yield  # a process that fails just ends: there may be nobody left to take leave of
    most(0)  # the leader may have the store, which the others need to the end
    _here.group = _here.store = None
    dist.destroy_process_group()


def current() -> Group | None:
    """The group that this process is in.

    >>> current()
    """
    return _here.group


def share() -> Share:
    """What this process trains on: everything where it is alone.

    >>> share()
    Share(number=0, of=1)
    """
    return WHOLE if _here.group is None else _here.group.share


def leads() -> bool:
    """Whether this process is the one that writes and speaks.

    >>> leads()
    True
    """
    return _here.group is None or _here.group.rank == 0


def led(do: Callable[[], Result]) -> Result:
    """Let the leader do something, and all others wait for what came of it, which JSON must know.

    Where it fails, all fail: the leader with the error, which is its own to tell, the others with what it says.

    >>> led(lambda: 2 + 2)
    4
    """
    if _here.group is None:
        return do()
    if not leads():
        return cast(Result, _heard())
    try:
        value = do()
    except BaseException as error:
        with suppress(RuntimeError):  # from others that are gone: what went wrong here is what has to be told
            _said({"error": str(error), "stopped": isinstance(error, KeyboardInterrupt)})
        raise
    _said({"value": value})
    return value


def leader_first(do: Callable[[], Result]) -> Result:
    """Do something in every process, but in the leader before all others: they find what it fetched.

    >>> leader_first(lambda: 2 + 2)
    4
    """
    done: list[Result] = []
    led(lambda: done.append(do()))
    return done[0] if done else do()


def require_same(what: str, value: Any) -> None:
    """Refuse to go on where another process has something else than the leader; JSON must know it.

    >>> require_same("settings", {"batch": 64})
    """
    leaders = led(lambda: value)
    if leaders != value:
        raise TrainingError(
            f"the processes that train together do not have the same {what}: {leaders} in the first, {value} in "
            f"number {share().number}. Give all of them the same command, and a folder that all of them see."
        )


def most(number: int) -> int:
    """The largest number that a process of the group has; all must ask.

    >>> most(3)
    3
    """
    if _here.group is None:
        return number
    found = torch.tensor(number)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return int(found)


def gathered(own: Mapping[str, str]) -> dict[str, str]:
    """What all processes have noted, together.

    >>> gathered({"a.png": "no picture"})
    {'a.png': 'no picture'}
    """
    if _here.group is None:
        return dict(own)
    content = json.dumps(dict(own)).encode()
    longest = most(len(content))
    padded = torch.frombuffer(bytearray(content.ljust(longest)), dtype=torch.uint8)
    parts = [torch.empty_like(padded) for _ in range(_here.group.size)]
    dist.all_gather(parts, padded)
    return {name: value for part in parts for name, value in json.loads(bytes(part.tolist())).items()}


@contextmanager
def telling() -> Iterator[bool]:
    """Whether it is for this process to tell the user why all end. The others wait until it has.

    torchrun ends all processes when it has seen one end, so nobody must end before it is told.

    >>> with telling() as for_me:
    ...     for_me
    True
    """
    store = _here.store
    if store is None:
        yield True
    elif _here.leader_failed or not _is_first(store):
        with suppress(RuntimeError):  # from a process that was killed before it could, or that had the store
            store.wait([TOLD], TELLING_TAKES)
        yield False
    else:
        yield True
        with suppress(RuntimeError):
            store.set(TOLD, "")


def is_lost_connection(error: RuntimeError) -> bool:
    """Whether it says that another process of the group is gone.

    >>> is_lost_connection(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"))
    True
    >>> is_lost_connection(RuntimeError("NCCL error: Duplicate GPU detected"))
    False
    """
    return isinstance(error, dist.DistNetworkError) or GONE.search(str(error)) is not None


def _is_first(store: "Store") -> bool:
    try:
        return bool(store.add(TELLING, 1) == 1)
    except RuntimeError:  # whoever had the store is gone: better told twice than never
        return True


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _said(message: dict[str, Any]) -> None:
    content = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
    dist.broadcast(torch.tensor(len(content)), 0)
    dist.broadcast(content, 0)


def _heard() -> Any:
    """What the leader says; where that is what went wrong there, it is raised here as well."""
    length = torch.tensor(0)
    dist.broadcast(length, 0)
    content = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(content, 0)
    message = json.loads(bytes(content.tolist()))
    _here.leader_failed = "error" in message
    if not _here.leader_failed:
        return message["value"]
    raise (Interrupted if message["stopped"] else TrainingError)(message["error"])
