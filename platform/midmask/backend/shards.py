"""Steps that work shard by shard, on the cluster: tasks of Ray Data make the shards that are missing, or actors where a
worker loads much.

Each shard is written to the storage by the worker that made it; only names pass through the driver. The actors are our
own: those of Ray Data end when nothing refers to them, but after a failure the logged error still does, and the next
training would wait for their CPUs without end.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import ray
import ray.data

from midmask.artifact import Artifact, Place
from midmask.backend.pool import actor_pool, deal, refuse_unschedulable
from midmask.errors import UserError
from midmask.identity import Config
from midmask.sharded import Inputs, Sharded

log = logging.getLogger(__name__)


def run_sharded(step: Sharded, config: Config, inputs: Inputs, out: Place, *, actors: int) -> dict[str, Any]:
    """The same files as the step's one-process form. Shards that a killed run has written are not made again.

    Args:
        actors: workers that are kept, for a step whose workers load much; others are tasks, as many as fit.

    Raises:
        UserError: as the step does.
    """
    step.begin(config, inputs, out)
    if missing := step.missing(inputs, out):
        work = (step, config, dict(inputs), out)
        if step.stays(config):
            _make_with_actors(work, missing, actors)
        else:
            _make_with_tasks(work, missing)
    return step.finish(config, inputs, out)


Work = tuple[Sharded, Config, dict[str, Artifact], Place]
"""Step, config, inputs and where the shards are written."""


def _make_with_actors(work: Work, names: list[str], actors: int) -> None:
    count = min(actors, len(names))
    refuse_unschedulable(count, 1)
    units = deque(range(len(names)))
    with actor_pool(ShardWorker, [(work, names)] * count, 1) as pool:
        for number, _ in deal([actor.make for actor in pool], [units] * count):
            log.info("%s is made", names[number])


class ShardWorker:
    """An actor that opens the step's worker once and makes many shards with it."""

    def __init__(self, work: Work, names: list[str]) -> None:
        self._work, self._names = work, names
        self._make: Callable[[str], None] | None = None

    def make(self, number: int) -> int:
        """Makes the shard of this number and returns it. The first one opens the worker: an error while an actor is
        made would come back as a traceback alone.
        """
        step, config, inputs, out = self._work
        self._make = self._make or step.worker(config, inputs, out)
        self._make(self._names[number])
        return number


def _make_with_tasks(work: Work, names: list[str]) -> None:
    shards = ray.data.from_items([{"shard": name} for name in names], override_num_blocks=len(names))
    shards.context.enable_progress_bars = False
    shards.context.raise_original_map_exception = True  # else its kind is lost on the way
    try:
        shards.map(_make, fn_args=work).materialize()
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            # Ray Data appends advice about retries to a task's error.
            raise UserError(str(error.cause).split("\n", 1)[0]) from None
        raise


def _make(row: dict[str, str], step: Sharded, config: Config, inputs: Inputs, out: Place) -> dict[str, str]:
    step.worker(config, inputs, out)(row["shard"])
    return row
