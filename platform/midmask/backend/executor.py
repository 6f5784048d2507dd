"""The executor: runs a graph of steps on the cluster, for recipes, sweeps and benchmarks alike.

Where a step runs is said by its kind (`StepKind.runs`): distributed, else in its one-process form as a Ray task.

What goes through a whole collection gets the whole cluster, one step after another. So does every step where trainings
do not run side by side. All else is a Ray task for each step, started when its inputs are there: Ray gives a task to a
worker that is idle, so processes are reused and torch is imported once in each. As many tasks run at once as there is
room for, and none is started before: a step that waits holds nothing.
"""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import ray

from midmask.backend import pool
from midmask.backend.channel import Channel
from midmask.backend.cluster import Resources
from midmask.backend.pool import run_sharded
from midmask.backend.ray_data import read_by_workers
from midmask.backend.worker_group import train_on_ray
from midmask.corpora.assemble import assemble
from midmask.experiment.events import Begun, Ended, Failed, Logged, Observer, StepEvent, TimeIsUp
from midmask.experiment.graph import Graph, Step
from midmask.experiment.kinds import KINDS, LOCAL, StepKind
from midmask.experiment.run import Maker, Runner
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.store.sharded import Sharded
from midmask.training.run import Log

POOLED: Mapping[str, Callable[..., dict[str, Any]]] = {
    "encode": pool.encode,
    "search": pool.search,
    "bm25": pool.rank_with_bm25,
}
"""Steps that run on a pool of actors -> what computes them there."""


def makers_of(use: Resources) -> Mapping[str, Maker]:
    """Step name -> what computes it within a trial: a function of this process, or workers and actors of its own."""
    return LOCAL if use.trains_in == "process" else cluster_makers(use.processes, side_by_side=use.side_by_side)


def cluster_makers(workers: int, *, side_by_side: int = 1) -> dict[str, Maker]:
    """Step name -> who computes it on this cluster.

    Args:
        workers: training workers, and actors that encode and search.
        side_by_side: trainings that share the cluster.
    """
    use_gpu = int(ray.cluster_resources().get("GPU", 0)) > 0
    train = partial(train_on_ray, workers=workers, side_by_side=side_by_side, use_gpu=use_gpu)
    return {kind.name: _maker_of(kind, workers, train) for kind in KINDS.values()}


def _maker_of(kind: StepKind, workers: int, train: Callable[..., dict[str, Any]]) -> Maker:
    def run(config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
        match kind.runs:
            case "group":
                assert kind.setup is not None, kind.name
                return train(kind.setup(config, inputs), out, log=log)
            case "shards":
                assert isinstance(kind.compute, Sharded), kind.name
                return run_sharded(kind.compute, config, inputs, out, actors=workers)
            case "stream":
                return assemble(config, out, read_by_workers)
            case "actors":
                return POOLED[kind.name](config, inputs, out, actors=workers)
            case "task" | "threads":
                return _run_as_task(kind, config, inputs, out)
        return kind.make(config, inputs, out, log=log)

    return run


def _run_as_task(kind: StepKind, config: Any, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """Runs the one-process step on some node of the cluster, with a CPU for each of its threads; its inputs travel as
    places, not as data. More threads than a node has CPUs are refused; Ray would wait without a word.
    """
    cpus = config.threads if kind.runs == "threads" else 1
    if kind.runs == "threads":
        pool.refuse_unschedulable(1, cpus)
    # Without a strategy of its own it would have to fit into a trial's placement group, which holds no CPU.
    task = ray.remote(num_cpus=cpus, scheduling_strategy="SPREAD")(kind.compute)
    result: dict[str, Any] = ray.get(task.remote(config, dict(inputs), out))
    return result


EVERY_S = 1.0
"""Seconds between two looks at what running steps report."""


def execute(
    graph: Graph,
    storage: Place,
    use: Resources,
    observer: Observer,
    *,
    keep_going: bool = False,
    until: float = math.inf,
) -> None:
    """Runs all unfinished steps of the graph. Steps that were finished before are not reported: see `report_finished`.

    Args:
        use: what a step that trains or encodes may use, and how many of these run at once.
        keep_going: whether steps that do not need a failed one are still run. Else the first failure is raised.
        until: of `time.monotonic`. Then what runs is reported as failed by `TimeIsUp`, and the rest stays in the graph.
    """
    runner = Runner(storage, cluster_makers(use.side_by_side * use.processes), observer)
    runner.compute_until(graph, until, lambda step: use.alone or step.kind.whole_collection, keep_going=keep_going)
    if graph.unfinished and time.monotonic() < until:
        runner.refuse_unlearnable(graph, keep_going=keep_going)
        with Channel.open() as channel:
            _Tasks(graph, storage, use, observer, channel).run(until, keep_going=keep_going)


class Lane(NamedTuple):
    """Steps of which so many run at once as tasks. One whose step runs on workers and actors of its own holds nothing
    itself.
    """

    width: int
    use: Resources
    on_device: bool | None = None  # its steps; none: all

    def takes(self, step: Step) -> bool:
        return self.on_device in (None, step.kind.on_device)


def _lanes(use: Resources) -> list[Lane]:
    """Two lanes where trainings have GPUs or several workers: others go beside them, each on a CPU that is left."""
    if use.trains_in == "process":
        return [Lane(use.side_by_side, use)]
    spare = max(1, int(ray.cluster_resources().get("CPU", 0) - use.side_by_side * use.processes * use.cpus))
    return [Lane(use.side_by_side, use, True), Lane(spare, Resources(1, 0, spare), False)]


class _Tasks:
    """Runs the steps of a graph as tasks of Ray, each when its inputs are there and its lane has room."""

    def __init__(self, graph: Graph, storage: Place, use: Resources, observer: Observer, channel: Channel) -> None:
        self._graph, self._storage, self._observer, self._channel = graph, storage, observer, channel
        self._lanes, self._task = _lanes(use), ray.remote(max_retries=2, max_calls=0)(_make)
        self._running: dict[Any, Step] = {}

    def run(self, until: float, *, keep_going: bool) -> None:
        while self._graph.unfinished:
            if time.monotonic() >= until:
                for task, step in self._running.items():
                    ray.cancel(task, force=True)
                    self._observer(Failed(step, TimeIsUp(f"{step.name}: the time was up"), self._graph.fail(step)))
                return
            for lane in self._lanes:
                self._fill(lane)
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=EVERY_S)
            for event in self._channel.drain():
                if event.step.fingerprint in self._graph.unfinished:
                    self._observer(event)
            for task in done:
                self._end(task, self._running.pop(task), keep_going=keep_going)

    def _fill(self, lane: Lane) -> None:
        cpus, gpus = lane.use.held
        task = self._task.options(num_cpus=cpus, num_gpus=gpus)
        room = lane.width - sum(map(lane.takes, self._running.values()))
        for step in list(filter(lane.takes, self._graph.ready()))[:room]:
            self._graph.start(step)
            self._running[task.remote(step, self._storage, self._channel, lane.use)] = step
            self._observer(Begun(step))

    def _end(self, task: Any, step: Step, *, keep_going: bool) -> None:
        try:
            ray.get(task)
        except ray.exceptions.RayError as error:
            self._observer(Failed(step, error, self._graph.fail(step)))
            if not keep_going:
                raise
            return
        self._graph.end(step)
        self._observer(Ended(step, load(step.place(self._storage))))


def _make(step: Step, storage: Place, channel: Channel, use: Resources) -> None:
    """Runs the step from this worker; its inputs are finished. The driver tells the beginning and the end."""

    def tell(event: StepEvent) -> None:
        if isinstance(event, Logged):
            channel.push(event)

    Runner(storage, makers_of(use), tell).make(step)
