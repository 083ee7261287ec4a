"""What came of one attempt to prune one model."""

from dataclasses import dataclass, field

EXACT, WRONG, REFUSED, CRASHED, TIMED_OUT, NO_BATCH_NORM = STATUSES = (
    *("exact", "wrong", "refused", "crashed", "timed out", "no batch norm"),
)
TOLERANCE = 1e-9
RUNS = ("agreeing", "independent")


@dataclass(frozen=True)
class Outcome:
    """A status, why it is no better one, and what was measured as far as it came to that.

    `removed` counts the zeroed channels that are gone, `error` is relative to the largest output. `frozen` has reasons
    why channels stay, as far as the tool gives any, `staying` how many zeroed ones each layer still has.
    """

    status: str
    message: str = ""
    channels: int | None = None
    zeroed: int | None = None
    removed: int | None = None
    error: float | None = None
    seconds: float | None = None
    frozen: list[str] = field(default_factory=list)
    staying: dict[str, int] = field(default_factory=dict)


def judged(error: float) -> tuple[str, str]:
    """The status that an error deserves, and a message."""
    return (EXACT, "") if error <= TOLERANCE else (WRONG, f"the outputs differ by {error:.2g} of the largest")
