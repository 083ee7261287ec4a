"""The verb that makes the paper's tables and figures again."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from otprune.cli.app import app
from otprune.cli.downloads import downloads
from otprune.cli.flags import RUN, Device
from otprune.cli.running import console, errors_in_one_line, reports, say
from otprune.cli.targets import require_target
from otprune.errors import OtpruneError, TrainingError
from otprune.experiments import stages
from otprune.experiments.claiming import some
from otprune.experiments.following import OnScreen
from otprune.experiments.reporting import Several
from otprune.experiments.reproduce.jobs import Job, jobs
from otprune.experiments.reproduce.made_images import run_on_made_images
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import Row, printed, row, rows
from otprune.experiments.reproduce.running import run_missing
from otprune.experiments.reproduce.side_by_side import fetch, run_missing_in
from otprune.experiments.reproduce.trainings import to_train
from otprune.experiments.reproduce.undamaged import Undamaged
from otprune.experiments.reproduce.watching import Watching
from otprune.experiments.reproduce.workshop import Workshop
from otprune.experiments.runs_table import RunsTable, moving
from otprune.training.loop import chosen_device

ILSVRC = "ilsvrc"
REFUSED = "refused"
Shown = Annotated[str | None, typer.Argument(help="A table or figure of the paper; without one, all are listed.")]


@app.command()
def reproduce(
    name: Shown = None,
    draw_only: Annotated[
        bool, typer.Option("--draw-only", help="Run nothing, only draw what is recorded.", rich_help_panel=RUN)
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only the records in this folder, cifar10/vgg14, or with names like this, '*/lam2e-4-seed[67]'; "
            "quote patterns. Can be given several times.",
            rich_help_panel=RUN,
        ),
    ] = None,
    scratch: Annotated[
        bool, typer.Option(help="Also train from scratch, where the figure shows that.", rich_help_panel=RUN)
    ] = True,
    together: Annotated[
        int, typer.Option(min=1, help="Train at most so many side by side.", rich_help_panel=RUN)
    ] = stages.TOGETHER,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            help="Work in so many processes: while one waits for a compiler, the others use the device.",
            rich_help_panel=RUN,
        ),
    ] = 1,
    out: Annotated[Path, typer.Option(help="Folder of the runs.", rich_help_panel=RUN)] = Path("runs/reproduce"),
    results: Annotated[Path, typer.Option(help="Folder of the records.", rich_help_panel=RUN)] = Path("results"),
    figures: Annotated[Path, typer.Option(help="Folder of the figures.", rich_help_panel=RUN)] = Path("docs/figures"),
    device: Device = "auto",
) -> None:
    """Make a table or figure of the paper again: run what has no record yet, and draw what is there."""
    screen = console()
    with errors_in_one_line():
        if name is None:
            if draw_only or only:
                raise TrainingError(f"name what to {'draw' if draw_only else 'run'}: one of {', '.join(rows())}")
            _require_records(results, "list")
            _end(_list(rows().values(), Undamaged(results), screen))
            return
        asked = row(name)
        needs = _chosen(asked, only and [_as_named(pattern) for pattern in only])
        if draw_only:
            _require_records(results, "draw from")
        else:
            if asked.name == ILSVRC or Records(results).lacking(needs):
                require_target(results / f"{asked.name}.json", ".json")  # as any that is written there
            workshop = Workshop(out, results, chosen_device(device), together=together)
            _run(asked, needs, scratch, workshop, processes, screen)
        refused = _list([asked], Undamaged(results), screen)
        try:
            _draw(asked, Undamaged(results), figures, screen)
        except OtpruneError as error:
            refused.append(str(error))
        _end(refused)


def _require_records(results: Path, to: str) -> None:
    if not results.is_dir():
        raise TrainingError(f"there is no folder {results} to {to}: name that of the records with --results")


def _chosen(asked: Row, only: Sequence[str] | None) -> list[Needed]:
    """The records in one of these folders, or with names like one of these."""
    if only is None:
        return list(asked.needs)
    for pattern in only:
        if not any(_is_like(needed, pattern) for needed in asked.needs):
            raise TrainingError(f"no record of {asked.name} is in or like {pattern!r}: {_there(asked)}")
    return [needed for needed in asked.needs if any(_is_like(needed, pattern) for pattern in only)]


def _as_named(pattern: str) -> str:
    """What is copied from a link to a record is as good as its name."""
    return pattern.removeprefix("./").removeprefix("results/").removesuffix(".json")


def _is_like(needed: Needed, pattern: str) -> bool:
    folder, _, _ = needed.place.rpartition("/")
    return f"{folder}/".startswith(f"{pattern.rstrip('/')}/") or fnmatchcase(needed.place, pattern)


def _there(asked: Row) -> str:
    if not asked.needs:
        return "it has no records of runs"
    folders = dict.fromkeys(needed.place.rpartition("/")[0] for needed in asked.needs)
    names = f"with names such as {asked.needs[-1].place}"
    return f"its records are in {', '.join(folders)}, {names}; a pattern is for the whole of a name, as '*-seed0' is"


def _run(
    asked: Row, needs: Sequence[Needed], scratch: bool, workshop: Workshop, processes: int, screen: Console
) -> None:
    say(screen, _announced(needs, workshop, scratch) if needs else asked.remark)
    if processes > 1 and (found := jobs(needs, workshop, scratch)):
        _run_in(processes, found, scratch, workshop, screen)
        return
    with reports(screen) as report, downloads(screen) as downloading:
        workshop.report = Several(report, Watching(workshop.runs, printed()))
        workshop.downloading = downloading
        if asked.name == ILSVRC:
            run_on_made_images(workshop)
        run_missing(needs, workshop, scratch)


def _run_in(processes: int, found: Sequence[Job], scratch: bool, workshop: Workshop, screen: Console) -> None:
    table = RunsTable([job.name for job in found])
    with downloads(screen) as downloading:
        workshop.downloading = downloading
        fetch(found, workshop)
    with moving(table, screen):
        run_missing_in(processes, found, workshop, scratch, OnScreen(table, screen))


def _announced(needs: Sequence[Needed], workshop: Workshop, scratch: bool) -> str:
    """What is about to be run, before hours are spent on it."""
    records = Records(workshop.results)
    lacking = [needed.place for needed in records.lacking(needs, scratch)]
    if not lacking:
        return f"nothing to run: {len(needs)} of {len(needs)} records are in {workshop.results}"
    others = [place for place in to_train(records.lacking(needs, scratch=False), workshop) if place not in lacking]
    first = f"; first the shared training of {some(others)}" if others else ""
    nowhere = "" if workshop.results.is_dir() else ", which is not there yet"
    found = f"{len(lacking)} of {len(needs)} records that {workshop.results} lacks{nowhere}: {some(lacking)}"
    return f"to run on {workshop.device}: {found}{first}"


def _draw(asked: Row, records: Undamaged, figures: Path, screen: Console) -> None:
    """What the records that can be read are enough for."""
    from otprune.report.figures import FIGURES, draw
    from otprune.report.tables import TABLES

    said = list(TABLES[asked.name](records)) if asked.name in TABLES else []
    if asked.name in FIGURES:
        said += [f"drawn {path}" for path in draw(asked.name, records, figures)]
    if said and records.refused:
        said.append(f"made without what is refused: {some(list(records.refused))}")
    for text in said:
        screen.print(text, markup=False, highlight=False, soft_wrap=True)


def _list(shown: Iterable[Row], records: Undamaged, screen: Console) -> list[str]:
    """Show what there is of tables and figures; return what is wrong with the records that they cannot be read from."""
    table, errors = Table("name", "what", "records", "missing"), dict[str, None]()
    for one in shown:
        records.refused = {}
        lacking = {needed.place: why for needed in one.needs if (why := records.lacks(needed))}
        errors |= dict.fromkeys([*_read_through(one, records), *records.refused.values()])
        lacking |= dict.fromkeys(records.refused, REFUSED)
        places = {needed.place for needed in one.needs}
        there = f"{len(places - lacking.keys())} of {len(places)}" if places else "–"
        table.add_row(one.name, one.title, there, _missing(lacking, one))
    screen.print(table)
    return list(errors)


def _read_through(one: Row, records: Undamaged) -> Iterator[str]:
    """Let its table and figure read all that they show, other seeds too; yield what else they cannot be made of."""
    from otprune.report.figures import FIGURES
    from otprune.report.tables import TABLES

    for made in (TABLES, FIGURES):
        try:
            list(made[one.name](records) if one.name in made else ())
        except OtpruneError as error:
            yield str(error)


def _missing(lacking: Mapping[str, str], one: Row) -> str:
    if not lacking:
        return one.remark
    counts = Counter(lacking.values())
    return ", ".join(f"{counts[reason]} {reason}" for reason in sorted(counts))


def _end(errors: Sequence[str]) -> None:
    if errors:
        raise TrainingError("\n".join(dict.fromkeys(errors)))
