"""Ray, imported when a cluster is asked for, and the connection to it."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from otprune.errors import TrainingError
from otprune.training.failures import first_line

CLIENT = "ray://"
ANSWERING_SECONDS = 10.0
NO_SETTINGS, KIND = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), 3  # a frame, and where it says of what kind it is
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + NO_SETTINGS
HERE = ("localhost", "127.0.0.1", "[::1]")


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at an address as `ray.init` takes it, and let go of at the end.

    >>> with connected("ray://host:10001"):
    ...     pass
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: --ray ray://host:10001: a sweep is kept in a folder of this machine, which has to ...
    """
    _refuse_client(address)
    ray = imported()
    try:
        _require_answer(ray, address)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError, AssertionError) as error:
        raise TrainingError(
            f"--ray {address}: no Ray cluster can be reached there from this machine ({first_line(error)}). "
            f"Start one with ray start --head, or join it with ray start --address HOST:PORT --num-cpus 0, "
            f"or leave out --ray to run on this machine alone."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def imported() -> Any:
    """The package, or how to get it.

    >>> imported().__name__
    'ray'
    """
    try:
        return import_module("ray")
    except ModuleNotFoundError as missing:
        raise TrainingError(f"--ray needs a package ({missing}): pip install 'otprune[cluster]'") from missing


def _refuse_client(address: str) -> None:
    """A client of Ray is no node, so there would be no process on its machine that could write what comes in."""
    if address.startswith(CLIENT):
        raise TrainingError(
            f"--ray {address}: a sweep is kept in a folder of this machine, which has to be a node of the cluster, "
            f"and a client of Ray is none. "
            f"Join it with ray start --address HOST:6379 --num-cpus 0, then give --ray auto."
        )


def _require_answer(ray: Any, address: str) -> None:
    """Where no cluster answers, Ray itself would try for minutes; like Ray, by the address that other machines know."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return
    known = ray.util.get_node_ip_address() if host in HERE else host.strip("[]")
    with socket.create_connection((known, int(port)), ANSWERING_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0") in ("0", ""):  # else all is encrypted, this as well
            _require_grpc(connection)


def _require_grpc(connection: socket.socket) -> None:
    """What a cluster speaks: gRPC, which is HTTP/2, where each side begins with a frame of settings."""
    connection.sendall(HELLO)
    answer = b""
    while len(answer) < len(NO_SETTINGS) and (more := connection.recv(len(NO_SETTINGS) - len(answer))):
        answer += more
    if len(answer) < len(NO_SETTINGS) or answer[KIND] != NO_SETTINGS[KIND]:
        raise ConnectionError("something else than Ray answers")
