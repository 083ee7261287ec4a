"""Checkpoints: safetensors with the plans inside, so that a pruned model loads into a freshly built original."""

import copy
import json
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from otprune.abstract import refuse_wrapped
from otprune.errors import CheckpointError, PlanError
from otprune.files import write_atomically
from otprune.jsons import parsed
from otprune.kinds import require_kind
from otprune.plan import PruningPlan
from otprune.sealing import KEY, damage, sealed
from otprune.surgery import apply, plans_of
from otprune.tensors import named_tensors

PLANS_KEY = "otprune.plans"
CLASS_KEY = "otprune.model"


def save(model: nn.Module, path: str | Path) -> None:
    """Write a model's tensors and the plans that made it, whole or not at all.

    >>> import otprune as ot, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(nn.Linear(2, 2), f"{folder}/model.safetensors")
    ...     load(nn.Linear(2, 2), f"{folder}/model.safetensors")
    Linear(in_features=2, out_features=2, bias=True)
    """
    refuse_wrapped(model)
    plans = json.dumps([json.loads(plan.to_json()) for plan in plans_of(model)], ensure_ascii=False)
    tensors = _without_repeats(model)
    content = sealed(tensors, {CLASS_KEY: type(model).__name__, PLANS_KEY: plans})
    if not Path(path).parent.is_dir():
        raise CheckpointError(f"{path}: there is no folder {Path(path).parent}; make it first")
    write_atomically(Path(path), content)


def load(model: nn.Module, path: str | Path) -> nn.Module:
    """Return `model` as the checkpoint has it: pruned by the plans inside, if any, and with its tensors.

    Give a freshly built model of the original class, which is left untouched. An ordinary state dict loads too, as
    safetensors or as torch writes it; nothing in a file is ever executed.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    refuse_wrapped(model)
    tensors, metadata = _read(path)
    _require_whole(tensors, metadata, path)
    _require_class(model, metadata, path)
    plans = _plans_in(metadata, path)
    model = model if plans else copy.deepcopy(model)
    for plan in plans:
        model = _pruned(model, plan, metadata, path)
    _fill(model, tensors, path)
    return model


def _without_repeats(model: nn.Module) -> dict[str, Tensor]:
    """The state dict with every tensor once: safetensors refuses memory that two names share."""
    seen: set[tuple[int, torch.Size, tuple[int, ...]]] = set()
    kept = {}
    for name, tensor in model.state_dict().items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() == 0 or key not in seen:
            seen.add(key)
            kept[name] = tensor.detach().contiguous()
    return kept


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with path.open("rb") as file:
        start = file.read(8)
    if start[:2] in (b"PK", b"\x80\x02"):
        return _read_torch(path), {}
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(
            f"{path}: not a checkpoint, or a truncated one ({error}). Checkpoints are safetensors files written by "
            f"`otprune.save`, or plain state dicts."
        ) from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        _require_unpacked(path)
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # in a damaged file torch's reader stumbles over anything
        raise CheckpointError(
            f"{path}: holds pickled objects, or is damaged; only tensors are loaded. Save the state dict alone: "
            f"torch.save(model.state_dict(), path), or use otprune.save."
        ) from error
    if not _is_state_dict(found):
        raise CheckpointError(
            f"{path}: is no state dict (names to tensors){_inside(found)}. Save model.state_dict() alone."
        )
    tensors: dict[str, Tensor] = found  # and what torch notes beside it: the versions of its modules
    return tensors


def _inside(found: Any) -> str:
    """Which entries of something that is none are state dicts themselves, as training programs write them."""
    entries = found.items() if isinstance(found, dict) else ()
    names = [repr(name) for name, held in entries if _is_state_dict(held) and held]
    return f", but has one in it: {' and '.join(names)}" if names else ""


def _require_whole(tensors: dict[str, Tensor], metadata: dict[str, str], path: Path) -> None:
    found = damage(tensors, metadata)
    if found is not None:
        raise CheckpointError(
            f"{path}: is damaged: {found}. Put back a copy of it, or delete it and make it again the way it was made. "
            f"A program that changes a checkpoint on purpose has to leave out {KEY}."
        )


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_plain, value.values()))


def _is_plain(value: Any) -> bool:
    """Whether it is a tensor with a number for each of its places."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not (value.is_quantized or value.is_meta)


def _require_unpacked(path: Path) -> None:
    """torch packs nothing: the members of a zip that claim more bytes than the file has would be allocated for."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
        if claimed > path.stat().st_size:
            raise ValueError(f"its members claim {claimed:,} bytes")


def _require_class(model: nn.Module, metadata: dict[str, str], path: Path) -> None:
    name = type(model).__name__
    saved = metadata.get(CLASS_KEY, name)
    if saved != name:
        raise CheckpointError(f"{path}: was saved from a {saved}, not a {name}. Build the model it was saved from.")


def _plans_in(metadata: dict[str, str], path: Path) -> list[PruningPlan]:
    try:
        found = parsed(metadata.get(PLANS_KEY, "[]"))
        require_kind(found, list[Any], "it")
        return [PruningPlan.from_fields(fields) for fields in found]
    except (ValueError, PlanError) as error:
        raise CheckpointError(f"{path}: the pruning plan inside is damaged: {error}") from error


def _pruned(model: nn.Module, plan: PruningPlan, metadata: dict[str, str], path: Path) -> nn.Module:
    try:
        return apply(model, plan)
    except PlanError as error:
        raise CheckpointError(
            f"{path}: was saved from {metadata.get(CLASS_KEY, 'another model')} and does not fit this "
            f"{type(model).__name__}: {error} Build the model with the arguments it was trained with."
        ) from error


def _fill(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    own = model.state_dict()
    shared = set(own) - set(_without_repeats(model))
    mismatch = _mismatch(own, shared, tensors)
    if mismatch is not None:
        raise CheckpointError(
            f"{path}: does not match {type(model).__name__}: it {mismatch}. Build the model it was saved from."
        )
    _take_types(model, tensors)
    versioned = OrderedDict(tensors)
    versioned._metadata = getattr(tensors, "_metadata", own._metadata)  # type: ignore[attr-defined]
    model.load_state_dict(versioned, strict=not shared)


def _take_types(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """A model saved in half or double precision comes back in it."""
    for name, tensor in named_tensors(model).items():
        if name in tensors:
            tensor.data = tensor.data.to(tensors[name].dtype)


def _mismatch(own: dict[str, Tensor], shared: set[str], tensors: dict[str, Tensor]) -> str | None:
    for name in own:
        if name not in tensors and name not in shared:
            return f"has no {name}"
    for name, tensor in tensors.items():
        if name not in own:
            return f"has a {name} that the model does not know"
        if tensor.shape != own[name].shape:
            return f"has {name} of shape {tuple(tensor.shape)} where the model has {tuple(own[name].shape)}"
        if _numbers(tensor) != _numbers(own[name]):
            return f"has {name} in {_numbers(tensor)} numbers where the model has {_numbers(own[name])} ones"
    return None


def _numbers(tensor: Tensor) -> str:
    return "real" if tensor.is_floating_point() else "complex" if tensor.is_complex() else "whole"
