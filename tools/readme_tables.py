"""Fill the results of the README from the records under results/, so that no number in it is typed by hand.

python -m tools.readme_tables            rewrite the marked region of README.md
python -m tools.readme_tables --check    only say whether it is up to date, as an exit status
"""

import sys
from collections.abc import Callable
from pathlib import Path

from otprune.demo_screen import Row, cells, summary
from otprune.report.markdown import markdown_table, measured_with
from tools.deployed_tables import deployed, latency, latency_on_a_gpu
from tools.pages import ROOT, Record, only_check, read, written_or_checked

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def main() -> None:
    """Rewrite the README, or check it."""
    readme = ROOT / "README.md"
    fresh = filled(readme.read_text(encoding="utf-8"), ROOT / "results")
    written_or_checked(readme, fresh, only_check(__doc__), "make readme")


def filled(readme: str, results: Path) -> str:
    """The text of the README with its region made anew from the records that there are."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"README.md has lost its marks {BEGIN} and {END}: put them back around the results")
    folder = results / "cifar10" / "vgg14"
    first, everyone = ([*map(read, sorted(folder.glob(f"lam[1-9]*-seed{seed}.json")))] for seed in ("0", "*"))
    sections = [cifar10(first, everyone)] if first else []
    sections += [
        text for text in (chosen(results), train_step(results), latency(results), latency_on_a_gpu(results)) if text
    ]
    sections += [section(read(results / name)) for name, section in SECTIONS.items() if (results / name).exists()]
    return "\n".join([before + BEGIN, "\n\n".join(sections), END + after])


def cifar10(records: list[Record], everyone: list[Record]) -> str:
    """The paper's VGG-14 on CIFAR-10: accuracy after every stage, for every λ there is a record of.

    `everyone` are the records of all seeds: what is lost at worst is lost by one of them.
    """
    records = sorted(records, key=lambda record: record["experiment"]["training"]["lam"])
    table = markdown_table(
        ("λ", "unpruned", "pruned", "+ recalibrated", "+ 1 epoch", "+ 40 epochs", "FLOPs", "parameters"),
        [_cifar10_row(record) for record in records],
    )
    before = records[0]["results"]["cost_before"]
    lost = [
        max(one["results"]["accuracy_sparse"] - one["results"]["accuracy_recalibrated"] for one in those)
        for those in (records, everyone)
    ]
    return (
        "**`otprune sweep --model vgg14 --data cifar10`**: the paper's VGG-14 on CIFAR-10, 160 epochs with L1, pruned "
        f"by OT. Recalibrated, without any training, none of these networks is more than {100 * lost[0]:.2f} points "
        f"below the one it was made from; with all seeds it is {100 * lost[1]:.2f}, of {len(everyone)} networks.\n\n"
        f"{table}\n\nTest accuracy of the last checkpoint, one seed each; unpruned {before['flops']:,} FLOPs and "
        f"{before['parameters']:,} parameters; {measured_with(records[0]['provenance'])}."
    )


def _cifar10_row(record: Record) -> tuple[str, ...]:
    found = record["results"]
    stages = ("sparse", "pruned", "recalibrated", "finetuned_1", "finetuned")
    costs = (f"{found['cost_after'][kind] / found['cost_before'][kind]:.1%}" for kind in ("flops", "parameters"))
    accuracies = (found.get(f"accuracy_{stage}") for stage in stages)
    written = ("–" if accuracy is None else f"{100 * accuracy:.2f} %" for accuracy in accuracies)
    return (f"{record['experiment']['training']['lam']:g}", *written, *costs)


def chosen(results: Path) -> str:
    """Where trainings landed that were told where to land."""
    rows = []
    for path in sorted((results / "cifar10" / "vgg14").glob("target-flops*.json")):
        record = read(path)
        target, found = record["experiment"]["training"]["target_flops"], record["results"]
        seed = record["experiment"]["training"]["seed"]
        rows.append(
            (
                f"`--target-flops {target:g} --seed {seed}`",
                f"{target:.1%} of the FLOPs",
                *_landed(found, held_out=False),
            )
        )
    for path in sorted((results / "cifar10" / "vgg14").glob("max-drop*.json")):
        record = read(path)
        points, found = record["experiment"]["pruning"]["max_drop"], record["results"]
        rows.append((f"`--max-drop {points:g}`", f"-{points:.2f} points held out", *_landed(found, held_out=True)))
    if not rows:
        return ""
    header = ("VGG-14, CIFAR-10", "asked for", "FLOPs", "held-out accuracy", "test accuracy")
    return (
        "**Told where to land**: λ steered by itself, thresholds chosen on training images held out; recalibrated, "
        "without fine-tuning. Seeds 0 and 1 were steered by earlier laws, the last by today's; trained side by side."
        f"\n\n{markdown_table(header, rows)}"
    )


def _landed(found: Record, held_out: bool) -> tuple[str, ...]:
    def change(where: str) -> str:
        before, after = (100 * found[f"accuracy_{where}{stage}"] for stage in ("sparse", "recalibrated"))
        return f"{before:.2f} → {after:.2f} %"

    share = found["cost_after"]["flops"] / found["cost_before"]["flops"]
    return f"{share:.1%}", change("held_out_") if held_out else "", change("")


def train_step(results: Path) -> str:
    """How long a training step takes beside the loop that everyone writes first."""
    records = [read(path) for path in sorted((results / "train_step").glob("*.json"))]
    rows = [(name, *_step(found)) for record in records for name, found in record["results"].items()]
    if not rows:
        return ""
    table = markdown_table(("a training step, batch 64", "otprune", "plain, 1 worker", "plain, 4 workers"), rows)
    return (
        "**`benchmarks/train_step.py`**: whole epochs of otprune, augmentation included, beside a PyTorch loop with a "
        f"DataLoader, in turn.\n\n{table}\n\n{_together(records)}Medians; {measured_with(records[0]['provenance'])}."
    )


def _step(found: Record) -> tuple[str, ...]:
    plain = (f"{loop['plain_ms']:.1f} ms ({loop['ratio']:.1f}×)" for loop in found["plain"].values())
    return f"{found['ours_ms']:.2f} ms", *plain


def _together(records: list[Record]) -> str:
    found = {name: net.get("together_ms") for record in records for name, net in record["results"].items()}
    return "".join(
        f"{name} with {count} runs side by side: {spent:.2f} ms a step and run. "
        for name, counts in found.items()
        for count, spent in (counts or {}).items()
    )


def demo(record: Record) -> str:
    """What the demo printed."""
    rows = [Row(**row) for row in record["results"]["rows"]]
    table = markdown_table(
        ("digits", "accuracy", "parameters", "FLOPs", "MACs", "CPU latency"),
        [(row.model, *cells(row)) for row in rows],
    )
    return (
        f"**`make demo`**: {summary(rows[0], rows[-1])} {record['results']['seconds']:.0f} s in all.\n\n{table}\n\n"
        f"Seed {record['seed']}; latency is the median for {record['configuration']['latency_batch']} images on one "
        f"thread; {measured_with(record['provenance'])}. λ, the epochs and the fine-tuning were chosen on a "
        "validation part of the training images, without the test images ([record](results/demo_settings.json)); the "
        "learning rate and the network come from earlier trials on another split of the same images."
        f"{other_seeds(record)}"
    )


def other_seeds(record: Record) -> str:
    """The demo with other seeds in one sentence, where the record has them."""
    if "other_seeds" not in record:
        return ""
    others = record["other_seeds"]
    points, ratio = others["points"], others["flops_ratio"]
    return (
        f" Seeds {', '.join(map(str, others['seeds']))}, run afterwards: accuracy {points['mean']:+.2f} points on "
        f"average and {points['worst']:+.2f} at worst, {ratio['mean']:.1f}× fewer FLOPs on average and "
        f"{ratio['worst']:.1f}× at worst."
    )


def fuzz(record: Record) -> str:
    """How exact pruning is on random networks."""
    return (
        f"**`make fuzz`**: pruned equals masked on {record['networks'] - len(record['failures']):,} of "
        f"{record['networks']:,} random networks, {record['removed']:,} batch-norm channels removed, largest error "
        f"{record['largest_error']:.1e} in float64; seed {record['seed']}; {measured_with(record['provenance'])}."
    )


def prune_speed(record: Record) -> str:
    """How long pruning takes beside Torch-Pruning."""
    table = markdown_table(
        ("trace + plan + prune", "otprune", "Torch-Pruning", "ratio"),
        [
            (name, f"{model['otprune_s']:.3f} s", f"{model['torch_pruning_s']:.3f} s", f"{model['ratio']:.1f}×")
            for name, model in record["results"]["models"].items()
        ],
    )
    return (
        "**`benchmarks/prune_speed.py`**: torchvision's networks at 224×224 pruned by Network Slimming.\n\n"
        f"{table}\n\nMedians, the two in turn; {measured_with(record['provenance'])}."
    )


def l1_overhead(record: Record) -> str:
    """What the penalty costs in training."""
    results = record["results"]
    lowest, highest = (100 * (bound - 1) for bound in results["ratio_interval"])
    return (
        f"**`benchmarks/l1_overhead.py`**: the L1 penalty adds {100 * (results['ratio'] - 1):.2f} % to a training step "
        f"of ResNet-50 (95 % interval {lowest:.2f} to {highest:.2f} %); {measured_with(record['provenance'])}."
    )


def odd_channels(record: Record) -> str:
    """What pruned networks gain in training on a GPU from wider tensors."""
    rows = [_widths(place, found) for place, found in record["results"].items()]
    table = markdown_table(("a training step", "unpruned", "pruned", "pruned, not widened", "ratio"), rows)
    return (
        "**`benchmarks/odd_channels.py`**: most layers of a pruned network have no multiple of eight channels, and a "
        f"GPU is slow with those. otprune trains them in wider tensors, with zeros beside them.\n\n{table}\n\n"
        f"Batch {record['configuration']['batch']}; medians, in turn; {measured_with(record['provenance'])}."
        + _remark(record)
    )


def combined_kernels(record: Record) -> str:
    """What a training step on a GPU gains from fewer launches."""
    told = (
        f"{name} {found['combined_ms']:.2f} ms, apart {found['apart_ms']:.2f} ms ({found['ratio']:.2f}×)"
        for name, found in record["results"].items()
    )
    return (
        "**`benchmarks/combined_kernels.py`**: small kernels of a training step on a GPU that need nothing of each "
        f"other are launched as one: {'; '.join(told)}. Medians, in turn; {measured_with(record['provenance'])}."
        + _remark(record)
    )


def _remark(record: Record) -> str:
    return f" {record['remark']}" if "remark" in record else ""


def _widths(place: str, found: Record) -> tuple[str, ...]:
    times = (f"{found[name]:.2f} ms" for name in ("unpruned_ms", "wide_ms", "narrow_ms"))
    return f"[{place}](results/{place}.json)", *times, f"{found['ratio']:.2f}×"


SECTIONS: dict[str, Callable[[Record], str]] = {
    "odd_channels.json": odd_channels,
    "combined_kernels.json": combined_kernels,
    "deployed-vgg14.json": deployed,
    "demo.json": demo,
    "fuzz.json": fuzz,
    "prune_speed.json": prune_speed,
    "l1_overhead.json": l1_overhead,
}


if __name__ == "__main__":
    main()
