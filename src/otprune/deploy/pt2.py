"""The .pt2 of torch.export, read without executing what may be in one.

`torch.export.load` unpickles parts of a file, evaluates expressions that it holds, imports modules and calls functions
that it names. What `to_torch` writes needs none of that. So a file is looked through first, and refused where it has
anything else than the members, operators, names and expressions of a network; what was looked at is what is loaded.
"""

import functools
import io
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from otprune.deploy.expressions import is_expression, is_key
from otprune.errors import DeployError
from otprune.jsons import parsed

MEMBER = re.compile(
    r"\w[\w.-]*/(data/weights/(weight_\d+|model_weights_config\.json)|data/constants/(tensor_\d+|model_constants_config\.json)"
    r"|models/model\.json|data/sample_inputs/model\.pt|extra/\w+\.json|archive_format|archive_version|byteorder|version"
    r"|\.data/\w+|\.format_version|\.storage_alignment)"
)
NAME = re.compile(r"[\w.]*", re.ASCII)
ARGUMENT = re.compile(r"[\w ,.>-]*", re.ASCII)  # "bilinear", or "bij,bjk->bik"
VERSION = re.compile(r"[\w.+-]*", re.ASCII)
OPERATOR = re.compile(
    r"torch\.ops\.(aten|torchvision)\.(?!from_file)\w+\.\w+|torch\.sym_\w+"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|neg|eq|ne|ge|gt|le|lt)"
)
METADATA = {"nn_module_stack", "source_fn_stack", "torch_fn", "stack_trace", "from_node", "custom"}
EVALUATED = {"expr_str", "guards_code"}
SPECS = {None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"}


def load_program(path: Path) -> ExportedProgram:
    """The program in a file, if there is nothing in it but a network.

    >>> load_program(Path("nowhere.pt2"))
    Traceback (most recent call last):
    otprune.errors.DeployError: nowhere.pt2: cannot be opened: ... No such file ... Export the model again.
    """
    try:
        return torch.export.load(_looked_through(path))
    except Exception as error:  # in a damaged file torch's reader stumbles over anything
        raise DeployError(f"{path}: cannot be opened: {error}. Export the model again.") from error


def _looked_through(path: Path) -> io.BytesIO:
    """The same archive, made again of what was looked at: readers of zip do not agree on every file."""
    members = _members(path)
    for name, content in members.items():
        if name.endswith("config.json"):
            _require_plain(parsed(content.decode()))
        elif name.endswith("models/model.json"):
            _require_network(parsed(content.decode()))
        elif name.endswith(".pt"):
            torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return _archive(members)


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        for entry in entries:
            _require(MEMBER.fullmatch(entry.filename), f"it has a {entry.filename!r:.60}")
        _require(len({entry.filename for entry in entries}) == len(entries), "it has a member twice")
        claimed = sum(entry.file_size for entry in entries)
        _require(claimed <= path.stat().st_size, f"its members claim {claimed:,} bytes")
        return {entry.filename: archive.read(entry) for entry in entries}


def _archive(members: dict[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    buffer.seek(0)
    return buffer


def _require_network(value: Any, key: str = "") -> None:
    """Every text is one that its place may have: a name, unless it is known to be something else."""
    if isinstance(value, str):
        _require(_TEXTS.get(key, NAME.fullmatch)(value), f"its {key} is {value!r:.60}")
    elif isinstance(value, list):
        for item in value:
            _require_network(item, key)
    elif isinstance(value, dict):
        _require(key not in EVALUATED, f"its {key} is no text")
        _require_names(value, key)
        for name, item in value.items():
            _require_network(item, "metadata" if key == "metadata" else name)


def _require_names(value: dict[str, Any], key: str) -> None:
    known = METADATA if key == "metadata" else value.keys()
    _require(value.keys() <= known and all(map(NAME.fullmatch, value)), f"its {key} has a strange name")
    _require(not value.get("custom_obj_values") and "as_custom_obj" not in value, "it has objects of its own")


def _require_plain(config: Any) -> None:
    """A list of tensors as plain bytes."""
    _require_network(config)
    for entry in config["config"].values():
        _require(not entry.get("use_pickle"), "it has pickled tensors")


def _is_operator(text: str) -> bool:
    """One of torch's own kernels, or arithmetic of sizes; namespaces of kernels have other things to call, too."""
    if OPERATOR.fullmatch(text) is None:
        return False
    _, kind, *names = text.split(".")
    return kind != "ops" or isinstance(functools.reduce(getattr, names, torch.ops), OpOverload)


def _is_spec(text: str) -> bool:
    """How inputs and outputs nest: in tuples, lists and dicts, ordered or not."""
    return _are_specs(parsed(text)[1:])


def _are_specs(specs: Iterable[Any]) -> bool:
    return all(
        spec["type"] in SPECS and _is_plain_context(spec["context"]) and _are_specs(spec["children_spec"])
        for spec in specs
    )


def _is_plain_context(context: str | None) -> bool:
    found = None if context is None else parsed(context)
    return found is None or (isinstance(found, list) and all(map(_is_plain_key, found)))


def _is_plain_key(key: object) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and is_key(key))


def _anything(text: str) -> bool:
    return True


_TEXTS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(EVALUATED, is_expression),
    "target": _is_operator,
    "as_operator": _is_operator,
    "in_spec": _is_spec,
    "out_spec": _is_spec,
    "metadata": _anything,  # said of nodes, and not looked at
    "as_string": ARGUMENT.fullmatch,
    "torch_version": VERSION.fullmatch,
}


def _require(holds: object, what: str) -> None:
    if not holds:
        raise ValueError(f"{what}, which no network needs and which may be a program")
