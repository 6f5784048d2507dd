"""Steps that work shard by shard, on the cluster: Ray Data maps over the shards that are missing.

Each is written to the storage by the worker that made it; only names pass through the driver.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import ray
import ray.data
from ray.data import ActorPoolStrategy

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.identity import Config
from midmask.sharded import Inputs, Sharded


def run_sharded(step: Sharded, config: Config, inputs: Inputs, out: Place, *, actors: int) -> dict[str, Any]:
    """The same files as the step's one-process form. Shards that a killed run has written are not made again.

    Args:
        actors: workers that are kept, for a step whose workers load much; others are tasks, as many as fit.

    Raises:
        UserError: as the step does.
    """
    step.begin(config, inputs, out)
    if missing := step.missing(inputs, out):
        try:
            _make_shards(step, config, inputs, out, missing, actors).materialize()
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                # Ray Data appends advice about retries to a task's error.
                raise UserError(str(error.cause).split("\n", 1)[0]) from None
            raise
    return step.finish(config, inputs, out)


def _make_shards(step: Sharded, config: Config, inputs: Inputs, out: Place, names: list[str], actors: int) -> Any:
    shards = ray.data.from_items([{"shard": name} for name in names], override_num_blocks=len(names))
    shards.context.enable_progress_bars = False
    shards.context.raise_original_map_exception = True  # else its kind is lost on the way
    work = (step, config, dict(inputs), out)
    if not step.stays(config):
        return shards.map(_make, fn_args=work)
    pool = ActorPoolStrategy(size=min(actors, len(names)))
    gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
    return shards.map(_Worker, fn_constructor_args=work, compute=pool, num_cpus=1, num_gpus=gpus)


def _make(row: dict[str, str], step: Sharded, config: Config, inputs: Inputs, out: Place) -> dict[str, str]:
    step.worker(config, inputs, out)(row["shard"])
    return row


class _Worker:
    """An actor that opens the step's worker once and makes many shards with it.

    It is opened by the first shard: of an error while an actor is made, Ray gives the traceback alone.
    """

    def __init__(self, step: Sharded, config: Config, inputs: Inputs, out: Place) -> None:
        self._open = partial(step.worker, config, inputs, out)
        self._make: Callable[[str], None] | None = None

    def __call__(self, row: dict[str, str]) -> dict[str, str]:
        self._make = self._make or self._open()
        self._make(row["shard"])
        return row
