"""INT8 after training: weights and activations in eight bits, in ranges measured on images, by NNCF."""

import contextlib
import io
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from otprune.deploy.agreement import Array
from otprune.deploy.packages import imported
from otprune.deploy.program import told
from otprune.errors import DeployError

CALIBRATION_IMAGES = 300  # NNCF's own default; more of them hardly move the ranges


def quantized_onnx(proto: Any, images: Iterable[Array]) -> Any:
    """A `ModelProto` in eight bits, calibrated on images: arrays of one image each, as the model takes them."""
    name = proto.graph.input[0].name
    return _quantized(proto, [{name: image} for image in images])


def quantized_openvino(network: Any, images: Iterable[Array]) -> Any:
    """An `openvino.Model` in eight bits, calibrated likewise."""
    return _quantized(network, list(images))


def _quantized(model: Any, items: list[Any]) -> Any:
    nncf = _nncf()
    with _quiet(nncf):
        try:
            return nncf.quantize(model, nncf.Dataset(items), subset_size=len(items))
        except Exception as error:  # of NNCF, or of the runtime that it measures with
            raise DeployError(f"NNCF cannot bring the model to eight bits: {told(error)}") from error


def _nncf() -> Any:
    """NNCF, without the class that it would give to all loggers to come."""
    before = logging.getLoggerClass()
    try:
        return imported("nncf")
    finally:
        logging.setLoggerClass(before)


@contextlib.contextmanager
def _quiet(nncf: Any) -> Iterator[None]:
    """Without what NNCF draws and logs on stdout."""
    before = logging.getLogger("nncf").level
    nncf.set_log_level(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        nncf.set_log_level(before)
