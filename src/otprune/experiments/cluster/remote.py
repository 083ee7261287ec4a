"""The store as an actor of Ray, and a run as a task."""

import signal
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from otprune.errors import TrainingError
from otprune.experiments.cluster.connection import imported
from otprune.experiments.cluster.failing import Failure
from otprune.experiments.cluster.store import Begun, Files, Store
from otprune.experiments.cluster.work import Assignment, Stopped, perform
from otprune.experiments.news import News

FOREVER = -1
SHORT = 6  # characters of a node's name, which tell it from others
NODE_ID = "ray.io/node-id"


class RemoteStore:
    """The store, wherever it is asked for from; its errors are those that it raised there.

    The example of `Store` shows what is asked; tests/test_ray_sweep.py does so on a cluster.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def open(self) -> None:
        """Keep other processes out of the folders."""
        self._ask(self._actor.open.remote())

    def begin(self, run: str, where: str, known: Collection[str] = ()) -> Begun:
        """Begin a run."""
        begun: Begun = self._ask(self._actor.begin.remote(run, where, known))
        return begun

    def put(self, run: str, attempt: int, changed: Files, gone: Sequence[str]) -> bool:
        """Send files, and wait until they are written."""
        return bool(self._ask(self._actor.put.remote(run, attempt, changed, gone)))

    def tell(self, attempt: int, news: News) -> None:
        """Send news, and do not wait."""
        self._actor.tell.remote(attempt, news)

    def news(self) -> list[News]:
        """What was told since the last time."""
        told: list[News] = self._ask(self._actor.news.remote())
        return told

    def avoid(self, node: str) -> None:
        """Let no run begin on a node."""
        self._ask(self._actor.avoid.remote(node))

    def stop(self) -> None:
        """Let no run begin any more."""
        self._ask(self._actor.stop.remote())

    def close(self) -> None:
        """Let other processes into the folders; a store that is no more has done so."""
        ray = imported()
        with suppress(TrainingError):
            self._ask(self._actor.close.remote())
        ray.kill(self._actor)

    def _ask(self, reference: Any) -> Any:
        ray = imported()
        try:
            return reference.future().result()  # ray.get would lend the run's cores to another one meanwhile
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayActorError as error:
            raise TrainingError(
                f"the process that keeps the files of the sweep is no more ({str(error).partition(chr(10))[0]}). "
                f"What it had is kept: give the same command again to go on."
            ) from error


def pinned_store(ray: Any, runs: Sequence[Assignment]) -> RemoteStore:
    """The store of some runs, on the node of who asks, where their folders are.

    It takes a cluster: tests/test_ray_sweep.py shows it at work on one.
    """
    strategies = import_module("ray.util.scheduling_strategies")
    here = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(Store).options(num_cpus=0, scheduling_strategy=here)
    store = RemoteStore(actor.remote(runs[0].folder.parent, [run.run for run in runs]))
    store.open()
    return store


def submitted(
    ray: Any, store: RemoteStore, run: Assignment, cpus: float, gpus: float, away_from: Collection[str] = ()
) -> Any:
    """Hand a run to the cluster, which tries it again on another node for as long as nodes are lost under it.

    It waits rather than being done on one of the nodes that it is to stay away from.

    It takes a cluster: tests/test_ray_sweep.py shows it at work on one. What it does there is what `perform` does here.
    """
    nodes = ray.nodes() if away_from else []
    others = [node["NodeID"] for node in nodes if node["NodeID"][:SHORT] in away_from]
    task = ray.remote(_task).options(
        name=run.run,
        num_cpus=cpus,
        num_gpus=gpus,
        max_retries=FOREVER,
        retry_exceptions=[Stopped],
        scheduling_strategy="SPREAD",
        label_selector={NODE_ID: f"!in({','.join(others)})"} if others else None,
    )
    return task.remote(run, store)


def _task(run: Assignment, store: RemoteStore) -> Failure | None:
    # Ray interrupts a task that is cancelled, which goes unheard where the node was started in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    node = imported().get_runtime_context().get_node_id()
    return perform(run, store, f"{socket.gethostname()}/{node[:SHORT]}")
