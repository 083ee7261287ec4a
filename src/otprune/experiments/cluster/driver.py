"""The driver of a sweep on a cluster: hands out the runs, follows them, and says at the end which failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from otprune.errors import TrainingError
from otprune.experiments.cluster.connection import connected
from otprune.experiments.cluster.endings import told, why_unsaved
from otprune.experiments.cluster.failing import Failure, Suspects, node_of
from otprune.experiments.cluster.remote import SHORT, RemoteStore, pinned_store, submitted
from otprune.experiments.cluster.store import Elsewhere
from otprune.experiments.cluster.work import Assignment, Manner, Stopped
from otprune.experiments.experiment import Experiment
from otprune.experiments.news import Listener
from otprune.training.failures import SetAside
from otprune.training.loop import SAVE_EVERY_SECONDS
from otprune.training.stopping import SAVING_SECONDS, Interrupted, how_to_go_on, stop_requests

LOOK_EVERY_SECONDS = 0.5
PARTS = 10_000  # that Ray can split a GPU into


class Follower(Listener, Protocol):
    """A screen, or whatever wants to know how the runs of a sweep get on."""

    def remark(self, text: str) -> None:
        """Something is to be said of the sweep as a whole."""
        ...


@dataclass(frozen=True)
class Portion:
    """What a run takes of a node; without `gpus`, one of `together` runs on each GPU where the cluster has any.

    >>> Portion(together=3).of({"CPU": 8.0, "GPU": 2.0}), Portion(together=3).of({"CPU": 8.0})
    ((1.0, 0.3333), (1.0, 0.0))
    """

    cpus: float = 1.0
    gpus: float | None = None
    together: int = 1

    def __post_init__(self) -> None:
        if self.gpus is not None and self.gpus > 1 and self.gpus != round(self.gpus):
            raise TrainingError(f"--gpus-per-run must be part of a GPU, or a whole number of them, not {self.gpus:g}")

    def of(self, cluster: Mapping[str, float]) -> tuple[float, float]:
        """CPUs and GPUs for a run on a cluster with these resources."""
        if self.gpus is not None:
            return self.cpus, self.gpus
        return self.cpus, int(PARTS / self.together) / PARTS if cluster.get("GPU") else 0.0


def sweep_on(
    address: str,
    experiments: Mapping[Path, Experiment],
    follower: Follower,
    device: str = "auto",
    portion: Portion | None = None,
    deterministic: bool = False,
    save_every: float = SAVE_EVERY_SECONDS,
) -> None:
    """Run experiments on a Ray cluster, each for its folder here, which are all in one folder.

    A run whose node is lost goes on on another from the last checkpoint that reached the folder here. So does, once, a
    run that fails of what may be its node's fault, such as a full disk, and the node gets no other run as long as there
    are others. A run that fails is set aside; at the end, when the others are done, its error is raised: as it is where
    there is one experiment, and in `RunsFailed` where there are several.

    >>> sweep_on("auto", {}, follower=None)
    """
    if not experiments:
        return
    with connected(address) as ray:
        cpus, gpus = (portion or Portion()).of(_resources(ray) if device != "cpu" else {})
        on = "cpu" if not gpus and device == "auto" else device
        if not _with_room(ray, cpus, gpus):
            follower.remark(f"no node has {cpus:g} CPUs and {gpus:g} GPUs for a run: waiting for one that has")
        manner = Manner(on, deterministic, save_every, Path.cwd(), cpus)
        runs = [Assignment(folder.absolute(), one, manner) for folder, one in experiments.items()]
        store = pinned_store(ray, runs)
        try:
            _Driver(ray, store, runs, follower, cpus, gpus).drive()
        finally:
            store.close()


def _resources(ray: Any) -> dict[str, float]:
    found: dict[str, float] = ray.cluster_resources()
    return found


def _with_room(ray: Any, cpus: float, gpus: float) -> list[str]:
    return [node["NodeID"][:SHORT] for node in ray.nodes() if _has_room(node, cpus, gpus)]


def _has_room(node: Mapping[str, Any], cpus: float, gpus: float) -> bool:
    has: Mapping[str, float] = node["Resources"] if node["Alive"] else {}
    return has.get("CPU", 0) >= cpus and has.get("GPU", 0) >= gpus


class _Driver:
    """Runs that are under way on a cluster."""

    def __init__(
        self, ray: Any, store: RemoteStore, runs: Sequence[Assignment], follower: Follower, cpus: float, gpus: float
    ) -> None:
        self._ray, self._store, self._follower = ray, store, follower
        self._cpus, self._gpus = cpus, gpus
        self._aside, self._suspects = SetAside(runs), Suspects()
        self._runs = runs
        self._under_way: dict[Any, Assignment] = {}
        self._bound: set[Any] = set()  # to be done on other nodes than those on which runs failed

    def drive(self) -> None:
        """To the end, or until the user breaks off."""
        with stop_requests() as stop:
            for run in self._runs:
                self._submit(run)
            while self._under_way and not stop.requested:
                self._look(LOOK_EVERY_SECONDS)
            if stop.requested:
                self._break_off()
        self._aside.errors.sort(key=lambda failed: self._runs.index(failed[0]))
        self._aside.end()

    def _look(self, seconds: float) -> None:
        ended, _ = self._ray.wait(list(self._under_way), timeout=seconds)
        self._unbind()
        for news in self._store.news():
            self._follower.hear(news)
        for reference in ended:
            run = self._under_way.pop(reference)
            try:
                self._end(run, self._ray.get(reference))
            except self._ray.exceptions.RayError as error:
                self._end_by(run, getattr(error, "cause", None) or error)

    def _submit(self, run: Assignment) -> None:
        asked, avoided = replace(run, suspects=frozenset(self._suspects.nodes)), self._to_avoid()
        reference = submitted(self._ray, self._store, asked, self._cpus, self._gpus, avoided)
        self._under_way[reference] = run
        if avoided:
            self._bound.add(reference)

    def _to_avoid(self) -> set[str]:
        return self._suspects.to_avoid(_with_room(self._ray, self._cpus, self._gpus)) if self._suspects.nodes else set()

    def _unbind(self) -> None:
        """Where no other node is left, runs that may wait for one are taken back, and handed out without that bond.

        One that has begun saves itself before, and goes on from there.
        """
        if self._bound and not self._to_avoid():
            for reference in self._bound & self._under_way.keys():
                self._ray.cancel(reference)
            self._bound.clear()

    def _end(self, run: Assignment, failure: Failure | None) -> None:
        if failure is None:
            self._follower.ended(run.run, None)
            return
        if failure.of_node:
            self._store.avoid(node_of(failure.where))
        if self._suspects.lets_try_again(run.run, failure, _with_room(self._ray, self._cpus, self._gpus)):
            self._follower.remark(f"{run.run} is tried once more, on another node: {failure.text}")
            self._submit(run)
        else:
            self._set_aside(run, self._suspects.told(run.run, failure))

    def _end_by(self, run: Assignment, error: Exception) -> None:
        if isinstance(error, Elsewhere | Stopped | self._ray.exceptions.TaskCancelledError):
            self._submit(run)
        else:
            self._set_aside(run, told(error))

    def _set_aside(self, run: Assignment, error: str) -> None:
        self._follower.ended(run.run, error)
        self._aside.errors.append((run, TrainingError(error)))

    def _break_off(self) -> None:
        """Let runs that are under way save themselves; a second Ctrl-C does not wait for them."""
        self._store.stop()  # first: a task that begins only now would not hear of it
        for reference in self._under_way:
            self._ray.cancel(reference)
        left = list(self._under_way)
        ended, _ = self._ray.wait(left, num_returns=len(left), timeout=SAVING_SECONDS)
        unsaved = {self._under_way[one].run: self._unsaved(one) if one in ended else "" for one in left}
        out = self._runs[0].folder.parent
        raise Interrupted(how_to_go_on(out, {run: why for run, why in unsaved.items() if why is not None}))

    def _unsaved(self, reference: Any) -> str | None:
        try:
            found: Failure | None = self._ray.get(reference)
        except self._ray.exceptions.TaskCancelledError:
            return None
        except self._ray.exceptions.RayError as error:
            return why_unsaved(getattr(error, "cause", None) or error)
        return None if found is None else found.text
