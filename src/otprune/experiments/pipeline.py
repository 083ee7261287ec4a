"""An experiment on its way: its folder, its data, its models, and what has been measured so far."""

import copy
import functools
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import otprune as ot
from otprune.errors import ExampleError, ModelError, TrainingError
from otprune.experiments.claiming import claim
from otprune.experiments.experiment import Experiment
from otprune.experiments.feeding import DATA, feeding
from otprune.experiments.folder import MADE_BY, PRUNED, RESULTS, SPARSE, found_in, is_settled, write_json
from otprune.experiments.prunable import require_something_to_prune
from otprune.experiments.run_facts import measured
from otprune.models.building import build_model
from otprune.training import data as datasets
from otprune.training import distributed
from otprune.training.data import AnyDataset, Part, Progress, StreamedDataset
from otprune.training.data.seeds import seeded
from otprune.training.evaluation import accuracy
from otprune.training.holding import hold
from otprune.training.same_folder import require_same_folder

HOLD_OUT_SEED = 0  # one for all, so that every seed of a sweep is judged on the same images


@dataclass
class Pipeline:
    """An experiment in its folder; `source` is its data as opened, `data` what is left of it to train on.

    Training begins with a freshly built model, or with the one in the checkpoint `start`; `in_rounds` says whether the
    experiment is a round of several. As long as there is a pipeline in a folder, no other process can open one there.
    Of those that train together, each has one, and only the leader's writes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     experiment = Experiment("digits_net", "digits", hold_out=0.1)
    ...     pipeline = Pipeline(experiment, Path(folder), open_data("digits"), torch.device("cpu"))
    ...     len(pipeline.source.train), len(pipeline.data.train), len(pipeline.held_out)
    (1347, 1211, 136)
    """

    experiment: Experiment
    folder: Path
    source: AnyDataset
    device: torch.device
    start: Path | None = None
    results: dict[str, Any] = field(default_factory=dict)
    in_rounds: bool = False
    data: AnyDataset = field(init=False)
    held_out: Part | None = field(init=False)

    def __post_init__(self) -> None:
        self.data, self.held_out = _split(self.source, self.experiment.hold_out)
        self._require_fit()  # first: a folder must not be claimed for what can never run
        distributed.require_same("settings", self.experiment.to_dict())
        distributed.led(self._hold)
        require_same_folder(self.folder)
        distributed.led(self._claim)
        self._read_results()

    @property
    def results_file(self) -> Path:
        """Where measurements are kept."""
        return self.folder / RESULTS

    def note(self, **measured: Any) -> None:
        """Add what was measured, and which images could not be read for it, and write it down."""
        if not distributed.leads():
            return
        self.results |= measured
        if isinstance(self.source, StreamedDataset) and self.source.unreadable:
            found = {str(path): reason for path, reason in self.source.unreadable.items()}
            self.results["unreadable"] = self.results.get("unreadable", {}) | found
        write_json(self.results_file, self.results)

    def led(self, do: Callable[[], None]) -> None:
        """Let the leader of several processes do something; then all have its results."""
        distributed.led(do)
        if not distributed.leads():
            self._read_results()

    def gather_unreadable(self) -> None:
        """Let each of several processes know which images the others could not read; all must ask."""
        if isinstance(self.source, StreamedDataset) and distributed.current() is not None:
            own = {str(path): reason for path, reason in self.source.unreadable.items()}
            found = distributed.gathered(own)
            self.source.unreadable.update({Path(path): reason for path, reason in found.items()})

    def fresh_model(self) -> nn.Module:
        """The model as the seed builds it."""
        with seeded(self.experiment.training.seed):
            return build_model(self.experiment.model, len(self.data.classes), self.folder)

    def first_model(self) -> nn.Module:
        """The model that training begins with."""
        model = self.fresh_model() if self.start is None else ot.load(self.fresh_model(), self.start)
        return model.to(self.device)

    def load(self, name: str) -> nn.Module:
        """The model in a file that a stage wrote."""
        if name == SPARSE and not (self.folder / SPARSE).exists() and (self.folder / PRUNED).exists():
            raise TrainingError(
                f"{self.folder}: {SPARSE} is gone, which {PRUNED} came of. Put it back: another training may come to "
                f"other weights."
            )
        if not (self.folder / name).exists():
            raise TrainingError(
                f"{self.folder} has no {name} yet: make it with otprune {MADE_BY[name]} --out {self.folder}"
            )
        return ot.load(self.fresh_model(), self.folder / name).to(self.device)

    def example(self) -> Tensor:
        """An input of the model."""
        return torch.zeros(1, *self.data.image_shape, device=self.device)

    def test_accuracy(self, model: nn.Module) -> float:
        """The share of test images that the model gets right: for reporting, never for choosing."""
        return accuracy(model, self.data.test, self.data.mean, self.data.std)

    def held_out_accuracy(self, model: nn.Module) -> float:
        """The share of held-out training images that the model gets right: what choices are made by."""
        if self.held_out is None:
            raise TrainingError("this run holds out no training images to choose on: set hold_out above 0")
        return accuracy(model, self.held_out, self.data.mean, self.data.std)

    def accuracies(self, stage: str, model: nn.Module) -> dict[str, float]:
        """The accuracies of a model under the names that the record has them."""
        found = {f"accuracy_{stage}": self.test_accuracy(model)}
        if self.held_out is not None:
            found[f"accuracy_held_out_{stage}"] = self.held_out_accuracy(model)
        return found

    @property
    def feeding(self) -> dict[str, Any]:
        """How to feed the models of this experiment."""
        return feeding(self.data, self.source.preparation)

    def _hold(self) -> None:
        weakref.finalize(self, hold(self.folder))

    def _claim(self) -> None:
        claim(self.folder, self.experiment)
        self._describe_data()
        if not self.results_file.exists() and (found := measured(self.folder)):
            write_json(self.results_file, found)

    def _read_results(self) -> None:
        if self.results_file.exists():
            self.results = measured(self.folder)

    def _describe_data(self) -> None:
        path = self.folder / DATA
        if found_in(path) != self.feeding:
            write_json(path, self.feeding)

    def _require_fit(self) -> None:
        distributed.share().size(self.experiment.training.batch)
        model, example, name = self.fresh_model(), self.example().cpu(), self.experiment.model
        try:
            ot.cost(model, example)
        except ExampleError as error:
            raise TrainingError(
                f"{name} does not run on the images of {self.experiment.data}, which are "
                f"{'×'.join(map(str, example.shape[1:]))}: {_of_the_model(error)} Choose a model for such images, or "
                f"mend it there."
            ) from error
        with torch.no_grad():
            scores = model.eval()(example)
        _require_scores(scores, len(self.data.classes), name)
        self._require_scores_in_training(model)
        if not any(isinstance(module, _BatchNorm) and module.affine for module in model.modules()):
            raise ModelError(f"{name} has no batch norm with scaling factors, so there is nothing to prune it by")
        if self.experiment.training.lam and not is_settled(self.folder):
            require_something_to_prune(model, example, name)

    def _require_scores_in_training(self, model: nn.Module) -> None:
        """Some models give more then, for losses of their own. Two images, since batch norm takes no single one."""
        with seeded(self.experiment.training.seed), torch.no_grad():
            try:
                scores = copy.deepcopy(model).train()(self.example().cpu().repeat(2, 1, 1, 1))
            except Exception:  # with a batch of the size that it is trained with it may run
                return
        if not isinstance(scores, Tensor):
            raise ModelError(
                f"{self.experiment.model} returns a {type(scores).__name__} in training mode, and a classifier is "
                f"trained by a tensor of scores: return that alone in training mode too"
            )


def open_data(
    name: str, progress: Progress | None = None, strict: bool = False, image_size: int | None = None
) -> AnyDataset:
    """The data of that name, or in that folder; `progress` is told how far a download is.

    With `strict`, an image in a folder that cannot be read is an error. Those in a folder are made `image_size` pixels
    wide and high, by default 224.

    >>> len(open_data("digits").train)
    1347
    """
    if progress is None:
        return datasets.load(name, strict=strict, image_size=image_size)
    return datasets.load(name, strict=strict, image_size=image_size, progress=progress)


def data_of(experiment: Experiment, progress: Progress | None = None) -> AnyDataset:
    """The data of an experiment, as it asks for it.

    >>> len(data_of(Experiment("digits_net", "digits")).train)
    1347
    """
    return open_data(experiment.data, progress, experiment.strict, experiment.image_size)


def open_pipelines(
    experiments: Mapping[Path, Experiment], device: torch.device, progress: Progress | None = None
) -> list[Pipeline]:
    """A pipeline for each folder, all of one data set sharing it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     experiment = Experiment("digits_net", "digits")
    ...     a, b = open_pipelines({Path(folder, name): experiment for name in "ab"}, torch.device("cpu"))
    ...     a.data is b.data
    True
    """
    wanted = {_data_asked(experiment): experiment for experiment in experiments.values()}
    opened = {
        asked: distributed.leader_first(functools.partial(data_of, experiment, progress))
        for asked, experiment in wanted.items()
    }
    return [Pipeline(asked, folder, opened[_data_asked(asked)], device) for folder, asked in experiments.items()]


def _data_asked(experiment: Experiment) -> tuple[object, ...]:
    return experiment.data, experiment.strict, experiment.image_size


def _of_the_model(error: ExampleError) -> str:
    """What the model said, without advice on examples, which nobody gave here."""
    return f"{str(error).partition('). ')[0]})."


@functools.lru_cache(maxsize=1)
def _split(data: AnyDataset, fraction: float) -> tuple[AnyDataset, Part | None]:
    """Cached, so that the runs of a sweep share what is held out."""
    return data.held_out(fraction, HOLD_OUT_SEED) if fraction else (data, None)


def _require_scores(scores: object, classes: int, name: str) -> None:
    if not isinstance(scores, Tensor):
        raise ModelError(f"{name} returns a {type(scores).__name__}, and a classifier is trained by a tensor of scores")
    if scores.dim() != 2 or scores.shape[1] < classes:
        raise ModelError(
            f"{name} returns scores of shape {tuple(scores.shape)} for one image, and the data has {classes} classes: "
            f"build it with as many outputs; a function that takes num_classes is told"
        )
