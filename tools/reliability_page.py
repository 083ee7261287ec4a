"""Write docs/reliability.md from the records of the long runs under results/.

python -m tools.reliability_page            write
python -m tools.reliability_page --check    only say whether the page is up to date, as an exit status
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from otprune.report.markdown import markdown_table, measured_with
from tests.gpu_tests import files_with_gpu_tests
from tools.pages import ROOT, Record, only_check, read, written_or_checked

TOLERANCE = 1e-6  # between weights
WITHOUT_KINKS = "smooth"
PAGE = ROOT / "docs" / "reliability.md"
INTRODUCTION = """\
# Through faults

Everything on this page is made from the records of long runs under `results/` by `make reliability`; no number is
typed. Each section names the command that makes its record, which goes on where it was broken off."""


def main() -> None:
    """Write the page, or check it."""
    written_or_checked(PAGE, page(ROOT / "results"), only_check(__doc__), "make reliability")


def page(results: Path) -> str:
    """The whole page; what is not measured yet is said to be so."""
    parts = [_section(results, name, *how) for name, how in SECTIONS.items()]
    return "\n\n".join([INTRODUCTION, *parts]) + "\n"


def _section(results: Path, name: str, title: str, command: str, text: Callable[[Record], str]) -> str:
    path = results / name
    source = f"`{command}` writes [results/{name}](../results/{name})"
    if not path.exists():
        return f"## {title}\n\n`{command}` writes `results/{name}`: not measured yet."
    record = read(path)
    return f"## {title}\n\n{text(record)}\n\n{source}; measured with {measured_with(record['provenance'])}."


def kills(record: Record) -> str:
    """What processes that were killed left, and what became of them."""
    rows = [(f"`otprune {verb}`", str(number)) for verb, number in record["kills_by_verb"].items()]
    inside = record["kills"] - record["kills_while_writing"].get("nothing", 0)
    by_time = record["kills_by_moment"].get("time", 0)
    return (
        f"**{record['survived']} of {record['kills']} kills survived**: processes of the command line were ended with "
        f"SIGKILL, {inside} of them while a file was being written. The moments of {by_time} were drawn by the clock, "
        f"those of the other {record['kills'] - by_time} shortly after the n-th time that a certain file was begun, "
        "renamed or removed. After every kill each file under its own name was whole, and every stage that had been "
        f"finished was still there, byte for byte. The same command then went on: **{record['resumed_the_same']} of "
        f"{record['resumed']}** runs that were led to their end had the weights of a run that nobody disturbed, to the "
        "last bit, and its records.\n\n" + markdown_table(("killed", "times"), rows)
    )


def inputs(record: Record) -> str:
    """What readers of files made of damaged ones."""
    totals = record["totals"]
    names = ("inputs", "accepted", "refused")
    rows = [
        (name, *(f"{found[key]:,}" for key in names), str(len(found["failures"])))
        for name, found in record["parsers"].items()
    ]
    return (
        f"**{totals['inputs']:,} inputs, {totals['failures']} failures**: {len(rows)} readers of files from outside "
        "were given bytes at random and real files that were damaged at random. Each input is accepted, or refused "
        "with an error of otprune's own. Anything else is a failure: another exception, a hang, much memory. Nothing "
        "that is read is executed, but for models of one's own: a run's `config.json` may name `file.py:function`, "
        "which is imported and called, also by `otprune report` and `bench`. Open folders of strangers only where that "
        "is known.\n\n" + markdown_table(("reader", *names, "failures"), rows)
    )


def agreement(differences: Sequence[Mapping[str, Any]]) -> str:
    """How many of the results of several processes are those of one, to a tolerance."""
    found = {
        precision: [one["largest_difference"] for one in differences if one["precision"] == precision]
        for precision in ("fp64", "fp32")
    }
    within = {precision: sum(one <= TOLERANCE for one in ones) for precision, ones in found.items()}
    smooth = [one["largest_difference"] for one in differences if one["network"] == WITHOUT_KINKS]
    return (
        f"To {TOLERANCE:.0e}, {within['fp64']} of {len(found['fp64'])} results in fp64 agree, where the largest "
        f"difference is {max(found['fp64']):.1e}, and {within['fp32']} of {len(found['fp32'])} in fp32. The network "
        f"without kinks, `{WITHOUT_KINKS}`, ends within {max(smooth):.1e} in both."
    )


def processes(record: Record) -> str:
    """How far several processes end from one, and what a lost one costs."""
    rows = [
        (
            *(one["network"], one["precision"], str(one["processes"]), str(one["epochs"])),
            f"{one['largest_difference']:.1e}",
            f"{one['largest_difference_of_one_process_from_fp64']:.1e}",
        )
        for one in record["differences"]
    ]
    header = ("network", "precision", "processes", "epochs", "largest difference", "of one process from fp64")
    return (
        "The same training by one process and by several under `torchrun`, with synchronized batch norms and the same "
        "batches: the largest difference between any two weights at the end. Rounding falls differently, and a network "
        "with kinks, such as ReLU and max pools, can carry one rounding far: the last column says how far the training "
        "by one process in that precision is from the same in fp64. "
        + agreement(record["differences"])
        + "\n\n"
        + markdown_table(header, rows, texts=2)
        + f"\n\n**{record['restarts_survived']} of {record['kills']} restarts survived**: one of two processes was "
        "killed in the middle of a step, `torchrun` started both again, and the weights at the end were those of a "
        "training that nobody disturbed, to the last bit."
    )


def nodes(record: Record) -> str:
    """What became of sweeps on a cluster whose nodes were killed."""
    return (
        f"**{record['nodes_lost']} nodes lost, {record['equal']} of {record['runs']} runs equal**: sweeps on a real "
        "Ray cluster of three nodes on loopback, whose nodes were killed in the middle and replaced. "
        f"{record['retries']} times a run went on on another node, {record['started_over']} of them from nothing; the "
        "others from a checkpoint or a finished stage that had reached the store. At the end every run was compared "
        "with the same run on one machine, to the last bit."
    )


def memory(record: Record) -> str:
    """How much memory a large model takes."""
    measured = record["results"]["measured"]
    rows = [
        (
            one["what"],
            "" if one["share_pruned"] is None else f"{100 * one['share_pruned']:.0f} %",
            f"{one['times_the_model']:.2f}×",
            f"{one['seconds']:.1f}",
        )
        for one in measured
    ]
    return (
        f"A convolutional network of {measured[0]['parameters'] / 1e6:.0f} million parameters: the most memory a "
        "process had beyond what it had before, the model included, as a multiple of its size. Planning and "
        f"pruning may take {record['results']['most']}×.\n\n"
        + markdown_table(("what", "channels pruned", "memory", "seconds"), rows)
    )


def pipeline(record: Record) -> str:
    """How many images a core brings in at the size of ILSVRC-2012."""
    found = record["results"]
    rows = [
        (str(one["workers"]), f"{one['images_per_second']:.0f}", f"{one['images_per_core_second']:.0f}")
        for one in found["by_workers"]
    ]
    parts = ", ".join(f"{name} {ms:.2f}" for name, ms in found["ms_of_a_core_per_image"].items())
    return (
        f"Made JPEGs of {found['bytes_per_image'] / 1000:.0f} kB on average, read and augmented as a folder of images "
        f"is for a training. Milliseconds of a core per image: {parts}. {_cores(found['cores_per_gpu'] or {})}\n\n"
        + markdown_table(("workers", "images a second", "images a second of a core"), rows)
    )


def _cores(of_networks: Mapping[str, float]) -> str:
    """How many it takes to bring images in as fast as a GPU trains."""
    told = ", ".join(f"{ceil(cores)} with {net}" for net, cores in of_networks.items())
    return f"Such cores that keep a GPU busy, which trains as fast as below: {told}." if told else ""


def steps(record: Record) -> str:
    """How fast a GPU trains at the size of ILSVRC-2012."""
    rows = [_speed(net, record["results"].get(net)) for net in record["configuration"]["nets"]]
    header = ("network", "images a second", "of the bf16 peak", "GB of memory", "the whole recipe")
    return (
        f"Training by the recipe, in batches of {record['configuration']['batch']} made images that lie on the GPU. "
        "The hours are arithmetic, for GPUs that do not wait for each other or for images.\n\n"
        + markdown_table(header, rows)
    )


def _speed(net: str, found: Record | None) -> tuple[str, ...]:
    if found is None:
        return net, "not measured yet", "", "", ""
    gpu, whole = found["on_a_gpu"], found["on_a_gpu"]["whole_recipe"]
    low, high = found["images_per_second_interval"]
    speed = f"{found['images_per_second']:,.0f} ({low:,.0f} to {high:,.0f})"
    taken = f"{whole['epochs']} epochs in {whole['hours']:.2f} h on {whole['gpus']} such GPUs"
    return net, speed, f"{100 * gpu['share_of_peak']:.1f} %", f"{gpu['most_bytes'] / 1e9:.1f}", taken


def on_a_gpu(record: Record) -> str:
    """What the tests that need a GPU came to."""
    outcomes = {name: test["outcome"] for name, test in record["tests"].items()}
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    ended = {kind: [name for name, outcome in outcomes.items() if outcome == kind] for kind in ("failed", "skipped")}
    told = "".join(f" {kind.capitalize()}: {_quoted(names)}." for kind, names in ended.items() if names)
    others = sorted(set(files_with_gpu_tests()) - {name.partition("::")[0] for name in outcomes})
    told += f" Without a result there: {_quoted(others)}." if others else ""
    return f"**{passed} of {len(outcomes)} tests passed** of those that need a GPU, which CI skips.{told}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


SECTIONS: dict[str, tuple[str, str, Callable[[Record], str]]] = {
    "chaos.json": ("Killed at any moment", "make chaos", kills),
    "parsers.json": ("Files from anywhere", "make fuzz-parsers", inputs),
    "ddp.json": ("Several processes", "python -m tests.ddp_difference", processes),
    "nodes.json": ("Nodes lost", "python -m tests.lost_nodes", nodes),
    "large_model.json": ("Large models", "python benchmarks/large_model.py --json results/large_model.json", memory),
    "ilsvrc-input.json": (
        "Images for ILSVRC-2012",
        "python benchmarks/ilsvrc_input.py --json results/ilsvrc-input.json",
        pipeline,
    ),
    "ilsvrc-step.json": (
        "Training for ILSVRC-2012",
        "python benchmarks/ilsvrc_step.py --device cuda --json results/ilsvrc-step.json",
        steps,
    ),
    "gpu-tests.json": ("On a GPU", "make gpu-tests", on_a_gpu),
}


if __name__ == "__main__":
    main()
