"""A real Ray cluster: nodes that are processes of this machine, to be frozen, killed and replaced.

It lives in a process of its own, which ends it when its input ends, however the process ends that asked for it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
# A node that is lost is noticed after a second, not after the usual half minute.
NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 250,
    "health_check_timeout_ms": 20_000,
    "health_check_failure_threshold": 3,
}
LIMIT = 300  # seconds for nodes to start: on a busy machine it takes long
HEAD = NODE | {"include_dashboard": False, "_system_config": NOTICE}


class RayCluster:
    """The cluster, from outside; nodes go by the beginnings of their names."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        said = self._answer()
        self.address: str = said["address"]
        self.nodes: set[str] = set(said["nodes"])  # that can be killed: the head, where the driver is, is none of them

    def freeze(self, node: str) -> None:
        """Stop whatever runs on a node in the middle of it."""
        self._ask("freeze", node)

    def thaw(self, node: str) -> None:
        """Let it go on."""
        self._ask("thaw", node)

    def kill(self, node: str) -> None:
        """Kill a node: its raylet and its workers, by SIGKILL."""
        self._ask("kill", node)
        self.nodes.remove(node)

    def add(self) -> str:
        """One more node."""
        (node,) = self._ask("add")["nodes"]
        self.nodes.add(node)
        return str(node)

    def _ask(self, what: str, node: str = "") -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, node]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process of the cluster has ended"
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def ray_cluster(nodes: int = 3, gpus: int = 0) -> Iterator[RayCluster]:
    """A cluster for a while; its head has the GPUs."""
    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a short name: sockets are named after it
    line = [sys.executable, "-m", "tests.ray_cluster", str(nodes), str(gpus)]
    with Path(place, "log").open("w") as log:
        process = subprocess.Popen(
            line,
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {"RAY_TMPDIR": place},
        )
    with process:
        try:
            yield RayCluster(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            shutil.rmtree(place, ignore_errors=True)


class _Nodes:
    """The cluster, from inside."""

    def __init__(self, nodes: int, gpus: int) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args=HEAD | {"num_gpus": gpus})
        self.address = self.cluster.address
        for _ in range(nodes - 1):
            self.cluster.add_node(**NODE, wait=False)
        self.cluster.wait_for_nodes(LIMIT)

    @property
    def names(self) -> list[str]:
        return [self._name(node) for node in self.cluster.worker_nodes]

    def freeze(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def kill(self, name: str) -> None:
        self._signal(name, signal.SIGKILL)
        self.cluster.remove_node(self._node(name), allow_graceful=False)

    def add(self, _: str) -> str:
        node = self.cluster.add_node(**NODE, wait=False)
        self.cluster.wait_for_nodes(LIMIT)
        return self._name(node)

    def _signal(self, name: str, number: int) -> None:
        raylet = self._node(name).all_processes["raylet"][0].process.pid
        for process in (*_children(raylet), *([raylet] if number == signal.SIGKILL else [])):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _node(self, name: str) -> Any:
        return next(node for node in self.cluster.worker_nodes if self._name(node) == name)

    def _name(self, node: Any) -> str:
        return str(node._node_id)[:6]


def _children(process: int) -> list[int]:
    try:
        found = [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return [*found, *(inner for one in found for inner in _children(one))]


def _serve(nodes: int, gpus: int) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    cluster = _Nodes(nodes, gpus)
    print(json.dumps({"address": cluster.address, "nodes": cluster.names}), file=out, flush=True)
    for line in sys.stdin:
        what, node = json.loads(line)
        made = getattr(cluster, what)(node)
        print(json.dumps({"nodes": [made]}), file=out, flush=True)
    cluster.cluster.shutdown()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: who asked for the cluster ends it
    _serve(*map(int, sys.argv[1:]))
