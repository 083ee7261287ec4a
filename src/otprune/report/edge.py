"""Latency at the edge: how long the pruned VGG-14 networks of the records take for one image, and how good they are."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from otprune.errors import DeployError
from otprune.experiments import paper
from otprune.experiments.reproduce.needed import BEST, baseline, lam_text
from otprune.experiments.reproduce.records import Record, Records
from otprune.jsons import read_object
from otprune.report.chance import ALONE, CLOSE
from otprune.report.goals import STAGES
from otprune.report.markdown import markdown_table, measured_with
from otprune.report.points import subject
from otprune.report.style import BASELINE, ISTA, OT, Sketch, figure, legend
from otprune.report.verdicts import Claim, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE, RUNTIME, DATA, MODEL = "latency-vgg14.json", "openvino", "cifar10", "vgg14"
ROW = "edge-latency"
TRAINED = {"finetuned": "fine-tuned", "scratch": "from scratch"}
PLACE = "on one thread of a CPU (the paper: on a neural compute stick)"


@dataclass(frozen=True)
class Timed:
    """A pruned network of a record: how good it is, after which stage, and how long it takes in each runtime.

    `papers` is whether it was trained by the paper's recipe.
    """

    name: str
    papers: bool
    stage: str
    accuracy: float
    flops: float
    milliseconds: Mapping[str, float]
    times: Mapping[str, float]


def timed(records: Records) -> list[Timed]:
    """The recorded networks whose latency is recorded, too, once for each way that they were trained after pruning.

    >>> from pathlib import Path
    >>> timed(Records(Path("nowhere")))
    []
    """
    results = _benchmark(records).get("results", {"models": {}})
    found = ((name, records.at(f"{DATA}/{MODEL}/{name}")) for name in results["models"])
    return [_timed(name, record, stage, results) for name, record in found if record for stage in _stages(record)]


def edge(records: Records) -> Iterator[str]:
    """What each network takes and is worth, and how many times as fast it is as the unpruned one.

    >>> from pathlib import Path
    >>> list(edge(Records(Path("nowhere"))))
    ['Not measured yet: run benchmarks/latency.py.']
    """
    found = timed(records)
    if not found:
        yield "Not measured yet: run benchmarks/latency.py."
        return
    content = _benchmark(records)
    runtimes = list(found[0].milliseconds)
    rows = [_row(network, runtimes) for network in found]
    yield markdown_table(("network", "after", "accuracy (%)", "FLOPs (M)", *map(_heading, runtimes)), rows, texts=2)
    settings, asked = content["configuration"], paper.table("points")["edge"]
    yield (
        f"Medians of {settings['iters']:,} single images on {settings['threads']} thread, in turn, and how "
        f"many times as fast as unpruned; {measured_with(content['provenance'])}. Unpruned: {_unpruned(content)}; "
        f"{_full(records)} The paper, on a neural compute stick: {asked['speedup_without_loss']}× without a loss of "
        f"accuracy, {asked['speedup_within_5_percent']}× within 5 %."
    )


def faster_without_loss(records: Records) -> Claim:
    """A network by the paper's recipe, as many times as fast and about as accurate as one trained without a penalty.

    >>> from pathlib import Path
    >>> faster_without_loss(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    asked = paper.table("points")["edge"]["speedup_without_loss"]
    text = f"VGG-14 is {asked} times as fast without a loss of accuracy, to within {CLOSE:g} points, {PLACE}."
    return _faster(
        records, asked, lambda full: full - CLOSE, f"{asked} times as fast as unpruned, no accuracy lost", text
    )


def faster_with_little_loss(records: Records) -> Claim:
    """The same where five in a hundred of the accuracy may be lost.

    >>> from pathlib import Path
    >>> faster_with_little_loss(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    asked = paper.table("points")["edge"]["speedup_within_5_percent"]
    text = f"VGG-14 is {asked} times as fast within 5 % of its accuracy, {PLACE}."
    return _faster(
        records,
        asked,
        lambda full: 0.95 * full,
        f"{asked} times as fast as unpruned, at most 5 % of accuracy lost",
        text,
    )


def _faster(records: Records, asked: float, least_beside: Callable[[float], float], name: str, text: str) -> Claim:
    """Where the verdict would be another one if accuracies were by chance what they are, it cannot be told."""
    where, unpruned = subject(DATA, MODEL), records.find(baseline(DATA, MODEL))
    found = [one for one in timed(records) if one.papers]
    if unpruned is None or not found:
        return Claim(name, text, {}, "", ROW, (where,))
    full = 100 * unpruned.results["accuracy_sparse"]
    least = least_beside(full)
    surely, perhaps = (any(one.accuracy >= to and _times(one) >= asked for one in found) for to in _around(least))
    judged = True if surely else None if perhaps else False
    evidence = f"{_fastest(found, least, full)}{', which chance may explain' if judged is None else ''}"
    return Claim(name, text, {where: judged}, evidence, ROW, (where,))


def _around(accuracy: float) -> tuple[float, float]:
    return accuracy + ALONE, accuracy - ALONE


def _fastest(found: list[Timed], least: float, full: float) -> str:
    """Which are the fastest that are as accurate, for each way to train them."""
    accurate = [one for one in found if one.accuracy >= least]
    if not accurate:
        return "no network is as accurate"
    stages = dict.fromkeys(one.stage for one in accurate)
    fastest = [max((one for one in accurate if one.stage == stage), key=_times) for stage in stages]
    told = [f"{one.stage}, {one.name}, {_times(one):.2f}× with {one.accuracy - full:+.2f} points" for one in fastest]
    return f"the fastest that are so accurate: {listed(told)}"


def _times(network: Timed) -> float:
    return network.times[RUNTIME]


def edge_latency(records: Records) -> Iterator[Sketch]:
    """Accuracy against latency."""
    found, unpruned = timed(records), records.find(baseline(DATA, MODEL))
    if found and unpruned is not None:
        full = 100 * unpruned.results["accuracy_sparse"]
        caption = f"VGG-14 on CIFAR-10, one image on one thread of a CPU with {_heading(RUNTIME)}."
        yield Sketch(ROW, caption, partial(_draw, found, full, _median(_benchmark(records), "unpruned")))


def _draw(found: list[Timed], full: float, unpruned: float) -> "Figure":
    drawn, axes = figure("VGG-14 on CIFAR-10: accuracy against latency on one thread of a CPU", 1, 1, (6.8, 4))
    ax = axes[0, 0]
    ax.plot([unpruned], [full], "s", color=BASELINE, label="unpruned")
    series = dict.fromkeys((one.papers, one.stage) for one in found)
    for papers, stage in series:
        those = [one for one in found if (one.papers, one.stage) == (papers, stage)]
        x, y = [one.milliseconds[RUNTIME] for one in those], [one.accuracy for one in those]
        look: dict[str, Any] = {"color": OT, "marker": "o"} if papers else {"color": ISTA, "marker": "D"}
        fill = "none" if stage == TRAINED["scratch"] else "full"
        dashes = ":" if len(those) > 1 else "none"
        name = f"OT, {'' if papers else f'{those[0].name}, '}{stage}"
        ax.plot(x, y, linestyle=dashes, fillstyle=fill, label=name, **look)
        if papers and fill == "full":  # those from scratch lie above them
            for one, *place in zip(those, x, y, strict=True):
                ax.annotate(one.name, tuple(place), (3, -13), textcoords="offset points", fontsize=8)
    ax.set_xlim(left=0)
    ax.margins(y=0.1)
    ax.set_xlabel(f"latency of one image with {_heading(RUNTIME)} (ms)")
    ax.set_ylabel("test accuracy (%)")
    legend(ax, loc="lower right")
    return drawn


def _benchmark(records: Records) -> dict[str, Any]:
    path = records.folder / FILE
    if not path.exists():
        return {}
    return read_object(path, lambda why: DeployError(f"{path}: is no record of latencies: {why}. Measure it again."))


def _stages(record: Record) -> list[str]:
    """The ways that it was trained after pruning; the last thing done with it where that was none."""
    trained = [stage for stage in TRAINED if f"accuracy_{stage}" in record.results]
    return trained or [next(stage for stage in STAGES if f"accuracy_{stage}" in record.results)]


def _timed(name: str, record: Record, stage: str, results: Mapping[str, Any]) -> Timed:
    own = {runtime: networks[name] for runtime, networks in results["latencies"].items()}
    training = record.experiment.training
    return Timed(
        f"λ={lam_text(training.lam)}" if training.target_flops is None else f"recipe {BEST}",
        training.target_flops is None,
        (STAGES | TRAINED)[stage],
        100 * record.results[f"accuracy_{stage}"],
        results["models"][name]["flops"],
        {runtime: found["p50"] for runtime, found in own.items()},
        {runtime: found["times_faster_p50"] for runtime, found in own.items()},
    )


def _row(network: Timed, runtimes: list[str]) -> tuple[str, ...]:
    spent = (f"{network.milliseconds[runtime]:.2f} ({network.times[runtime]:.2f}×)" for runtime in runtimes)
    return network.name, network.stage, f"{network.accuracy:.2f}", f"{network.flops / 1e6:.1f}", *spent


def _heading(runtime: str) -> str:
    return {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}[runtime]


def _median(content: Mapping[str, Any], name: str, runtime: str = RUNTIME) -> float:
    median: float = content["results"]["latencies"][runtime][name]["p50"]
    return median


def _unpruned(content: Mapping[str, Any]) -> str:
    runtimes = content["results"]["latencies"]
    return ", ".join(f"{_median(content, 'unpruned', runtime):.2f} ms in {_heading(runtime)}" for runtime in runtimes)


def _full(records: Records) -> str:
    unpruned = records.find(baseline(DATA, MODEL))
    return "" if unpruned is None else f"{100 * unpruned.results['accuracy_sparse']:.2f} % accuracy."
