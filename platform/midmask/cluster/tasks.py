"""Runs a graph of steps: every step is a Ray task of its own, in one process, started when its inputs are there.

Ray gives a task to a worker that is idle, so processes are reused and torch is imported once in each. As many tasks run
at once as there is room for, and none is started before: a step that waits holds nothing.
"""

import logging
from typing import Any, Protocol

import ray

from midmask.artifact import Place
from midmask.cluster.channel import Channel, Drain
from midmask.cluster.graph import Graph
from midmask.cluster.post import Row
from midmask.cluster.search import Resources
from midmask.recipes.costs import ON_DEVICE
from midmask.recipes.run import Runner, Silent
from midmask.recipes.step import Step
from midmask.steps import LOCAL

log = logging.getLogger(__name__)

EVERY_S = 1.0
"""Seconds between two looks at what running steps report."""


class Watch(Protocol):
    """Hears what happens, in the driver's own thread; all reports of a step come before its end."""

    def started(self, step: Step) -> None: ...

    def reported(self, fingerprint: str, row: Row) -> None: ...

    def ended(self, step: Step) -> None: ...

    def failed(self, step: Step, error: Exception, lost: list[Step]) -> None: ...


class Reports(Silent):
    """Sends a training's reports to the driver."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        self._channel.push(step.fingerprint, [{"at": at, "values": values}])


class Lane:
    """Tasks of one kind: what each of them holds, and how many run at once."""

    def __init__(self, width: int, cpus: float, gpus: float) -> None:
        self.width = width
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=2, max_calls=0)(_make)
        self.running: dict[Any, Step] = {}

    def fill(self, graph: Graph, ready: list[Step], storage: Place, channel: Channel, watch: Watch) -> None:
        for step in ready[: self.width - len(self.running)]:
            graph.start(step)
            self.running[self._task.remote(step, storage, channel)] = step
            watch.started(step)


def run_tasks(graph: Graph, storage: Place, use: Resources, watch: Watch) -> None:
    """Runs all that is left of the graph. What fails is told to `watch`, and so is what is lost with it; all else is
    run.

    Args:
        use: what a task that trains or encodes holds, and how many of these run at once.
    """
    with Channel.open() as channel:
        _run_lanes(_lanes(use), graph, storage, channel, watch)


def _run_lanes(lanes: dict[bool, Lane], graph: Graph, storage: Place, channel: Drain, watch: Watch) -> None:
    while graph.left:
        ready = graph.ready()
        for on_device, lane in lanes.items():
            own = [step for step in ready if (step.name in ON_DEVICE) == on_device or len(lanes) == 1]
            lane.fill(graph, own, storage, channel, watch)
        running = {task: step for lane in lanes.values() for task, step in lane.running.items()}
        done, _ = ray.wait(list(running), num_returns=1, timeout=EVERY_S)
        for source, row in channel.drain():
            watch.reported(source, row)
        for task in done:
            for lane in lanes.values():
                lane.running.pop(task, None)
            _end(graph, running[task], task, watch)


def _lanes(use: Resources) -> dict[bool, Lane]:
    """With GPUs, two: steps that need none go beside, on the CPUs that are left."""
    if not use.gpus:
        return {True: Lane(use.trials, use.cpus, 0)}
    spare = int(ray.cluster_resources().get("CPU", 0) - use.trials * use.cpus)
    return {True: Lane(use.trials, use.cpus, use.gpus), False: Lane(max(1, spare), 1, 0)}


def _end(graph: Graph, step: Step, task: Any, watch: Watch) -> None:
    try:
        ray.get(task)
    except ray.exceptions.RayError as error:
        watch.failed(step, error, graph.fail(step))
        return
    graph.end(step)
    watch.ended(step)


def _make(step: Step, storage: Place, channel: Channel) -> None:
    """Runs the step in this worker; its inputs are finished."""
    Runner(storage, LOCAL, Reports(channel)).run(step)
