"""Run a model once to look at its operators, without computing and without touching it.

Parameters, buffers and inputs are swapped for meta tensors, which have a shape and no data. Where an operator needs
data to tell the shape of its result, as a detector's do, data is made up for it. A model that looks at its data itself
is run again, and what it looks at is computed. Where that does not work either, it is run on its real tensors, cloned
first.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from otprune.deferred import Deferred, written_into
from otprune.errors import ExampleError, ModelError, OtpruneError
from otprune.location import call, user_location
from otprune.shortcuts import SHORTCUTS
from otprune.tensors import named_tensors, replaced

aten = torch.ops.aten

CONDITIONS = 100  # that hold in made-up data: of a detector's boxes, say, enough to go on with, and not too many
_ONE_AT_A_TIME = threading.RLock()  # a run changes what torch's classes do


class Watcher(TorchDispatchMode):
    """Sees every ATen operator of one run; subclasses look at them in `seen`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self.state: dict[str, Tensor] = {}
        self.names: dict[int, str] = {}
        self.asked_for_mode = False
        self.on_meta = self.on_data = False  # both, where some data was made up
        self.busy = False  # with an operator
        self.values: Deferred | None = None  # of the meta tensors, where the model looks at its data
        self.wants_number = False  # and stops for it
        self._constants: dict[int, _Constant] = {}

    def name_of(self, tensor: object) -> str | None:
        """The name of the parameter or buffer that `tensor` is, if it is one."""
        return self.names.get(id(tensor))

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Called after each operator with its arguments and result."""
        raise NotImplementedError

    def looks_at(self, value: Tensor) -> None:
        """Called before the model's code looks at a number or a condition among its data."""
        if value.dtype == torch.bool:
            refuse_branching(user_location())

    def depends_on_data(self) -> None:
        """Called where the shape of a result does."""

    def looking(self) -> contextlib.AbstractContextManager[None]:
        """What a subclass needs around the run besides the operators."""
        return contextlib.nullcontext()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default:
            self.looks_at(args[0])
        self.busy = True
        try:
            args, kwargs = self._on_one_device(func, args, kwargs)
            quick = SHORTCUTS.get(func, func) if args and _is_meta_number(args[0]) else func
            out = self._run(func, quick, args, kwargs)
            self.seen(func, args, kwargs, out)
        finally:
            self.busy = False
        return out

    def _run(self, func: Any, quick: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Where a result depends on data, as that of boxes found does, it is made of data, which may be made up."""
        wants_number = func is aten._local_scalar_dense.default
        try:
            out = quick(*args, **kwargs)
        except (NotImplementedError, RuntimeError):
            has_none = any(isinstance(t, Tensor) and t.is_meta for t in pytree.tree_leaves((args, kwargs)))
            self.wants_number = has_none and wants_number and self.values is None
            if not has_none or self.wants_number:
                raise
        else:
            if self.values is not None:
                self.values.note(func, args, kwargs, out)
            return out
        if not wants_number:
            self.on_data = True
            self.depends_on_data()
        return pytree.tree_map_only(Tensor, self._stand_in, self._run_on_values(func, args, kwargs))

    def _run_on_values(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """On what the meta tensors stand for, or on made-up data where nobody looks at it."""
        if self.values is not None:
            return self.values.run(func, args, kwargs)
        made, named = pytree.tree_map_only(Tensor, made_up, (args, kwargs))
        return func(*made, **named)

    def placed(self, tensor: Tensor) -> Tensor:
        """A meta tensor in place of a real one of the user's; a copy of that is its value, where values are kept."""
        return _without_data(tensor) if self.values is None else self._stand_in(tensor.detach().clone())

    def _stand_in(self, tensor: Tensor) -> Tensor:
        meta = _without_data(tensor)
        if self.values is not None:
            self.values.know(meta, tensor)
        return meta

    def _on_one_device(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Tensors the model made itself are real; beside a meta tensor they must be meta too."""
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        tensors += [t for a in args if isinstance(a, list | tuple) for t in a if isinstance(t, Tensor)]
        if not any(t.is_meta for t in tensors) or all(t.is_meta for t in tensors):
            return args, kwargs
        if self.values is not None and any(not tensor.is_meta for tensor in written_into(func, args, kwargs)):
            raise NotImplementedError(f"{func} writes what is not computed yet into a tensor of the model's own making")
        converted: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(Tensor, self._as_meta, (args, kwargs))
        return converted

    def _as_meta(self, tensor: Tensor) -> Tensor:
        if tensor.is_meta:
            return tensor
        known = self._constants.get(id(tensor))
        if known is None or (known.value is not None and not torch.equal(known.value, tensor)):
            known = _Constant(tensor, _without_data(tensor), None if self.values is None else tensor.clone())
            self._constants[id(tensor)] = known
            if self.values is not None and known.value is not None:
                self.values.know(known.meta, known.value)
        return known.meta


class _Constant(NamedTuple):
    """A real tensor beside meta ones, what it is among them, and its value where that may be looked at."""

    tensor: Tensor
    meta: Tensor
    value: Tensor | None


W = TypeVar("W", bound=Watcher)

# The dozen dictionaries of hooks that every module has, and no forward pass fills.
_HOOKS = frozenset(name for name in vars(nn.Module()) if name.endswith(("hooks", "hooks_with_kwargs", "always_called")))

_CONTAINERS: dict[type, Callable[[Any, Any], None]] = {
    dict: dict.update,
    OrderedDict: OrderedDict.update,
    list: list.extend,
    set: set.update,
}


class _Mode(NamedTuple):
    """The mode that a model runs in, and whether those of its modules that training only adds noise to add it."""

    training: bool
    noise: bool = False


def watch(
    model: nn.Module, example: Any, make_watcher: Callable[[], W], *, training: bool, noise: bool = False
) -> tuple[W, Any]:
    """Run `model` on `example` under a watcher; return the watcher and the model's output.

    With `training`, auxiliary heads run too, while batch norm and dropout stay in evaluation mode unless `noise` is
    asked for. Nothing on the model changes: not its flags, its tensors, what its forward keeps on it, nor the random
    state.
    """
    refuse_wrapped(model)
    mode = _Mode(training, noise)
    with _ONE_AT_A_TIME, torch.no_grad(), torch.random.fork_rng(devices=[]):
        watcher = make_watcher()
        found = _run_on_meta(model, example, watcher, mode)
        if found is None and watcher.wants_number:
            found = _run_on_meta(model, example, _computing(make_watcher(), model), mode)
        return found or _run_on_data(model, example, make_watcher(), mode)


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example as positional and keyword arguments: a tensor, a tuple of arguments, or a dict of keyword arguments.

    >>> arguments((1, 2)), arguments({"x": 1})
    (((1, 2), {}), ((), {'x': 1}))
    """
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example if isinstance(example, tuple) else (example,)), {}


def refuse_wrapped(model: nn.Module) -> None:
    """Raise where `model` is a wrapper around the module to prune."""
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    if isinstance(model, wrappers):
        raise ModelError(f"the model is wrapped in {type(model).__name__}: pass the module inside, `model.module`")
    if type(model).__module__.startswith("torch._dynamo"):
        raise ModelError("the model is wrapped by torch.compile: pass the module inside, `model._orig_mod`")
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError("the model is a ScriptModule, which cannot be changed: pass the module it was made from")
    compiled = [name or "model" for name, m in model.named_modules() if m._compiled_call_impl is not None]
    if compiled:
        raise ModelError(f"{compiled[0]} was compiled in place by .compile(): prune first, compile the result")


def _run_on_meta(model: nn.Module, example: Any, watcher: W, mode: _Mode) -> tuple[W, Any] | None:
    try:
        return _run(model, example, watcher, mode, on_meta=True)
    except OtpruneError:
        raise
    except Exception:  # whatever a model raises on meta tensors, a run on data decides
        return None


def _computing(watcher: W, model: nn.Module) -> W:
    """A watcher of a run on meta tensors in which the model can look at its data."""
    watcher.values = Deferred(next((t.device for t in named_tensors(model).values()), torch.device("cpu")))
    return watcher


def _run_on_data(model: nn.Module, example: Any, watcher: W, mode: _Mode) -> tuple[W, Any]:
    try:
        return _run(model, example, watcher, mode, on_meta=False)
    except OtpruneError:
        raise
    except Exception as error:
        shapes = ", ".join(str(tuple(t.shape)) for t in pytree.tree_leaves(example) if isinstance(t, Tensor))
        raise ExampleError(
            f"{type(model).__name__} does not run on the example of shape {shapes or type(example).__name__}: "
            f"{error} ({user_location(error)}). Pass an example the model accepts in "
            f"{'training' if mode.training else 'evaluation'} mode: a tensor, a tuple of arguments, or a dict of "
            f"keyword arguments."
        ) from error


def _run(model: nn.Module, example: Any, watcher: W, mode: _Mode, *, on_meta: bool) -> tuple[W, Any]:
    own = named_tensors(model)
    watcher.on_meta = on_meta and watcher.values is None
    watcher.on_data = not watcher.on_meta
    copied: dict[int, Tensor] = {}

    def stand_in(tensor: Tensor) -> Tensor:
        """The same for the same tensor: a copy, since a model may write into it, or one without data."""
        if id(tensor) not in copied:
            copied[id(tensor)] = watcher.placed(tensor) if on_meta else tensor.detach().clone()
        return copied[id(tensor)]

    watcher.state = {name: stand_in(tensor) for name, tensor in own.items()}
    watcher.names = {id(tensor): name for name, tensor in watcher.state.items()}
    args, kwargs = pytree.tree_map_only(Tensor, stand_in, arguments(example))
    with put_back(model), replaced(model, {id(tensor): watcher.state[name] for name, tensor in own.items()}), watcher:
        _set_modes(model, mode)
        numbers = contextlib.nullcontext() if watcher.values is None else watcher.values.keeping_numbers()
        with _noting_who_asks(model, watcher, mode.training), watcher.looking(), numbers:
            out = call(model, *args, **kwargs)
    return watcher, out


def _set_modes(model: nn.Module, mode: _Mode) -> None:
    for module in model.modules():  # past Module.__setattr__, which is slow and does nothing for a flag
        vars(module)["training"] = mode.noise if is_noise(module) else mode.training


@contextlib.contextmanager
def _noting_who_asks(model: nn.Module, watcher: Watcher, training: bool) -> Iterator[None]:
    """Let the watcher know whether the model's code asks for its mode; if it does not, both modes are the same to it.

    The flag is taken off the modules, so that asking for it goes through `Module.__getattr__`.
    """
    asked = {id(module): module for module in model.modules() if not is_noise(module)}
    original = nn.Module.__getattr__
    if any(type(module).__getattr__ is not original or "training" not in vars(module) for module in asked.values()):
        watcher.asked_for_mode = True
        yield
        return

    def noting(module: nn.Module, name: str) -> Any:
        if name == "training" and id(module) in asked:
            watcher.asked_for_mode = True
            return training
        return original(module, name)

    for module in asked.values():
        del vars(module)["training"]
    nn.Module.__getattr__ = noting  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__getattr__ = original  # type: ignore[method-assign]


def is_noise(module: nn.Module) -> bool:
    """Whether training mode only adds noise to what a module does: batch norm, dropout, a leaf without parameters.

    >>> is_noise(nn.Dropout(0.5)), is_noise(nn.Linear(1, 1))
    (True, False)
    """
    if isinstance(module, _BatchNorm | _DropoutNd):
        return True
    return not (module._modules or module._parameters or module._buffers)


@contextlib.contextmanager
def put_back(model: nn.Module) -> Iterator[None]:
    """Put every module's attributes back at the end: flags, and what a forward keeps there, such as a cache."""
    before = [(vars(module), dict(vars(module))) for module in model.modules()]
    containers = [
        value
        for _, attributes in before
        for name, value in attributes.items()
        if type(value) in _CONTAINERS and name not in _HOOKS
    ]
    contents = [value.copy() for value in containers]
    try:
        yield
    finally:
        for attributes, old in before:
            attributes.clear()
            attributes.update(old)
        for container, content in zip(containers, contents, strict=True):
            container.clear()
            _CONTAINERS[type(container)](container, content)


def made_up(tensor: Tensor) -> Tensor:
    """Data for a tensor that has none, always the same: some conditions hold, every index is the first.

    >>> made_up(torch.zeros(2, dtype=torch.bool, device="meta"))
    tensor([True, True])
    """
    if not tensor.is_meta:
        return tensor
    if tensor.is_floating_point():
        return torch.rand(tensor.shape, dtype=tensor.dtype, generator=torch.Generator().manual_seed(0))
    made = torch.zeros(tensor.shape, dtype=tensor.dtype)
    if tensor.dtype == torch.bool:
        made.view(-1)[:CONDITIONS] = True
    return made


def _without_data(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="meta")


def _is_meta_number(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_meta and value.is_floating_point()


def refuse_branching(line: str) -> None:
    """Raise, since the model looks at its data in that line."""
    raise ModelError(
        f"the model branches on its data at {line}: what one input shows need not hold for the next. Make the "
        f"condition independent of tensor values (torch.where keeps it inside one graph)."
    )
