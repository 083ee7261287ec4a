"""What a model makes of one batch: its loss, beside a teacher where there is one, and how many images it got right."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from otprune.training.sgd import exact
from otprune.training.working_copy import working_copy


@dataclass(frozen=True)
class Teacher:
    """A model whose outputs are learned beside the labels: distillation. A step puts it into evaluation mode."""

    model: nn.Module
    weight: float = 0.9
    temperature: float = 4.0

    def prepared(self, on_gpu: bool) -> "Teacher":
        """In evaluation mode, and on a GPU in the precision that images have there.

        >>> Teacher(nn.Flatten()).prepared(on_gpu=False).model.training
        False
        """
        self.model.eval()
        return replace(self, model=working_copy(self.model, [])[0]) if on_gpu else self


class Loaded(NamedTuple):
    """Images that lie on the device, and how they are normalized: pixels·scale − shift.

    >>> Loaded(torch.ones(1, 1, 1, 1), torch.zeros(1, dtype=torch.int64), torch.tensor(2.0), torch.tensor(0.5)).scale
    tensor(2.)
    """

    pixels: Tensor
    labels: Tensor
    scale: Tensor
    shift: Tensor

    def batch(self, position: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """The images of one batch, normalized, and their labels; on a GPU in bf16 and channels-last.

        >>> loaded = Loaded(torch.ones(1, 1, 1, 1), torch.tensor([7]), torch.tensor(2.0), torch.tensor(0.5))
        >>> loaded.batch(torch.tensor(0), torch.arange(1))
        (tensor([[[[1.5000]]]]), tensor([7]))
        """
        chosen = position * len(offsets) + offsets
        images = self.pixels.index_select(0, chosen) * self.scale - self.shift
        if images.is_cuda:
            images = images.to(torch.bfloat16, memory_format=torch.channels_last)
        return images, self.labels.index_select(0, chosen)


def batch_loss(
    model: nn.Module, batch: tuple[Loaded, Tensor, Tensor], label_smoothing: float, teacher: Teacher | None
) -> tuple[Tensor, Tensor]:
    """The loss of a batch, given by images, its position among them and its offsets; how many images came out right.

    >>> loaded = Loaded(torch.ones(1, 1, 1, 2), torch.tensor([1]), torch.ones(()), torch.zeros(()))
    >>> batch_loss(nn.Flatten(), (loaded, torch.tensor(0), torch.arange(1)), label_smoothing=0.0, teacher=None)
    (tensor(0.6931), tensor(0))
    """
    loaded, position, offsets = batch
    images, labels = loaded.batch(position, offsets)
    outputs = exact(model(images))
    loss = F.cross_entropy(outputs, labels, label_smoothing=label_smoothing)
    if teacher is not None:
        loss = (1 - teacher.weight) * loss + teacher.weight * _apart(teacher, images, outputs)
    return loss, (outputs.detach().argmax(1) == labels).sum()


def _apart(teacher: Teacher, images: Tensor, outputs: Tensor) -> Tensor:
    """How far the outputs are from the teacher's, both softened."""
    with torch.no_grad():
        taught = exact(teacher.model(images)) / teacher.temperature
    learned = F.log_softmax(outputs / teacher.temperature, 1)
    apart = F.kl_div(learned, F.log_softmax(taught, 1), reduction="batchmean", log_target=True)
    return teacher.temperature**2 * apart
