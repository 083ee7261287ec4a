"""Runs that fail on a cluster: whether the node may be to blame, and which nodes other runs are kept away from."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from otprune.errors import CheckpointError, DataError, OtpruneError
from otprune.training.failures import of_the_system

MEND = "What was saved before is kept: mend this on that node, then give the same command again."


@dataclass(frozen=True)
class Failure:
    """What went wrong with a run, on which node; with `of_node`, it may go well on another one.

    >>> Failure("runs/a: the loss is not a finite number", "host/0a1b2c").of_node
    False
    """

    text: str
    where: str
    of_node: bool = False


@dataclass
class Suspects:
    """The nodes on which runs of a sweep failed in a way that may be the nodes' own; `tried` are those runs.

    >>> suspects, full = Suspects(), Failure("no space left on device", "host/0a1b2c", of_node=True)
    >>> suspects.lets_try_again("a", full, nodes=["0a1b2c", "3d4e5f"]), suspects.nodes
    (True, {'0a1b2c'})
    >>> suspects.lets_try_again("b", full, nodes=["0a1b2c"])  # there is no other
    False
    """

    nodes: set[str] = field(default_factory=set)
    tried: dict[str, str] = field(default_factory=dict)

    def lets_try_again(self, run: str, failure: Failure, nodes: Collection[str]) -> bool:
        """Whether a run that failed is to be done once more; `nodes` are all that could do it."""
        if not failure.of_node:
            return False
        self.nodes.add(node_of(failure.where))
        again = run not in self.tried and bool(self.to_avoid(nodes))
        self.tried.setdefault(run, failure.where)
        return again

    def to_avoid(self, nodes: Collection[str]) -> set[str]:
        """What other runs are to be kept away from: nothing where these nodes are all that there are.

        >>> Suspects({"0a1b2c"}).to_avoid(["0a1b2c", "3d4e5f"]), Suspects({"0a1b2c"}).to_avoid(["0a1b2c"])
        ({'0a1b2c'}, set())
        """
        return set() if self.nodes.issuperset(nodes) else self.nodes

    def told(self, run: str, failure: Failure) -> str:
        """What went wrong in the end, and where it went wrong before.

        >>> suspects = Suspects(tried={"a": "host/0a1b2c"})
        >>> suspects.told("a", Failure("on host/3d4e5f: no space left on device.", "host/3d4e5f"))
        'on host/3d4e5f: no space left on device. It failed on host/0a1b2c before.'
        """
        before = self.tried.get(run, failure.where)
        return failure.text if before == failure.where else f"{failure.text.rstrip('.')}. It failed on {before} before."


def node_of(where: str) -> str:
    """The node in the name of a place.

    >>> node_of("host/0a1b2c")
    '0a1b2c'
    """
    return where.rpartition("/")[2]


def failure(error: OtpruneError | OSError, where: str, folder: Path, copy: Path) -> Failure:
    """An error of a run in words; `folder` is where the user has it, and `copy` where it was on the node.

    >>> failure(DataError("images: there is no such folder"), "host/0a1b2c", Path("runs/a"), Path("/tmp/x/a")).text
    'runs/a: on host/0a1b2c: images: there is no such folder'
    """
    if not may_be_of_the_node(error):
        return Failure(str(error).replace(str(copy), str(folder)), where)
    cause = error if isinstance(error, OSError | DataError) else error.__cause__
    text = f"{of_the_system(_with_a_name(cause, copy))}. {MEND}" if isinstance(cause, OSError) else str(error)
    return Failure(f"{folder}: on {where}: {text}", where, of_node=True)


def _with_a_name(error: OSError, copy: Path) -> OSError:
    """Of a file that it was written to, the system may say only what went wrong."""
    known = error.filename is not None or error.strerror is None
    return error if known else OSError(error.errno, error.strerror, str(copy))


def may_be_of_the_node(error: Exception) -> bool:
    """Whether a run that failed so may go well on another node, which has the data, or room on its disk.

    >>> may_be_of_the_node(OSError(28, "No space left on device")), may_be_of_the_node(OtpruneError("it diverged"))
    (True, False)
    """
    unsaved = isinstance(error, CheckpointError) and isinstance(error.__cause__, OSError)
    return unsaved or isinstance(error, OSError | DataError)
