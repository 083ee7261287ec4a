"""One training step: a batch, forward, loss, backward, the sparsity penalty, SGD with Nesterov momentum.

Whatever changes from step to step is a tensor on the device: the position in the epoch, the learning rate, λ, the sums
of loss and hits. On a GPU the step is compiled and captured once as a CUDA graph, and training is replaying it.

There, activations are bf16 and channels-last, and so are the weights that convolutions see: copies of the fp32 weights,
which the update itself writes. Batch norm keeps its parameters and statistics in fp32.
"""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.tensors import named_tensors

WARM_UP_STEPS = 3
COMPILED_NETWORKS = 10_000


@dataclass(frozen=True)
class Optimization:
    """What a step does besides the gradient: SGD's constants and the kind of penalty."""

    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.0
    proximal: bool = False


@dataclass(frozen=True)
class Teacher:
    """A model whose outputs are learned beside the labels: distillation. A step puts it into evaluation mode."""

    model: nn.Module
    weight: float = 0.9
    temperature: float = 4.0


class Step:
    """A model in training, one call a batch.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> step = Step(net, torch.zeros(1), torch.ones(1), batch=2)
    >>> step.begin(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), rate=0.1, lam=0.0)
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
        self.teacher = _prepared(teacher, self._on_gpu)
        if self._on_gpu:
            model.to(memory_format=torch.channels_last)  # so that the update reads and writes everything in one order
        self.parameters = [p for p in named_tensors(model).values() if isinstance(p, nn.Parameter) and p.requires_grad]
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        self._worker: nn.Module = model
        self._seen: list[nn.Parameter] = self.parameters
        if self._on_gpu:
            self._worker, self._seen = _worker(model, self.parameters)
        owned = {id(m.weight) for m in model.modules() if isinstance(m, _BatchNorm) and m.affine}
        self._gammas = [index for index, p in enumerate(self.parameters) if id(p) in owned]
        self.rate, self.lam = first.new_zeros(()), first.new_zeros(())
        self._position = torch.zeros((), dtype=torch.int64, device=self.device)
        self._sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        self._failed = torch.full((), -1, dtype=torch.int64, device=self.device)
        self._offsets = torch.arange(batch, device=self.device)
        mean, std = mean.to(first.dtype), std.to(first.dtype)
        self._scale = (1 / (255 * std)).view(1, -1, 1, 1).to(self.device)
        self._shift = (mean / std).view(1, -1, 1, 1).to(self.device)
        self._pixels = self._labels = torch.zeros(0, device=self.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream() if self._on_gpu else None

    def begin(self, pixels: Tensor, labels: Tensor, rate: float, lam: float, sums: "EpochSums | None" = None) -> None:
        """Put an epoch's images in place and start counting anew, or go on in the middle with what was counted."""
        self._worker.train()  # on a GPU a module of its own, which the model's train() does not reach
        if self._pixels.shape == pixels.shape:
            self._pixels.copy_(pixels)
            self._labels.copy_(labels)
        else:
            self._pixels, self._labels, self._graph = pixels.clone(), labels.clone(), None
        self.rate.fill_(rate)
        self.lam.fill_(lam)
        sums = sums or EpochSums(0.0, 0, 0, -1)
        self._position.fill_(sums.steps)
        self._sums.copy_(torch.tensor([sums.loss, sums.hits], dtype=torch.float64))
        self._failed.fill_(sums.failed)
        self._working_copies_follow()
        if self.stream is not None:
            if self._graph is None:
                self._capture(self.stream)
            self.stream.wait_stream(torch.cuda.current_stream())

    def __call__(self) -> None:
        """Train on the next batch."""
        if self._graph is None:
            self._train()
        else:
            with torch.cuda.stream(self.stream):
                self._graph.replay()

    def sums(self) -> "EpochSums":
        """Wait for the device; what the epoch's steps so far come to."""
        if self.stream is not None:
            self.stream.synchronize()
        loss, hits = self._sums.tolist()
        return EpochSums(loss, round(hits), int(self._position), int(self._failed))

    def _train(self) -> None:
        images, labels = self._next_batch()
        forward = self._runner(_loss)
        loss, hits = forward(self._worker, images, labels, self.optimization.label_smoothing, self.teacher)
        gradients = torch.autograd.grad(loss, self._seen)
        self._update(list(gradients))
        self._sums += torch.stack([loss.detach().double() * self.batch, hits.double()])
        bad = ~loss.detach().isfinite() & (self._failed < 0)
        self._failed.copy_(torch.where(bad, self._position, self._failed))
        self._position += 1

    def _next_batch(self) -> tuple[Tensor, Tensor]:
        chosen = self._position * self.batch + self._offsets
        images = self._pixels.index_select(0, chosen) * self._scale - self._shift
        if self._on_gpu:
            images = images.to(torch.bfloat16, memory_format=torch.channels_last)
        return images, self._labels.index_select(0, chosen)

    @torch.no_grad()
    def _update(self, gradients: list[Tensor]) -> None:
        lists = (self.parameters, self.momenta, gradients, self._copied(), self._gammas)
        self._runner(_sgd)(*lists, self.rate, self.lam, self.optimization)

    def _runner(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _compiled(function) if self._on_gpu else function

    def _copied(self) -> list[tuple[Tensor, Tensor]]:
        pairs = zip(self._seen, self.parameters, strict=True)
        return [(copied, parameter) for copied, parameter in pairs if copied is not parameter]

    @torch.no_grad()
    def _working_copies_follow(self) -> None:
        for copied, parameter in self._copied():
            copied.copy_(parameter)

    def _capture(self, stream: torch.cuda.Stream) -> None:
        """Warm up on a side stream, record the graph, and take back what the warm-up trained."""
        state = [*self.parameters, *self.momenta, *self.model.buffers(), self._position, self._sums, self._failed]
        saved = [tensor.detach().clone() for tensor in state]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self._position.zero_()  # near the end of an epoch there are not enough batches left to warm up with
                self._train()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._train()
        with torch.no_grad():
            for tensor, value in zip(state, saved, strict=True):
                tensor.copy_(value)
        self._working_copies_follow()
        torch.cuda.synchronize()
        self._graph = graph


@dataclass(frozen=True)
class EpochSums:
    """The summed loss, the hits and the steps of an epoch; `failed` is its first step with a loss not finite, or −1."""

    loss: float
    hits: int
    steps: int
    failed: int


def _worker(model: nn.Module, parameters: list[nn.Parameter]) -> tuple[nn.Module, list[nn.Parameter]]:
    """The model as the GPU runs it: weights in bf16 and channels-last, batch norm and all buffers shared with it."""
    shared = {id(t): t for t in named_tensors(model).values()}
    norms = {id(p) for m in model.modules() if isinstance(m, _BatchNorm) for p in m.parameters()}
    memo: dict[int, Any] = dict(shared)
    for parameter in model.parameters():
        if id(parameter) not in norms:
            layout = torch.channels_last if parameter.dim() == 4 else torch.contiguous_format
            half = parameter.detach().to(torch.bfloat16, memory_format=layout)
            memo[id(parameter)] = nn.Parameter(half, requires_grad=parameter.requires_grad)
    worker: nn.Module = copy.deepcopy(model, memo)
    for module in worker.modules():
        if isinstance(module, _BatchNorm) and module.momentum is not None:
            module.num_batches_tracked = None  # a kernel for each layer and step, and only read without momentum
    return worker, [memo[id(parameter)] for parameter in parameters]


def _prepared(teacher: Teacher | None, on_gpu: bool) -> Teacher | None:
    """The teacher in evaluation mode, and on a GPU in the precision that images have there."""
    if teacher is None:
        return None
    teacher.model.eval()
    return replace(teacher, model=_worker(teacher.model, [])[0]) if on_gpu else teacher


def _loss(
    model: nn.Module, images: Tensor, labels: Tensor, label_smoothing: float, teacher: Teacher | None
) -> tuple[Tensor, Tensor]:
    outputs = _exact(model(images))
    loss = F.cross_entropy(outputs, labels, label_smoothing=label_smoothing)
    if teacher is not None:
        with torch.no_grad():
            taught = _exact(teacher.model(images)) / teacher.temperature
        learned = F.log_softmax(outputs / teacher.temperature, 1)
        apart = F.kl_div(learned, F.log_softmax(taught, 1), reduction="batchmean", log_target=True)
        loss = (1 - teacher.weight) * loss + teacher.weight * teacher.temperature**2 * apart
    return loss, (outputs.detach().argmax(1) == labels).sum()


def _sgd(
    parameters: list[Tensor],
    momenta: list[Tensor],
    gradients: list[Tensor],
    copies: list[tuple[Tensor, Tensor]],
    gammas: list[int],
    rate: Tensor,
    lam: Tensor,
    optimization: Optimization,
) -> None:
    """SGD with weight decay and Nesterov momentum on fp32 weights, and L1 on γ by gradient or soft threshold."""
    total = list(torch._foreach_mul(parameters, optimization.weight_decay))
    torch._foreach_add_(total, [_exact(gradient) for gradient in gradients])
    if not optimization.proximal:
        for index in gammas:
            total[index] += lam * parameters[index].sign()
    torch._foreach_mul_(momenta, optimization.momentum)
    torch._foreach_add_(momenta, total)
    torch._foreach_add_(total, momenta, alpha=optimization.momentum)
    torch._foreach_mul_(total, rate)
    torch._foreach_sub_(parameters, total)
    if optimization.proximal:
        for index in gammas:
            limit = rate * lam
            parameters[index] -= parameters[index].clamp(-limit, limit)
    if copies:
        torch._foreach_copy_([copied for copied, _ in copies], [parameter for _, parameter in copies])


def _exact(tensor: Tensor) -> Tensor:
    """In fp32, unless the model computes in fp64."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled = torch.compile(function, fullgraph=True, dynamic=False)
    # Each pruned network of a sweep has shapes of its own, and torch gives up at the ninth unless told otherwise.
    enough = torch._dynamo.config.patch(
        recompile_limit=COMPILED_NETWORKS, accumulated_recompile_limit=COMPILED_NETWORKS
    )
    patched: Callable[..., Any] = enough(compiled)
    return patched
