"""Numbers of channels that a model's modules remember, to be changed with those channels."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from otprune.channels.graph import Counted, Frozen, Labels, Node, Partition
from otprune.channels.sizes import Place


@dataclass
class Memory:
    """What was seen of each remembered number: the channels that it counts, and whether it is used for more.

    >>> memory, place = Memory(), Place("block", "width", None, 2)
    >>> memory.note(place, np.array([5, 6]), "net.py:1")
    >>> [type(node).__name__ for node in memory.nodes(on_data=False)]
    ['Counted', 'Partition']
    """

    used_elsewhere: set[Place] = field(default_factory=set)
    _asked: set[Place] = field(default_factory=set)
    _counted: dict[Place, list[Labels]] = field(default_factory=dict)
    _lines: dict[Place, str] = field(default_factory=dict)

    def ask(self, places: Iterable[Place]) -> None:
        """Numbers are given to a function. Those that count no channels in it are used for something else."""
        self.used_elsewhere |= self._asked
        self._asked = set(places)

    def note(self, place: Place, lane: Labels, line: str) -> None:
        """A line cuts channels into pieces, and one of them, or all, are as many as is remembered."""
        self._asked.discard(place)
        self._counted.setdefault(place, []).append(lane)
        self._lines.setdefault(place, line)

    def nodes(self, on_data: bool) -> Iterator[Node]:
        """Whatever a number counts stays equally many; all stays where it is used for more than cutting.

        That it is not is made sure of by what the pruned model runs, which is not known where that depends on data.
        """
        for place, lanes in self._counted.items():
            if on_data or place in self.used_elsewhere:
                reason = f"{place.module}.{place.attribute}, which counts it, may be used for more than cutting it"
                yield Frozen(np.concatenate(lanes), reason.lstrip("."), self._lines[place])
            else:
                yield Counted(place.module, place.attribute, place.item, lanes[0])
                yield Partition(np.unique(np.stack(lanes), axis=0))
