"""Verdicts that follow from recorded scaling factors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds, sweep
from otprune.report.gamma_claims import Groups, grouped
from otprune.report.verdicts import Verdict
from tests import made_records
from tests.judged import verdict
from tests.made_records import changed


def parted(negligible: float, channels: int, layers: int = 3) -> Callable[[Needed], dict[str, Any]]:
    """Makes records of some layers whose γ are in two groups, and one with few of either.

    One of the negligible ones lies beside the important ones.
    """
    gamma = [negligible] * (channels - 1) + [0.099] + [-0.1] * channels
    gammas = {str(number): gamma for number in range(layers)} | {"few": gamma[channels - 2 :]}

    def change(results: dict[str, Any]) -> None:
        results["gammas"] = gammas
        results["layers"] = [
            {"name": name, "channels": len(found), "kept": channels, "threshold": 0.1, "negligible": number}
            for name, found in gammas.items()
            for number in [2 if name == "few" else channels]
        ]

    return changed(change)


@pytest.mark.parametrize(("negligible", "expected"), [(1e-5, Verdict.HOLDS), (1e-2, Verdict.FAILS)])
@pytest.mark.parametrize("channels", [20, 40])
def test_groups_of_scaling_factors_are_compared_but_for_outliers(
    channels: int, negligible: float, expected: Verdict, tmp_path: Path
) -> None:
    made_records.write(tmp_path, sweep("cifar100", "densenet121")[:1], parted(negligible, channels))
    judged, evidence = verdict(Records(tmp_path), "At every λ, the smallest important scaling factor")
    middle = {1e-5: "1e4", 1e-2: "10"}[negligible]
    assert judged is expected and evidence.startswith(
        f"DenseNet-121 on CIFAR-100: median {middle} at λ=1e-5 (3); "
        f"of all, {middle} to {middle} in the middle half, at least 1e5 in 0 %; "
        "1.0 with 2 % and 1.0 with 1 % left out; in 3 of 4 layers; "
    )


def test_groups_of_scaling_factors_are_judged_at_every_lambda_that_enough_layers_tell_of(tmp_path: Path) -> None:
    weak, middle, strong = sweep("cifar100", "densenet121")[:3]
    made_records.write(tmp_path, [weak, strong], parted(1e-5, 20, layers=9))
    made_records.write(tmp_path, [middle], parted(1e-2, 20, layers=2))
    beginning = "At every λ, the smallest important scaling factor"
    assert verdict(Records(tmp_path), beginning)[0] is Verdict.HOLDS
    made_records.write(tmp_path, [middle], parted(1e-2, 20, layers=3))
    judged, evidence = verdict(Records(tmp_path), beginning)
    assert judged is Verdict.FAILS and "1e4 at λ=1e-5 (9), 10 at λ=2e-5 (3), 1e4 at λ=5e-5 (9)" in evidence


def test_scaling_factors_that_a_record_has_rounded_stay_in_their_group() -> None:
    """The threshold is the smallest important one, in full: rounded, that lies below it."""
    assert grouped([0.333333, 1e-6], negligible=1) == Groups([1e-6], [0.333333])


@pytest.mark.parametrize(
    ("stronger", "expected"),
    [
        ((100.0, 100.0, 100.0), Verdict.HOLDS),
        ((1e-3, 1e-3, 1e-3), Verdict.FAILS),
        ((100.0, 1e-3, 1.0), Verdict.UNDECIDED),
        ((100.0, 100.0), Verdict.UNDECIDED),  # too few seeds
    ],
)
def test_fewer_flops_count_over_seeds_with_as_many_channels(
    stronger: tuple[float, ...], expected: Verdict, tmp_path: Path
) -> None:
    """γ of the second layer, whose images are large, are so many times as strong: NS keeps all of it, or little."""

    def make(needed: Needed) -> dict[str, Any]:
        found, factor = made_records.record(needed), stronger[needed.experiment.training.seed]
        gammas = found["results"]["gammas"] = {
            name: [(0.005 if at < channels // 2 else 0.3) * (1 + at / channels) for at in range(channels)]
            for name, channels in zip(made_records.NAMES, made_records.CHANNELS, strict=True)
        }
        gammas["features.4"] = [factor * gamma for gamma in gammas["features.4"]]
        return found

    made_records.write(tmp_path, seeds("cifar10", "ot")[: len(stronger)], make)
    judged, evidence = verdict(Records(tmp_path), "Over the seeds, with as many channels, OT's VGG-14")
    assert judged is expected and f"on average of {len(stronger)} seeds" in evidence
