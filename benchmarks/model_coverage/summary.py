"""What the records say: a line for each model, what went wrong, and a table of each library."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from otprune.tables import table

from .outcome import EXACT, NO_BATCH_NORM, RUNS, STATUSES

Record = Mapping[str, Any]
Records = Mapping[str, Record]

TOOLS = {"otprune": "otprune", "torch_pruning": "Torch-Pruning"}
LITTLE = 0.9
_FEW = 6
_NOT_YET = "not measured"
COLUMNS = ("library", "tool", *STATUSES[:-1], _NOT_YET, "removed")


def line(key: str, record: Record) -> str:
    """One model in one line."""
    return f"{key:<55} {_tool(record, 'otprune')} | {_tool(record, 'torch_pruning')}"


def summary(records: Records) -> str:
    """How many models of each library ended how, and where otprune removes less than Torch-Pruning."""
    rows = [row for library in libraries(records) for row in library_rows(library, records)]
    less = [f"less removed than by Torch-Pruning: {key}" for key in removed_less(records)]
    return "\n".join([table(COLUMNS, rows), *less])


def library_rows(library: str, records: Records) -> list[tuple[object, ...]]:
    """The numbers of a library, a row for each tool: models by status over both runs, and the share removed."""
    of_library = [record for key, record in records.items() if key.startswith(f"{library}:")]
    return [(library, label, *_counts(of_library, tool), _share(of_library, tool)) for tool, label in TOOLS.items()]


def libraries(records: Records) -> list[str]:
    """Their names, in the order of the records."""
    return list(dict.fromkeys(key.partition(":")[0] for key in records))


def worst(record: Record, tool: str) -> Record:
    """The run that went less well; the first where both went alike."""
    runs = [run_of(record, tool, name) for name in RUNS]
    return next((run for run in runs if run["status"] != EXACT), runs[0])


def run_of(record: Record, tool: str, run: str) -> Record:
    """One run of a tool, which may not have been measured yet."""
    runs = record[tool] or {}
    found: Record = runs.get(run, {"status": _NOT_YET})
    return found


def share(record: Record, tool: str, run: str = "agreeing") -> float | None:
    """How many of the zeroed channels are gone; none where the result is of no use."""
    outcome = run_of(record, tool, run)
    if outcome["status"] != EXACT:
        return None if outcome["status"] in (NO_BATCH_NORM, _NOT_YET) else 0.0
    return float(outcome["removed"] / outcome["zeroed"]) if outcome["zeroed"] else None


def removed_less(records: Records) -> list[str]:
    """Models of which otprune removes less than Torch-Pruning, where the latter is exact."""
    shares = {key: (share(r, "otprune"), share(r, "torch_pruning")) for key, r in records.items()}
    return [key for key, (ours, theirs) in shares.items() if ours is not None and ours < (theirs or 0.0)]


def failures(records: Records) -> str:
    """What otprune did not do well, as a list in Markdown: status, reason, and the share removed where it is low."""
    found = [lines for key, record in records.items() if (lines := _failure(key, record))]
    entries = [line for lines in found for line in lines]
    return "\n".join([f"{len(found)} of {len(records)} models", "", *entries, "", summary(records), ""])


def _failure(key: str, record: Record) -> list[str]:
    run = worst(record, "otprune")
    removed, theirs = share(record, "otprune"), share(record, "torch_pruning")
    other = f"Torch-Pruning: {worst(record, 'torch_pruning')['status']}, {_percent(theirs)} removed"
    if run["status"] not in (EXACT, NO_BATCH_NORM):
        which = "" if record["otprune"]["agreeing"]["status"] != EXACT else " in the independent run alone"
        return [f"- {key}: **{run['status']}**{which}: {run['message']} ({other})"]
    if removed is not None and removed < LITTLE:
        reasons = [*run["frozen"][:_FEW], f"stays: {_staying(run)}"]
        return [f"- {key}: {_percent(removed)} removed ({other})", *(f"  - {why}" for why in reasons)]
    return []


def _staying(run: Record) -> str:
    most = sorted(run["staying"].items(), key=lambda item: -item[1])
    return ", ".join(f"{number} of {layer}" for layer, number in most[:_FEW])


def _counts(records: list[Record], tool: str) -> list[int]:
    found = Counter(worst(record, tool)["status"] for record in records)
    return [found[status] for status in (*STATUSES[:-1], _NOT_YET)]


def _share(records: list[Record], tool: str) -> str:
    """Over all models with a mask that a tool was tried on; what it did not prune exactly counts as not removed."""
    tried = [record for record in records if record[tool] is not None]
    zeroed = sum(record["otprune"]["agreeing"].get("zeroed") or 0 for record in tried)
    runs = [run_of(record, tool, "agreeing") for record in tried]
    exact = [run for run in runs if run["status"] == EXACT]
    return _percent(sum(run["removed"] for run in exact) / zeroed if zeroed else None)


def _tool(record: Record, tool: str) -> str:
    run, seconds = worst(record, tool), run_of(record, tool, "agreeing").get("seconds")
    took = "" if seconds is None else f"{seconds:.1f} s"
    return f"{run['status']:<13} {_percent(share(record, tool)):>7} {took:>7}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
