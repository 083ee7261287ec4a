"""The page of results, in Markdown."""

from collections.abc import Mapping
from typing import Any

from otprune.report.markdown import NONE, markdown_table, measured_with

from .outcome import EXACT, NO_BATCH_NORM
from .summary import COLUMNS, TOOLS, Record, Records, libraries, library_rows, removed_less, run_of, share, worst

INTRODUCTION = """\
# Models of other libraries

Everything on this page is made from [results/coverage.json](../results/coverage.json), which `make coverage` writes;
no number is typed. Every model is built with random weights and pruned twice by otprune and twice by
[Torch-Pruning](https://github.com/VainF/Torch-Pruning), each in a process of its own with a limit of time. Half of
all batch-norm channels are zeroed: of every two neighbours one. In the first run they are drawn once for all channels
that a sum ties together, so that the batch norms that write them agree; in the second for every batch norm on its
own. *Removed* is the share of the zeroed channels that are physically gone after the first run; what is not exact
counts as not removed. The error is the largest difference between the outputs of the pruned and the zeroed model in
float64, as a share of the largest output, and at most 1e-9 is *exact*. Seconds are those of trace, plan and prune;
those of the two tools may be of different days, so they are no comparison, which the README has of some networks."""

HEADER = (
    *("model", "BN channels", "zeroed", "removed", "error", "error, second run", "seconds"),
    *("Torch-Pruning: removed", "error", "error, second run", "seconds"),
)


def page(content: Mapping[str, Any] | None) -> str:
    """The whole page; `content` is what the file of results holds, if there is one."""
    if content is None:
        return f"{INTRODUCTION}\n\nNothing is measured yet.\n"
    records: Records = content["models"]
    made = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    parts = [INTRODUCTION, f"Measured with {made}; {measured_with(content['provenance'])}."]
    parts += [_summary(records), _less(records), *(_library(library, records) for library in libraries(records))]
    return "\n\n".join([*parts, _reasons(records)]) + "\n"


def _summary(records: Records) -> str:
    rows = [tuple(map(str, row)) for library in libraries(records) for row in library_rows(library, records)]
    return "## Summary\n\n" + markdown_table(COLUMNS, rows, texts=2)


def _less(records: Records) -> str:
    less = removed_less(records)
    names = ", ".join(f"`{key}`" for key in less)
    return f"otprune removes less than Torch-Pruning of {len(less)} models{': ' if less else ''}{names}."


def _library(library: str, records: Records) -> str:
    rows = [_row(key, record) for key, record in records.items() if key.startswith(f"{library}:")]
    return f"## {library}\n\n" + markdown_table(HEADER, rows)


def _row(key: str, record: Record) -> tuple[str, ...]:
    first = record["otprune"]["agreeing"]
    return key.partition(":")[2], _count(first, "channels"), _count(first, "zeroed"), *_cells(record)


def _cells(record: Record) -> list[str]:
    return [cell for tool in TOOLS for cell in _tool_cells(record, tool)]


def _tool_cells(record: Record, tool: str) -> tuple[str, str, str, str]:
    first, second = run_of(record, tool, "agreeing"), run_of(record, tool, "independent")
    removed, seconds = share(record, tool), first.get("seconds")
    took = NONE if seconds is None else f"{seconds:.1f}"
    return NONE if removed is None else f"{100 * removed:.1f} %", _error(first), _error(second), took


def _error(run: Record) -> str:
    if run["status"] == EXACT:
        return f"{run['error']:.0e}"
    return f"**{run['status']}**" + (f" {run['error']:.0e}" if run.get("error") is not None else "")


def _count(run: Record, name: str) -> str:
    return NONE if run.get(name) is None else f"{run[name]:,}"


def _reasons(records: Records) -> str:
    """Why otprune did not prune a model exactly."""
    runs = {key: worst(record, "otprune") for key, record in records.items()}
    lines = [
        f"- `{key}`: {run['status']}: {run['message']}"
        for key, run in runs.items()
        if run["status"] not in (EXACT, NO_BATCH_NORM)
    ]
    return "\n".join(["## What otprune did not prune", "", *(lines or ["Every model was pruned exactly."])])
