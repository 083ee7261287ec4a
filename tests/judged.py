"""What a claim comes to, and records that are changed a little."""

from collections.abc import Callable
from typing import Any

from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.report.claims import claims
from otprune.report.verdicts import Verdict
from tests.made_records import changed


def verdict(records: Records, beginning: str) -> tuple[Verdict, str]:
    found = next(claim for claim in claims(records) if claim.text.startswith(beginning))
    return found.verdict, found.evidence


def emptied(results: dict[str, Any]) -> None:
    results["layers"][3].update(kept=1, negligible=results["layers"][3]["channels"])


def finetuned_by(points: float) -> Callable[[Needed], dict[str, Any]]:
    """Makes records that are fine-tuned to so many points below 94 %."""
    return changed(lambda found: found.update(accuracy_finetuned=0.94 - points / 100, accuracy_finetuned_1=0.93))
