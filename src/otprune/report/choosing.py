"""The runs that the recipe `best` was chosen by: every record below results/choosing/."""

from collections.abc import Iterator
from typing import Any

from otprune.experiments.fields import flat
from otprune.experiments.reproduce.needed import BEST
from otprune.experiments.reproduce.records import CHOOSING, Record, Records
from otprune.experiments.settings import resolved
from otprune.report.markdown import NONE, markdown_table, percent
from otprune.report.points import subject

CHOSEN_BY = (
    "These runs trained without a part of the training images and were judged on it. What differs between them, they "
    "decided; what does not, such as the schedule, was in the recipe from the start, and no run here compares it with "
    "anything else. Settings are those that differ from the recipe's."
)
HELD_OUT = {"sparse": "unpruned", "recalibrated": "recalibrated", "finetuned": "fine-tuned"}
# Neither which images are judged on nor how results vary belongs to a recipe.
NOT_CHOSEN = ("model", "data", "hold_out", "training.seed")


def chosen_by(records: Records) -> Iterator[str]:
    """What each of the runs came to on its held-out images, by stage; a sentence where there is none.

    >>> from pathlib import Path
    >>> list(chosen_by(Records(Path("nowhere"))))
    ['Which runs the recipe was chosen by is not yet recorded.']
    """
    runs = records.choosing.values()
    if not runs:
        yield "Which runs the recipe was chosen by is not yet recorded."
        return
    yield CHOSEN_BY
    stages = [f"held out, {name}" for name in HELD_OUT.values()]
    header = ("run", "network", "settings", "FLOPs (M)", "params (M)", *stages)
    yield markdown_table(header, [_run_row(record) for record in runs], texts=3)


def _run_row(record: Record) -> list[str]:
    asked, results = record.experiment, record.results
    held_out = [results.get(f"accuracy_held_out_{stage}") for stage in HELD_OUT]
    accuracies = [percent(None if value is None else 100 * value) for value in held_out]
    cost = results.get("cost_after", {})
    costs = [f"{cost[kind] / 1e6:.2f}" if kind in cost else NONE for kind in ("flops", "parameters")]
    name = record.place.removeprefix(f"{CHOOSING}/")
    return [name, subject(asked.data, asked.model), _other_settings(record), *costs, *accuracies]


def _other_settings(record: Record) -> str:
    """Those that the recipe has otherwise."""
    asked = record.experiment
    own, usual = (flat(one.to_dict()) for one in (asked, resolved({"model": asked.model, "data": asked.data}, BEST)))
    other = [name for name, value in own.items() if value != usual[name] and name not in NOT_CHOSEN]
    return ", ".join(f"{name.removeprefix('training.')}={_written(own[name])}" for name in other) or NONE


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
