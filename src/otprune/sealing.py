"""A digest inside a safetensors file, so that a bit that flipped on its way to the disk or on it is noticed."""

import hashlib
import json
from collections.abc import Mapping

import safetensors.torch
import torch
from torch import Tensor

KEY = "otprune.digest"


def sealed(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The content of a safetensors file whose metadata also has the digest of all that is in it.

    >>> metadata = {"made by": "hand"}
    >>> found = safetensors.torch.load(sealed({"weight": torch.zeros(2)}, metadata))
    >>> damage(found, metadata | {KEY: digest(found, metadata)}) is None
    True
    """
    here = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(here, {**metadata, KEY: digest(here, metadata)})


def digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """A digest of tensors on the CPU and of what is said beside them; it is no part of itself.

    SHA-256, which processors have instructions for: it takes as long as copying the tensors some times over.

    >>> digest({}, {KEY: "any"}) == digest({}, {})
    True
    """
    found = hashlib.sha256(_described(tensors, metadata))
    for name in sorted(tensors):
        found.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def damage(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str | None:
    """What is wrong with what was read from a file; a file without a digest, as older ones are, has nothing to check.

    >>> damage({}, {"model": "another", KEY: digest({}, {"model": "one"})})
    'its content does not match the digest in it, otprune.digest 8e9e01eb...'
    >>> damage({}, {"model": "another"})
    """
    if KEY not in metadata or metadata[KEY] == digest(tensors, metadata):
        return None
    return f"its content does not match the digest in it, {KEY} {metadata[KEY]}"


def _described(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    kinds = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in sorted(tensors)]
    said = {key: value for key, value in metadata.items() if key != KEY}
    return json.dumps([kinds, said], sort_keys=True).encode()
