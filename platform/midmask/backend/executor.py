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
from typing import Any

import ray

from midmask.backend import pool, reading
from midmask.backend.channel import Channel
from midmask.backend.cluster import Resources
from midmask.backend.pool import run_sharded
from midmask.backend.worker_group import train_on_ray
from midmask.experiment.events import Begun, Ended, Failed, Logged, Observer, StepEvent, TimeIsUp, until_time_is_up
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
    """Step name -> who computes it for one of several trainings side by side: this process, or workers and actors."""
    return LOCAL if use.executor == "process" else cluster_makers(use.workers, side_by_side=use.side_by_side)


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
                return reading.prepare(config, inputs, out)
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
    runner = Runner(storage, cluster_makers(use.side_by_side * use.workers), until_time_is_up(observer, until))
    while time.monotonic() < until and (
        ready := [step for step in graph.ready() if use.alone or step.kind.whole_collection]
    ):
        try:
            runner.run_next(graph, ready[0])
        except TimeIsUp:
            return
        except Exception:
            if not keep_going:
                raise
    runner.refuse_unlearnable(graph, keep_going=keep_going)
    if graph.left and time.monotonic() < until:
        with Channel.open() as channel:
            _run_lanes(_make_lanes(use), graph, storage, channel, observer, keep_going=keep_going, until=until)


class Lane:
    """Tasks of one kind: what each of them holds, how many run at once, and what computes their steps.

    A task whose step runs on workers and actors of its own holds nothing itself.
    """

    def __init__(self, width: int, use: Resources) -> None:
        self.width = width
        self._use = use
        cpus, gpus = use.held
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=2, max_calls=0)(_make)
        self.running: dict[Any, Step] = {}

    def fill(self, graph: Graph, ready: list[Step], storage: Place, channel: Channel, observer: Observer) -> None:
        for step in ready[: self.width - len(self.running)]:
            graph.start(step)
            self.running[self._task.remote(step, storage, channel, self._use)] = step
            observer(Begun(step))


def _run_lanes(
    lanes: dict[bool, Lane],
    graph: Graph,
    storage: Place,
    channel: Channel,
    observer: Observer,
    *,
    keep_going: bool,
    until: float,
) -> None:
    while graph.left:
        if time.monotonic() >= until:
            _cancel(lanes, graph, observer)
            return
        ready = graph.ready()
        for on_device, lane in lanes.items():
            own = [step for step in ready if step.kind.on_device == on_device or len(lanes) == 1]
            lane.fill(graph, own, storage, channel, observer)
        running = {task: step for lane in lanes.values() for task, step in lane.running.items()}
        done, _ = ray.wait(list(running), num_returns=1, timeout=EVERY_S)
        for event in channel.drain():
            if event.step.fingerprint in graph.left:
                observer(event)
        for task in done:
            for lane in lanes.values():
                lane.running.pop(task, None)
            _end_step(graph, running[task], task, storage, observer, keep_going=keep_going)


def _cancel(lanes: dict[bool, Lane], graph: Graph, observer: Observer) -> None:
    for lane in lanes.values():
        for task, step in lane.running.items():
            ray.cancel(task, force=True)
            observer(Failed(step, TimeIsUp(f"{step.name}: the time was up"), graph.fail(step)))


def _make_lanes(use: Resources) -> dict[bool, Lane]:
    """Two lanes where trainings have GPUs or several workers: others go beside them, each on a CPU that is left."""
    if use.executor == "process":
        return {True: Lane(use.side_by_side, use)}
    spare = int(ray.cluster_resources().get("CPU", 0) - use.side_by_side * use.workers * use.cpus)
    return {True: Lane(use.side_by_side, use), False: Lane(max(1, spare), Resources(1, 0, max(1, spare)))}


def _end_step(graph: Graph, step: Step, task: Any, storage: Place, observer: Observer, *, keep_going: bool) -> None:
    try:
        ray.get(task)
    except ray.exceptions.RayError as error:
        observer(Failed(step, error, graph.fail(step)))
        if not keep_going:
            raise
        return
    graph.end(step)
    observer(Ended(step, load(step.place(storage))))


def _make(step: Step, storage: Place, channel: Channel, use: Resources) -> None:
    """Runs the step from this worker; its inputs are finished. The driver tells the beginning and the end."""

    def tell(event: StepEvent) -> None:
        if isinstance(event, Logged):
            channel.push(event)

    Runner(storage, makers_of(use), tell).make(step)
