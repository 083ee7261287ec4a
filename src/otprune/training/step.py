"""One training step: a batch, forward, loss, backward, the sparsity penalty, SGD with Nesterov momentum.

Whatever changes from step to step is a tensor on the device: the place among the images that lie there, the learning
rate, λ, the sums of loss and hits. On a GPU the step is compiled and captured once as a CUDA graph, and training is
replaying it, be the images there a whole epoch or one batch.

There, activations are bf16 and channels-last, and so are the weights that convolutions see: copies of the fp32 weights,
which the update itself writes, in wider tensors where a GPU would be slow with them. Batch norm keeps its parameters
and statistics in fp32.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.tensors import named_tensors
from otprune.training.batch_loss import Loaded, Teacher, batch_loss
from otprune.training.chance import Chance
from otprune.training.compiling import compiled
from otprune.training.deterministic_layers import refusals_by_layer, train_in_order
from otprune.training.sgd import LARGE, Optimization, Trained, sgd_in_one_pass, sgd_one_by_one, sgd_together
from otprune.training.silent_biases import silent_biases
from otprune.training.wide_convolutions import part_of, widen
from otprune.training.working_copy import working_copy

WARM_UP_STEPS = 3


class Step:
    """A model in training, one call a batch.

    Pixels are uint8, which are divided by 255, or floating point, which are not; `mean` and `std` are applied to both.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> step = Step(net, torch.zeros(1), torch.ones(1), batch=2)
    >>> step.begin(rate=0.1, lam=0.0)
    >>> step.load(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    >>> step(), step()
    (None, None)
    >>> step.sums().hits
    2
    """

    def __init__(
        self,
        model: nn.Module,
        mean: Tensor,
        std: Tensor,
        batch: int,
        optimization: Optimization | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        self.model, self.batch = model, batch
        self.optimization = optimization or Optimization()
        first = next(model.parameters())
        self.device = first.device
        self._on_gpu = self.device.type == "cuda"
        self.teacher = teacher and teacher.prepared(self._on_gpu)
        if self._on_gpu:
            model.to(memory_format=torch.channels_last)  # so that the update reads and writes everything in one order
        self.parameters = [p for p in named_tensors(model).values() if isinstance(p, nn.Parameter) and p.requires_grad]
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        self._worker: nn.Module = model
        self._seen: list[nn.Parameter] = self.parameters
        if self._on_gpu:
            self._worker, self._seen = working_copy(model, self.parameters)
            if torch.are_deterministic_algorithms_enabled():
                train_in_order(self._worker)
        self._gammas = {id(m.weight) for m in model.modules() if isinstance(m, _BatchNorm) and m.affine}
        self._silent: list[tuple[Tensor, Tensor]] = []
        self.rate, self.lam = first.new_zeros(()), first.new_zeros(())
        # The place among the images loaded, and the steps of the epoch.
        self._position, self._steps = (torch.zeros((), dtype=torch.int64, device=self.device) for _ in range(2))
        self._sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        self._failed = torch.full((), -1, dtype=torch.int64, device=self.device)
        self._offsets = torch.arange(batch, device=self.device)
        mean, self._std = (number.to(first.dtype).view(1, -1, 1, 1).to(self.device) for number in (mean, std))
        self._scale, self._shift = 1 / self._std, mean / self._std
        self._pixels = self._labels = torch.zeros(0, device=self.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        # Before gradients that are computed aside, on streams of lower priority.
        self.stream = torch.cuda.Stream(self.device, priority=-1) if self._on_gpu else None
        self._chance = Chance(self.device)
        self._copied_before: torch.cuda.Event | None = None

    def penalize(self, layers: Collection[str]) -> None:
        """Put the penalty on these batch norms alone, before images are loaded; otherwise it is on all of them."""
        self._gammas = {id(self.model.get_submodule(name).get_parameter("weight")) for name in layers}

    def begin(self, rate: float, lam: float, sums: "EpochSums | None" = None) -> None:
        """Start an epoch, counting anew, or go on in its middle with what was counted."""
        self._worker.train()  # on a GPU a module of its own, which the model's train() does not reach
        sums = sums or EpochSums(0.0, 0, 0, -1)
        with self._in_order():
            self.rate.fill_(rate)
            self.lam.fill_(lam)
            self._steps.fill_(sums.steps)
            self._sums.copy_(torch.tensor([sums.loss, sums.hits], dtype=torch.float64))
            self._failed.fill_(sums.failed)
            self._working_copies_follow()

    def load(self, pixels: Tensor, labels: Tensor, done: int = 0) -> None:
        """Put the images of the next steps in place: one batch or many, of which the first `done` are passed over."""
        with self._in_order():
            if (self._pixels.shape, self._pixels.dtype) != (pixels.shape, pixels.dtype):
                self._make_room(pixels, labels)
            self._pixels.copy_(pixels, non_blocking=True)
            self._labels.copy_(labels, non_blocking=True)
            self._position.fill_(done)
        if self.stream is not None:
            self._hold_until_copied(pixels, labels, self.stream)
            if self._graph is None:
                self._capture(self.stream)

    def __call__(self, seed: int | None = None) -> None:
        """Train on the next batch. What the model draws at random follows from the seed, where one is given."""
        if self._graph is None:
            with self._chance.seeded(seed):
                self._train()
        else:
            with torch.cuda.stream(self.stream), self._chance.seeded(seed):
                self._graph.replay()

    def sums(self) -> "EpochSums":
        """Wait for the device; what the epoch's steps so far come to."""
        if self.stream is not None:
            self.stream.synchronize()
        loss, hits = self._sums.tolist()
        return EpochSums(loss, round(hits), int(self._steps), int(self._failed))

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """On a GPU, after all that was sent to it, and after the steps: they read what is about to be written."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            yield

    def _hold_until_copied(self, pixels: Tensor, labels: Tensor, stream: torch.cuda.Stream) -> None:
        """Their memory is not given away before, and a faster source waits, or batches would pile up in memory."""
        for tensor in (pixels, labels):
            if tensor.is_cuda:
                tensor.record_stream(stream)
        if self._copied_before is not None:
            self._copied_before.synchronize()
        self._copied_before = stream.record_event(torch.cuda.Event(blocking=True))

    def _make_room(self, pixels: Tensor, labels: Tensor) -> None:
        self._pixels, self._labels = (
            torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device) for tensor in (pixels, labels)
        )
        self._scale = 1 / (self._std if pixels.is_floating_point() else 255 * self._std)
        self._graph = None

    def _train(self) -> None:
        loaded = Loaded(self._pixels, self._labels, self._scale, self._shift)
        batch = (loaded, self._position, self._offsets)
        trained = self._trained()
        with refusals_by_layer(self._worker, self._pixels):
            loss, hits = self._runner(batch_loss)(self._worker, batch, self.optimization.label_smoothing, self.teacher)
            gradients = self._gradients(loss, [self._seen[index] for index in trained])
        self._update({index: one for index, one in zip(trained, gradients, strict=True) if one is not None})
        with torch.no_grad():
            counts = (self._position, self._steps)
            self._runner(_note)(self._sums, self._failed, counts, *self._outcome(loss.detach(), hits), self.batch)

    def _gradients(self, loss: Tensor, parameters: list[nn.Parameter]) -> Sequence[Tensor | None]:
        """None for those that have no part in the loss, which stay as they are, as with any optimizer of torch's."""
        return torch.autograd.grad(loss, parameters, allow_unused=True)

    def _outcome(self, loss: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
        return loss, hits

    @torch.no_grad()
    def _update(self, gradients: Mapping[int, Tensor]) -> None:
        tensors = [self._in_training(index, gradient) for index, gradient in gradients.items()]
        how = (self.rate, self.lam, self.optimization)
        if not self._on_gpu:
            sgd_in_one_pass(tensors, *how)
            return
        from otprune.training.side_gradients import finish  # loaded by now

        if large := [each for each in tensors if each.parameter.numel() >= LARGE]:
            compiled(sgd_one_by_one)(large, *how)
        finish(self.device)
        if small := [each for each in tensors if each.parameter.numel() < LARGE]:
            compiled(sgd_together)(small, *how)

    def _in_training(self, index: int, gradient: Tensor) -> Trained:
        parameter, seen = self.parameters[index], self._seen[index]
        follower = None if seen is parameter else part_of(seen.detach(), parameter.shape)
        gradient = part_of(gradient, parameter.shape)
        return Trained(parameter, self.momenta[index], gradient, follower, id(parameter) in self._gammas)

    def _trained(self) -> list[int]:
        silent = {id(bias) for bias, _ in self._silent}
        return [index for index, parameter in enumerate(self.parameters) if id(parameter) not in silent]

    def _runner(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return compiled(function) if self._on_gpu else function

    def _copied(self) -> list[tuple[Tensor, Tensor]]:
        pairs = ((self._seen[index], self.parameters[index]) for index in self._trained())
        return [(part_of(copied, own.shape), own) for copied, own in pairs if copied is not own]

    @torch.no_grad()
    def _working_copies_follow(self) -> None:
        for copied, parameter in self._copied():
            copied.copy_(parameter)
        for bias, mean in self._silent:
            mean -= bias  # the model computes what it did, and trains as it would have
            bias.zero_()

    def _leave_out_silent_biases(self) -> None:
        """What has no gradient needs no kernels: the GPU's copy of the model does without such biases."""
        tensors, example = named_tensors(self.model), self._pixels[:2].to(torch.bfloat16)
        found = silent_biases(self._worker, example)
        self._silent += [(tensors[bias], tensors[mean]) for bias, mean in found.items()]
        for bias in found:
            self._worker.get_submodule(bias.rpartition(".")[0]).register_parameter("bias", None)
        self._working_copies_follow()

    def _widen_convolutions(self) -> None:
        wide = widen(self._worker)
        self._seen = [wide.get(id(seen), seen) for seen in self._seen]

    def _capture(self, stream: torch.cuda.Stream) -> None:
        """Warm up on a side stream, record the graph, and take back what the warm-up trained."""
        torch.cuda.synchronize(self.device)
        self._leave_out_silent_biases()
        self._widen_convolutions()
        state = [*self.parameters, *self.momenta, *self.model.buffers(), self._position, self._steps]
        state += [self._sums, self._failed]
        saved = [tensor.detach().clone() for tensor in state]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream), self._chance.watched():
            for _ in range(WARM_UP_STEPS):
                self._position.zero_()  # there may not be enough batches left to warm up with
                self._train()
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on with what is theirs, such as pinning memory for batches to come.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._train()
        with torch.no_grad():
            for tensor, value in zip(state, saved, strict=True):
                tensor.copy_(value)
        self._working_copies_follow()
        torch.cuda.synchronize(self.device)
        self._graph = graph


@dataclass(frozen=True)
class EpochSums:
    """The summed loss, the hits and the steps of an epoch; `failed` is its first step with a loss not finite, or −1."""

    loss: float
    hits: int
    steps: int
    failed: int


def _note(sums: Tensor, failed: Tensor, counts: tuple[Tensor, Tensor], loss: Tensor, hits: Tensor, batch: int) -> None:
    """Add up loss and hits, note the first step whose loss is not finite, and go on to the next batch."""
    sums += torch.stack([loss.double() * batch, hits.double()])
    bad = ~loss.isfinite() & (failed < 0)
    position, steps = counts
    failed.copy_(torch.where(bad, steps, failed))
    position += 1
    steps += 1
