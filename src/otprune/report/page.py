"""docs/reproduction.md: which claims of the paper hold here, every table and figure, and what could not be run."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.rows import PAIRS, Row, rows, sweep
from otprune.report.chance import ALONE, CLOSE, FOUR, SPREAD
from otprune.report.claims import claims, first_claims
from otprune.report.figures import FIGURES
from otprune.report.markdown import NONE, markdown_table, measured_with
from otprune.report.points import counted, subject
from otprune.report.scoreboard import NAME as SCOREBOARD
from otprune.report.tables import TABLES
from otprune.report.to_come import to_come
from otprune.report.verdicts import Claim, Verdict

INTRODUCTION = """\
# The paper, reproduced

Everything on this page is made from the records under [results/](../results) by `make reproduction`, but for the
remarks, which are written by hand. `otprune reproduce NAME` runs what has no record yet and draws what is there;
`otprune reproduce` lists all. Accuracy is that of the last checkpoint on the test images. FLOPs are counted as the
paper counts them.

OT is Optimal Thresholding, NS is Network Slimming. Both train with a penalty, λ times the sum of the batch norms'
scaling factors |γ|, and take out the channels whose γ are small: they are gone, not masked. OT finds a threshold for
each layer. NS uses one for the whole network, which can empty a layer. One channel of it is then kept, and the network
is called *broken*. As in the paper, NS trains with a λ of its own, except for the statistics over seeds, where both
train with the same."""
WORDS = f"""\
- **As pruned**: nothing was done since; the shift β of a channel that went is lost. **β folded**: it is moved into the
  next layer. **Recalibrated**: batch-norm statistics are re-estimated on training images, which trains nothing.
- **Fine-tuned**: 40 epochs at a rate of 0.001; ResNet-20 for 12, after ISTA for 125 at 0.01. **From scratch**: the
  pruned network from fresh weights, for as many FLOPs as the unpruned one was trained with, but at most twice the
  epochs.
- **Broken by NS**: its threshold would have removed whole layers; one channel of each was kept. Such networks are
  shown and not judged.
- **Chance**: the accuracy of VGG-14 on CIFAR-10 varies from seed to seed by {SPREAD:g} points, so two single trainings
  have to differ by {ALONE:g} to count, and by {FOUR:g} where each is compared with an unpruned network of its own. That
  is used for all networks but ResNet-20, of which nobody ran seeds: there it is twice as much. On CIFAR-100 VGG-14
  varies less; networks of which nearly all is gone may vary more. The mean of several differences counts where it is
  off zero with 95 % of certainty (Student's t). A claim that one network is more accurate does not hold where it is
  less accurate, or where both are level, surely to within {CLOSE:g} points: two single trainings never tell as much.
  What becomes of one and the same network by another threshold is judged as measured, and so are the goals of `best`,
  by the mean of their seeds."""
OF_SEEDS = (
    "In an average of networks, one that was run with several seeds counts once, as their average; seeds that have not "
    "been through all stages that the claim is about are left out. Seeds of OT and NS are compared where both pruned "
    "the same training. The tables below say how many have been through which stage."
)
WORK = (
    "What that takes, as fast as [a step of the unpruned network](../results/train_step) was on a GPU that it had for "
    "itself. Several side by side are quicker, and so are pruned ones; compiling a network and measuring its accuracy "
    "after an epoch come on top. Trainings whose weights nobody kept are made again. For how long a network is trained "
    "from scratch is known once it is pruned: at most for twice the epochs."
)
DEVIATIONS = "deviations"
COUNTED = {
    Verdict.HOLDS: ("holds", "hold"),
    Verdict.FAILS: ("does not", "do not"),
    Verdict.UNDECIDED: ("cannot be told", "cannot be told"),
    Verdict.OPEN: ("is not measured yet", "are not measured yet"),
}
BOLD = "Bold differences lie outside the paper's spread (one standard deviation)."


def page(records: Records, remarks: Path) -> str:
    """The whole page, in Markdown; `remarks` is a folder with what is to be said of a table or figure: NAME.md.

    >>> page(Records(Path("nowhere")), Path("nowhere")).splitlines()[0]
    '# The paper, reproduced'
    """
    parts = [INTRODUCTION, *_claims(records, remarks), *_made_with(records)]
    for row in rows().values():
        parts += _section(row, records, remarks)
    parts += ["## Where the runs differ from the paper's", *_remark(DEVIATIONS, remarks)]
    return "\n\n".join([*parts, *_missing(records)]) + "\n"


def _made_with(records: Records) -> Iterator[str]:
    runs = [*records.all.values(), *records.choosing.values()]
    if runs:
        machines = ", or ".join(sorted({measured_with(one) for record in runs for one in record.provenances}))
        hours = sum(map(_seconds, runs)) / 3600
        yield f"So far {counted(len(runs), 'record')}, {hours:.1f} hours of training and pruning on {machines}."


def _seconds(record: Record) -> float:
    """What the stages took, runs beside each other sharing the time."""
    parts = [one.get("results", one) for one in record.content.get("rounds", [record.content])]
    total = 0.0
    for spent in (part.get("seconds", {}) for part in parts):
        stages = [stage for stage in spent if not stage.endswith("_side_by_side")]
        total += sum(spent[stage] / spent.get(f"{stage}_side_by_side", 1) for stage in stages)
    return total


def _counts(found: Sequence[Claim]) -> str:
    """How many of the claims hold, how many do not, and so on."""
    counts = Counter(claim.verdict for claim in found)
    told = {verdict: words for verdict, words in COUNTED.items() if counts[verdict]}
    parts = [f"{counts[verdict]} {words[min(counts[verdict], 2) - 1]}" for verdict, words in told.items()]
    return " and ".join([", ".join(parts[:-1]), *parts[-1:]] if len(parts) > 1 else parts)


def _claims(records: Records, remarks: Path) -> Iterator[str]:
    found = claims(records)
    yield "## Which claims hold here"
    counted_once = [claim for claim in found if not claim.again]
    theirs, new = ([claim for claim in counted_once if claim.is_new is is_new] for is_new in (False, True))
    yield f"Of the paper's {len(theirs)} claims, {_counts(theirs)}.{_not_run(records)} The main ones:"
    yield "\n".join(map(_in_short, first_claims(records)))
    yield from _remark(SCOREBOARD, remarks)
    yield from _shown(SCOREBOARD, records)
    yield "## What was measured of each claim"
    yield (
        f"Of {len(new)} that are new here, {_counts(new)}. A claim holds if it does on every network that could be "
        f"judged{_how_many_wholly(theirs)}. Where it can be read in two ways, the first counts."
    )
    yield WORDS
    lines = [(c.text, f"**{c.verdict}** {c.scope}".strip(), c.evidence or NONE, f"[{c.row}](#{c.row})") for c in found]
    yield markdown_table(("claim", "here", "measured", "see"), lines, texts=4)
    yield OF_SEEDS


def _how_many_wholly(found: Sequence[Claim]) -> str:
    """Of those that hold, the ones that nothing is missing of."""
    wholly = sum(claim.verdict is Verdict.HOLDS and not claim.scope for claim in found)
    return f"; {wholly} of those that hold were judged on every network that the paper has them of" if wholly else ""


def _in_short(claim: Claim) -> str:
    so_far = " so far" if claim.scope and claim.verdict is Verdict.HOLDS else ""
    verdict = " ".join(filter(None, (f"**{claim.verdict.capitalize()}{so_far}**", claim.scope)))
    return f"- {verdict}: {claim.name} ([{claim.row}](#{claim.row}))."


def _remark(name: str, remarks: Path) -> Iterator[str]:
    """What is to be said of a table or figure by hand."""
    path = remarks / f"{name}.md"
    if path.exists():
        yield path.read_text(encoding="utf-8").strip()


def _not_run(records: Records) -> str:
    """The networks whose sweeps are still to be run as a whole."""
    waiting = [subject(data, model) for data, model in PAIRS if not any(map(records.find, sweep(data, model)))]
    return f" Nothing was run yet of {', '.join(waiting)}." if waiting else ""


def _shown(name: str, records: Records) -> Iterator[str]:
    for sketch in FIGURES[name](records) if name in FIGURES else ():
        yield f"![{sketch.caption}](figures/{sketch.stem}.svg)\n\n*{sketch.caption}* ([PNG](figures/{sketch.stem}.png))"


def _section(row: Row, records: Records, remarks: Path) -> Iterator[str]:
    yield f'<a id="{row.name}"></a>\n\n## {row.title}'
    yield f"`otprune reproduce {row.name}`"
    if row.remark:
        yield row.remark
    if row.needs:
        yield _recorded(row, records)
    yield from _shown(row.name, records)
    if row.name in TABLES:
        yield from TABLES[row.name](records)
    if row.name == "statistics":
        yield BOLD
    yield from _remark(row.name, remarks)


def _recorded(row: Row, records: Records) -> str:
    lacking = {needed.place: why for needed in row.needs if (why := records.lacks(needed))}
    places = {needed.place for needed in row.needs}
    reasons = "".join(f"; {number} {why}" for why, number in sorted(Counter(lacking.values()).items()))
    return f"Records: {len(places) - len(lacking)} of {len(places)} complete{reasons}."


def _missing(records: Records) -> Iterator[str]:
    """What could not be run here and why; what only waits for its turn."""
    yield "## What is missing"
    never = [f"- {row.name}: {row.remark}" for row in rows().values() if row.remark]
    waiting = [f"- {row.name}: {_recorded(row, records)}" for row in rows().values() if _is_incomplete(row, records)]
    yield "Could not be run here:"
    yield "\n".join(never)
    if waiting:
        yield "Waits for its runs, for which time on a GPU is all that is lacking:"
        yield "\n".join(waiting)
        yield WORK
        yield to_come(records)


def _is_incomplete(row: Row, records: Records) -> bool:
    return any(records.lacks(needed) for needed in row.needs)
