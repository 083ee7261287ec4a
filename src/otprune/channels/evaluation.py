"""What a model does in evaluation mode and not in training mode, which is the mode it is traced in."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from otprune.abstract import watch
from otprune.channels.graph import Carry, Flags, Labels, Meeting, Pointwise, Signature, connected, reads_of
from otprune.channels.operators import Operators
from otprune.errors import OtpruneError
from otprune.location import user_location

if TYPE_CHECKING:
    from otprune.channels.tracer import Tracer


def freeze_what_evaluation_adds(
    tracer: "Tracer", example: Any, trace_again: Callable[[Collection[Signature]], "Tracer"]
) -> Counter[Signature] | None:
    """Whatever is read by operators that only evaluation mode runs must stay as it is.

    Returns all operators that evaluation mode runs. A model that does not evaluate the example may want other inputs
    then; what it does with those is not known, and noted.
    """
    model = tracer.model
    if not tracer.asked_for_mode:
        return tracer.signatures
    try:
        operators, _ = watch(model, example, lambda: Operators(model), training=False)
        added = operators.signatures - tracer.signatures
        if added or operators.looking_at:
            evaluated, out = watch(model, example, lambda: trace_again(added), training=False)
            evaluated.refuse_harmful_ending(out)
            tracer.memory.used_elsewhere |= evaluated.memory.used_elsewhere
            _freeze_suspects(evaluated, tracer)
    except OtpruneError as error:
        tracer.notes.append(_unknown(error))
        return None
    return operators.signatures


def _unknown(error: OtpruneError) -> str:
    return (
        f"{not_looked_at('evaluation', error)}. Channels that only evaluation mode needs may go: pass an example that "
        f"runs in both modes, or leave layers alone with ignore=[...]"
    )


def not_looked_at(mode: str, error: OtpruneError) -> str:
    """That a mode was left out, and why.

    >>> not_looked_at("training", OtpruneError("no targets")).partition(", ")[0]
    'training mode was not looked at'
    """
    cause = error.__cause__ or error
    found = f"{cause} ({user_location(cause)})"
    return f"{mode} mode was not looked at, since the model does not run on the example there: {found}"


def _freeze_suspects(evaluated: "Tracer", tracer: "Tracer") -> None:
    root = connected(evaluated.count, _same_channels(evaluated))
    for suspect in evaluated.suspects:
        labels = _found_again(np.isin(root, root[suspect.labels]), evaluated, tracer)
        if labels.size:
            tracer.nodes.append(replace(suspect, labels=labels))


def _same_channels(tracer: "Tracer") -> Iterator[tuple[Labels, Labels]]:
    yield from tracer.ties
    for node in tracer.nodes:
        if isinstance(node, Carry | Pointwise):
            yield from ((labels, node.writes) for labels in reads_of(node))
        elif isinstance(node, Meeting):
            yield node.reads[:, 0], node.writes


def _found_again(marked: Flags, there: "Tracer", here: "Tracer") -> Labels:
    """The labels of one trace that lie along the same parameters as the marked ones of another."""
    shared = [(labels.numpy(), here.uses[slot].numpy()) for slot, labels in there.uses.items() if slot in here.uses]
    return np.concatenate([np.zeros(0, np.int64), *(own[marked[labels]] for labels, own in shared)])
