"""Everything that the page shows, as JSON has it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from otprune import __version__
from otprune.errors import OtpruneError
from otprune.experiments.bounding import bounds_for
from otprune.experiments.choosing import Target
from otprune.experiments.reproduce.needed import lam_text
from otprune.report.html.costs import Network, described, with_costs
from otprune.report.html.deployed import exported, latencies
from otprune.report.html.networks import network
from otprune.report.html.points import before_and_after, papers, which_before
from otprune.report.html.subjects import NO_WEIGHTS, Subject
from otprune.report.points import subject as title
from otprune.thresholds import rule_from

STAGES = {"pruned": "as pruned", "folded": "constants folded", "recalibrated": "recalibrated"}
TRAININGS = {"training": "training with sparsity", "finetuning": "fine-tuning", "scratch": "training from scratch"}
SHOWN_CLASSES = 20
NO_GAMMAS = "its scaling factors were not recorded"


def content(found: Sequence[Subject]) -> dict[str, Any]:
    """What there is to say of some runs; networks that several of them share are in it once.

    >>> from pathlib import Path
    >>> from otprune.experiments.experiment import Experiment
    >>> content([Subject("run", Path("run"), Experiment("digits_net", "digits"), {})])["runs"][0]["left_out"]
    'its scaling factors were not recorded'
    """
    networks: list[dict[str, Any]] = []
    runs = [_run(subject, networks) for subject in found]
    pairs = {(subject.experiment.data, subject.experiment.model): None for subject in found}
    return {
        "version": __version__,
        "runs": runs,
        "networks": networks,
        "paper": [{"title": title(*pair), "points": papers(*pair)} for pair in pairs],
    }


def _run(subject: Subject, networks: list[dict[str, Any]]) -> dict[str, Any]:
    experiment, results = subject.experiment, subject.results
    made, why = _made(subject)
    return {
        "name": subject.name,
        "title": title(experiment.data, experiment.model),
        "facts": _facts(subject),
        "notes": [*_built_again(subject), *_in_rounds(results), *results.get("remarks", ())],
        "delta": experiment.pruning.delta,
        "branch": None if made is None else _branch_limit(subject.results, made),
        "gained": before_and_after(subject),
        "latencies": latencies(subject),
        "accuracies": [*_accuracies(results), *exported(subject)],
        "layers": [_layer(layer) for layer in results.get("layers", ())],
        "gammas": [] if made is None else [{"layer": name, "values": one} for name, one in made.gammas.items()],
        "network": None if made is None else _placed(described(made), networks),
        "left_out": why,
        "trainings": [_training(name, results[name]) for name in TRAININGS if results.get(name)],
        "shifts": _shifts(subject),
    }


def _made(subject: Subject) -> tuple[Network | None, str]:
    """The network of a run for moving δ, or why there is none: a report of the rest is better than none at all."""
    if subject.weights is None and not subject.gammas:
        return None, NO_GAMMAS
    pruning = subject.experiment.pruning
    try:
        model, example = network(subject)
        bounds = bounds_for(subject.experiment, model, example, subject.results)
        return with_costs(model, example, pruning.delta, bounds), ""
    except OtpruneError as error:
        return None, str(error)


def _branch_limit(results: Mapping[str, Any], made: Network) -> float | None:
    """The threshold under which the run dropped whole branches; None where its rule drops none, or is not known."""
    try:
        rule = rule_from(results.get("rule", {}))
        found = rule.thresholds({name: torch.tensor(one) for name, one in made.gammas.items()}).branch
    except OtpruneError:
        return None
    return found if found is not None and math.isfinite(found) else None


def _built_again(subject: Subject) -> list[str]:
    return [NO_WEIGHTS] if subject.weights is None and subject.gammas else []


def _in_rounds(results: Mapping[str, Any]) -> Iterator[str]:
    """What all rounds so far came to, where the page tells of one of them."""
    if "cost_sparse" in results and {"cost_before", "cost_after"} <= results.keys():
        first, began, ended = (results[f"cost_{when}"]["flops"] for when in ("before", "sparse", "after"))
        yield (
            f"Before is the network that earlier rounds left, with {began / first:.1%} of the unpruned one's FLOPs; "
            f"after this round it has {ended / first:.1%} of them."
        )


def _placed(one: dict[str, Any], networks: list[dict[str, Any]]) -> int:
    if one not in networks:
        networks.append(one)
    return networks.index(one)


def _facts(subject: Subject) -> list[tuple[str, str]]:
    asked = subject.experiment
    training, pruning = asked.training, asked.pruning
    found = [("network", asked.model), ("data", asked.data), ("epochs", str(training.epochs))]
    if training.target_flops is not None:
        found.append(("λ", f"steered to {100 * training.target_flops:g} % of the FLOPs"))
    else:
        found.append(("λ", lam_text(training.lam)))
    found.append(("rule", f"OT, δ={pruning.delta:g}" if pruning.rule == "ot" else f"NS, ratio {pruning.ratio:g}"))
    if (multiple := pruning.bounds_of(subject.results)["round_to"]) > 1:
        found.append(("channels kept at", f"multiples of {multiple}"))
    if pruning.target is not None:
        found.append(("thresholds shifted to meet", _asked(pruning.target)))
    found.append(("seed", str(training.seed)))
    return found + ([("classes", _listed(subject.fed["classes"]))] if "classes" in subject.fed else [])


def _asked(target: Target) -> str:
    match target.kind:
        case "latency":
            return f"a latency of {target.value:g} ms"
        case "max_drop":
            return f"a loss of at most {target.value:g} points of accuracy"
        case kind:
            return f"{100 * target.value:g} % of the {'FLOPs' if kind == 'flops' else 'parameters'}"


def _listed(classes: Sequence[object]) -> str:
    more = len(classes) - SHOWN_CLASSES
    return ", ".join(map(str, classes[:SHOWN_CLASSES])) + (f" and {more} more" if more > 0 else "")


def _accuracies(results: Mapping[str, Any]) -> list[tuple[str, float]]:
    names = {"sparse": which_before(results)} | STAGES
    names |= {name[9:]: _finetuned(name[9:]) for name in results if name.startswith("accuracy_finetuned")}
    names["scratch"] = "from scratch"
    return [(said, results[f"accuracy_{name}"]) for name, said in names.items() if f"accuracy_{name}" in results]


def _finetuned(stage: str) -> str:
    epochs = stage.removeprefix("finetuned").lstrip("_")
    return f"fine-tuned {epochs} epoch{'' if epochs == '1' else 's'}" if epochs else "fine-tuned"


def _layer(layer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: layer.get(name) for name in ("name", "channels", "kept", "threshold", "note")}


def _training(name: str, epochs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns = {key: [epoch.get(key) for epoch in epochs] for key in ("epoch", "loss", "accuracy", "flops", "lam")}
    rounded = {key: [_rounded(value) for value in values] for key, values in columns.items()}
    return {"name": TRAININGS[name], **rounded}


def _rounded(value: float | None) -> float | None:
    """To four digits; a loss that is no number any more is left out, as JSON has no such numbers."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _shifts(subject: Subject) -> dict[str, Any] | None:
    """Accuracy at shifted thresholds: what `verify-threshold` measured, or what a target was chosen by."""
    if subject.check.get("shifts"):
        return {"of": "test images", "points": [_shift(one) for one in subject.check["shifts"]]}
    tried = [one for one in subject.results.get("choosing", ()) if one.get("accuracy") is not None]
    if not tried:
        return None
    points = [{"shift": one["shift"] or 0, "flops": one["flops"], "recalibrated": one["accuracy"]} for one in tried]
    return {"of": "training images held out", "points": sorted(points, key=lambda one: -one["flops"])}


def _shift(one: Mapping[str, Any]) -> dict[str, Any]:
    stages = {name: one.get(f"accuracy_{name}") for name in ("pruned", "recalibrated", "finetuned")}
    return {"shift": one["shift"], "flops": one["flops"], **{name: v for name, v in stages.items() if v is not None}}
