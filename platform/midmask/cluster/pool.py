"""Mining with a pool of actors: each holds one shard of the corpus; the files are those that a single process writes.

Actors do the units of `retrieve.search`: they encode the passage blocks of their shard (or load those on storage),
build its index and search it, a block of queries at a time, each result a file on storage. So nothing large passes
through the driver, an actor that dies is made again and finds its vectors, and a mining job that was killed goes on.
Everything is reached through the Places of the search; no node needs another's disk.
"""

import contextlib
import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import ray
from ray.exceptions import RayTaskError

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.retrieve.mine import MineConfig, finish, search_of
from midmask.retrieve.search import ShardWorker, SplitSearch

log = logging.getLogger(__name__)

RESTARTS = 5
"""Deaths of one actor, and repeats of one call, after which mining fails."""

IN_FLIGHT = 2
"""Calls that wait at an actor: one runs, one is ready."""

Unit = tuple[str, int]
"""Method of ShardWorker and the block it is called with."""


def mine(
    config: MineConfig, inputs: Mapping[str, Artifact], out: Place, *, actors: int | None = None
) -> dict[str, Any]:
    """The distributed twin of `retrieve.mine.mine`: same inputs, same files, whatever the number of actors.

    Args:
        actors: instead of `config.actors`. A corpus of fewer blocks gets fewer actors.

    Raises:
        UserError: as the one-process step, and for actors that the cluster has no room for, with the sum.
    """
    search = search_of(config, inputs, out)
    shards = search.shards(actors or config.actors)
    refuse_unschedulable(len(shards), config.threads)
    return finish(config, inputs, search, lambda: _run(search, shards))


def refuse_unschedulable(actors: int, threads: int) -> None:
    """Asks for `threads` CPUs on one node for each actor.

    Raises:
        UserError: stating what is asked and what there is, where the actors could never all start.
    """
    cpus = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    fitting = sum(count // threads for count in cpus)
    if fitting < actors:
        raise UserError(
            f"actors = {actors}, threads = {threads}: {actors} x {threads} = {actors * threads} CPUs are asked for, "
            f"but the cluster has {' + '.join(map(str, cpus))} = {sum(cpus)}, room for {fitting} such actors; "
            f"set actors = {max(fitting, 1)}, or start more nodes"
        )
    free = int(ray.available_resources().get("CPU", 0))
    if free < actors * threads:
        log.warning("%d CPUs are asked for, %d are free now; the pool waits for the rest", actors * threads, free)


def _run(search: SplitSearch, shards: Sequence[range]) -> Iterator[pa.Table]:
    """All units, dealt out to one actor per shard; yields the ranked list, one query block after the other."""
    query_blocks = search.select()
    encoding: list[list[Unit]] = [[("encode_block", block) for block in shard] for shard in shards]
    for block in range(query_blocks):
        encoding[block % len(shards)].append(("encode_queries", block))
    searching: list[list[Unit]] = [[("search", block) for block in range(query_blocks)] for _ in shards]
    with _pool(search, shards) as actors:
        made = _deal(actors, encoding)
        log.info("%d of %d blocks were not there and have been encoded", made, sum(map(len, encoding)))
        _deal(actors, searching)
    yield from search.merged(shards, query_blocks)


@contextlib.contextmanager
def _pool(search: SplitSearch, shards: Sequence[range]) -> Iterator[list[Any]]:
    """One actor per shard, spread over the nodes, each with its own CPUs; all are ended with the block."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    options: dict[str, Any] = {
        "num_cpus": search.threads,
        "num_gpus": 1 / math.ceil(len(shards) / gpus) if gpus else 0,
        "max_restarts": RESTARTS,
        "max_task_retries": RESTARTS,
        "scheduling_strategy": "SPREAD",
    }
    worker = ray.remote(ShardWorker).options(**options)
    actors = [worker.remote(search, shard) for shard in shards]
    try:
        yield actors
    finally:
        for actor in actors:
            ray.kill(actor)


def _deal(actors: Sequence[Any], units: Sequence[Sequence[Unit]]) -> int:
    """Has every actor do its units in order, few at a time; returns the sum of what they return."""
    waiting = [deque(own) for own in units]
    running: dict[Any, int] = {}
    total = 0

    def feed(number: int) -> None:
        method, block = waiting[number].popleft()
        running[getattr(actors[number], method).remote(block)] = number

    for number, queue in enumerate(waiting):
        for _ in range(min(IN_FLIGHT, len(queue))):
            feed(number)
    while running:
        (done,), _ = ray.wait(list(running), num_returns=1)
        number = running.pop(done)
        total += _result(done)
        if waiting[number]:
            feed(number)
    return total


def _result(done: Any) -> int:
    try:
        return int(ray.get(done))
    except RayTaskError as error:
        # A user's mistake stays one line; Ray would wrap it in the worker's traceback.
        if isinstance(error.cause, UserError):
            raise error.cause from None
        raise
