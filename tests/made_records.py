"""Records as runs would leave them, with made numbers: what follows from records can be tested without runs."""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from otprune.experiments.reproduce.needed import Kind, Needed
from otprune.experiments.reproduce.rows import rows

CHANNELS = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
NAMES = tuple(f"features.{index}" for index in (1, 4, 8, 11, 15, 18, 21, 25, 28, 31, 35, 38, 41))
BEFORE = {"parameters": 14_728_266, "macs": 313_201_664, "flops": 314_589_174}
PROVENANCE = {"python": "3.12.3", "torch": "2.11.0", "gpu": "NVIDIA H200", "cpu": "a processor", "cores": 16}


def write(folder: Path, needs: Sequence[Needed], make: Callable[[Needed], dict[str, Any]] | None = None) -> None:
    """A made record in the place of each that is needed."""
    for needed in needs:
        path = folder / f"{needed.place}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps((make or record)(needed)), encoding="utf-8")


def write_latency(folder: Path, times: float = 4.0) -> None:
    """What the benchmark leaves of one pruned network that is so many times as fast as the unpruned one."""
    networks = {"unpruned": {"p50": 8.0}, "lam2e-4-seed0": {"p50": 8.0 / times, "times_faster_p50": times}}
    found = {"models": {name: {"flops": 1e6} for name in networks}, "latencies": {"openvino": networks}}
    content = {"configuration": {"iters": 20, "threads": 1}, "results": found, "provenance": PROVENANCE}
    (folder / "latency-vgg14.json").write_text(json.dumps(content), encoding="utf-8")


def everything(folder: Path) -> Path:
    """A record of everything, of VGG-14 and ResNet-20 at least: the others look the same and take time."""
    needs = [needed for one in rows().values() for needed in one.needs]
    small = [needed for needed in needs if needed.experiment.model in ("vgg14", "resnet20")]
    write(folder, sorted(small, key=lambda needed: needed.scratch))
    write_latency(folder)
    return folder


def changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Needed], dict[str, Any]]:
    """Makes records in which something is changed."""

    def make(needed: Needed) -> dict[str, Any]:
        found = record(needed)
        change(found["results"])
        return found

    return make


def with_accuracy(needed: Needed, accuracies: dict[int, float]) -> dict[str, Any]:
    """A record whose accuracy is that of its seed."""
    found = record(needed)
    found["results"]["accuracy_finetuned"] = accuracies[needed.experiment.training.seed]
    return found


def record(needed: Needed) -> dict[str, Any]:
    """A record of whatever kind."""
    return {"experiment": needed.experiment.to_dict(), "provenance": PROVENANCE} | CONTENTS[needed.kind](needed)


def pruned(needed: Needed) -> dict[str, Any]:
    """The more goes, the less accurate, and Network Slimming loses more, above all before it is fine-tuned."""
    return {"results": results(needed, _share(needed))}


def results(needed: Needed, share: float) -> dict[str, Any]:
    """What is measured of a network that keeps a share of its cost."""
    draw, training = random.Random(needed.place), random.Random(needed.trained_at)
    slims = needed.experiment.pruning.rule == "ns"
    full, loss = 0.937 + training.gauss(0, 1e-3), (0.03 + 0.05 * slims) * (1 - share) ** 4
    kept = [max(1, round(channels * share**0.5)) for channels in CHANNELS]
    accuracies = {
        "sparse": full,
        "pruned": max(0.1, full - (8 if slims else 3) * loss),
        "recalibrated": full - loss,
        "finetuned_1": full - loss - 0.02 * slims * (1 - share),
        "finetuned": full - loss,
    }
    accuracies |= {"scratch": full - 0.8 * loss} if needed.scratch else {}
    return {
        **{f"accuracy_{stage}": value for stage, value in accuracies.items()},
        "cost_before": BEFORE,
        "cost_after": {kind: round(share * cost) for kind, cost in BEFORE.items()},
        "layers": [
            {"name": name, "channels": channels, "kept": k, "threshold": 0.1, "negligible": channels - k, "note": ""}
            for name, channels, k in zip(NAMES, CHANNELS, kept, strict=True)
        ],
        "removed": [],
        "training": [{"epoch": 1, "loss": 2 - share}],
        "gammas": gammas(kept, draw),
    }


def gammas(kept: Sequence[int], draw: random.Random) -> dict[str, list[float]]:
    """Two heaps in every layer, the larger γ smaller in later layers."""
    return {
        name: [10 ** draw.gauss(-0.4 - 0.06 * at, 0.1) for _ in range(k)]
        + [10 ** draw.gauss(-6.5, 0.4) for _ in range(channels - k)]
        for at, (name, channels, k) in enumerate(zip(NAMES, CHANNELS, kept, strict=True))
    }


def shifted(needed: Needed) -> dict[str, Any]:
    """Nothing is lost up to the threshold, and much past it."""
    found, shifts = results(needed, 0.54), []
    for shift in (-6, -4, -2, -1, -0.2, -0.1, 0, 0.1, 0.2, 0.3, 0.5):
        share = 0.54 - 0.2 * max(shift, 0) if shift > -6 else 1.0
        accuracies = {"pruned": 0.93 - 3 * max(shift, 0) ** 2, "recalibrated": 0.936 - max(shift, 0) ** 2}
        accuracies["finetuned"] = 0.937 - 0.1 * max(shift, 0)
        measured = {f"accuracy_{stage}": max(value, 0.1) for stage, value in accuracies.items()}
        shifts.append({"shift": shift, "flops": share, "parameters": share, "provenance": PROVENANCE, **measured})
    return {"shifts": shifts, "gammas": found["gammas"], "accuracy_sparse": found["accuracy_sparse"]}


def rounds(needed: Needed) -> dict[str, Any]:
    """OT is done after the first round, and Network Slimming goes on halving."""
    shares = (
        [0.7**n for n in range(1, 6)] if needed.experiment.pruning.rule == "ns" else [0.54, 0.53, 0.525, 0.52, 0.515]
    )
    made = [
        {"round": n, "accuracy": 0.93 - 0.02 * (1 - share) ** 2, "flops": share, "parameters": share}
        | {"channels": 1000, "results": results(needed, share), "provenance": PROVENANCE}
        for n, share in enumerate(shares, start=1)
    ]
    return {"restart": needed.restart, "rounds": made, "remark": ""}


def baseline(needed: Needed) -> dict[str, Any]:
    """An unpruned network."""
    return {"results": {"accuracy_sparse": 0.9372, "cost_before": BEFORE, "training": []}}


CONTENTS: dict[Kind, Callable[[Needed], dict[str, Any]]] = {
    Kind.PRUNED: pruned,
    Kind.ISTA: pruned,
    Kind.SHIFTED: shifted,
    Kind.ROUNDS: rounds,
    Kind.BASELINE: baseline,
}


def _share(needed: Needed) -> float:
    """A share of the cost that stays, less of it the more λ or the ratio is."""
    asked = needed.experiment
    if asked.training.target_flops is not None:
        return asked.training.target_flops
    if asked.pruning.rule == "ns":
        return 1 - asked.pruning.ratio**1.5
    return 1 / (1 + math.sqrt(asked.training.lam / 1e-4))
