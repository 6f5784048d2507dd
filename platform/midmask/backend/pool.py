"""Encoding, search and steps that work shard by shard on a cluster, with the files that one process would write.

To encode, any actor takes the next block. To search, each holds one shard of the corpus: it maps the vectors of its
passages, or the words, builds the index of vectors and searches it, a block of queries at a time. Each result is a file
on storage, reached through Places. So nothing large passes through the driver, no node needs another's disk, an actor
that dies is made again and finds what it had done, and a job that was killed goes on.

Of other steps that work shard by shard, a task makes a shard that is missing, or many where a worker loads much.
"""

import contextlib
import logging
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import ray
from ray.exceptions import RayTaskError

from midmask.backend.cluster import alive_nodes
from midmask.core.config import Config
from midmask.errors import UserError
from midmask.retrieve.bm25.search import Bm25Config, Bm25Search
from midmask.retrieve.encode import Encode, EncodeConfig
from midmask.retrieve.search import Search, SearchConfig
from midmask.retrieve.units import SearchWorker, UnitSearch
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded

log = logging.getLogger(__name__)

RESTARTS = 5
"""Deaths of one actor, and repeats of one call, after which the step fails."""

IN_FLIGHT = 2
"""Calls that wait at an actor: one runs, one is ready."""


def encode(config: EncodeConfig, inputs: Mapping[str, Artifact], out: Place, *, actors: int) -> dict[str, Any]:
    """The distributed twin of `retrieve.encode.encode`: same inputs, same files, whatever the number of actors; fewer
    blocks get fewer actors.
    """
    work = Encode(config, inputs, out)
    blocks = work.begin()
    count = min(actors, blocks)
    refuse_unschedulable(count, config.threads)
    units = deque(range(blocks))
    with actor_pool(Encode, [(config, inputs, out)] * count, config.threads) as pool:
        made = sum(result for _, result in deal([actor.encode for actor in pool], [units] * count))
    log.info("encoded %d of %d blocks of %s (%d were stored already)", made, blocks, config.side, blocks - made)
    return work.finish()


def search(config: SearchConfig, inputs: Mapping[str, Artifact], out: Place, *, actors: int) -> dict[str, Any]:
    """The distributed twin of `retrieve.search.search`."""
    return _search(Search(config, inputs, out), actors, config.threads, on_gpu=True)


def rank_with_bm25(config: Bm25Config, inputs: Mapping[str, Artifact], out: Place, *, actors: int) -> dict[str, Any]:
    """The distributed twin of `rank_with_bm25` in `retrieve`, with an actor on a CPU for some of the index's shards."""
    return _search(Bm25Search(config, inputs, out), actors, 1, on_gpu=False)


def _search(work: UnitSearch, actors: int, threads: int, *, on_gpu: bool) -> dict[str, Any]:
    """One actor for each shard of the corpus; where there is one shard, as of an index of vectors, every actor holds
    all of it, and takes the next block of queries. Fewer blocks get fewer actors.
    """
    blocks = work.begin()
    shards = work.shards(actors)
    holders, queues = shards, [deque(range(blocks)) for _ in shards]
    if len(shards) == 1:
        holders, queues = shards * min(actors, blocks), queues * min(actors, blocks)
    refuse_unschedulable(len(holders), threads)
    with actor_pool(SearchWorker, [(work, shard) for shard in holders], threads, on_gpu=on_gpu) as pool:
        dealt = deal([actor.search for actor in pool], queues)
        return work.finish(shards, met_by_all(dealt, len(shards)))


def refuse_unschedulable(actors: int, threads: int) -> None:
    """Asks for `threads` CPUs on one node for each actor.

    Raises:
        UserError: stating what is asked and what there is, where the actors could never all start.
    """
    cpus = [int(node["Resources"].get("CPU", 0)) for node in alive_nodes()]
    fitting = sum(count // threads for count in cpus)
    if fitting < actors:
        raise UserError(
            f"actors = {actors}, threads = {threads}: {actors} x {threads} = {actors * threads} CPUs are asked for, "
            f"but the cluster has {' + '.join(map(str, cpus))} = {sum(cpus)}, room for {fitting} such actors; "
            "lower --workers or threads, or start more nodes"
        )
    free = int(ray.available_resources().get("CPU", 0))
    if free < actors * threads:
        _warn_of_waiting(actors * threads, free)


@cache
def _warn_of_waiting(cpus: int, free: int) -> None:
    """Once for the same numbers: on one core, every pool of a job waits for the one before it."""
    log.warning("%d CPUs are asked for, %d are free now; the pool waits for the rest", cpus, free)


@contextlib.contextmanager
def actor_pool(
    worker: type, arguments: Sequence[tuple[Any, ...]], threads: int, *, on_gpu: bool = True
) -> Iterator[list[Any]]:
    """An actor for each tuple of arguments, spread over the nodes, each with its own CPUs; all are ended with the
    block.

    Args:
        on_gpu: whether they share the cluster's GPUs, if it has any.
    """
    options: dict[str, Any] = {
        "num_cpus": threads,
        "num_gpus": share_of_gpu(len(arguments)) if on_gpu else 0,
        "max_restarts": RESTARTS,
        "max_task_retries": RESTARTS,
        "scheduling_strategy": "SPREAD",
    }
    actor_class = ray.remote(worker).options(**options)
    actors = [actor_class.remote(*actor_arguments) for actor_arguments in arguments]
    try:
        yield actors
    finally:
        for actor in actors:
            ray.kill(actor)


def share_of_gpu(processes: int) -> float:
    """The part of a GPU that each of some processes has, where they share the cluster's; 0 if it has none."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    return 1 / math.ceil(processes / gpus) if gpus else 0


def deal(methods: Sequence[Any], queues: Sequence[deque[int]]) -> Iterator[tuple[int, int]]:
    """Calls every actor's method with the blocks of its queue in order, few at a time; yields block and result of each
    call when it is done. Actors may share one queue: then the next free actor gets the next block.
    """
    running: dict[Any, tuple[int, int]] = {}

    def feed(number: int) -> None:
        if queues[number]:
            block = queues[number].popleft()
            running[methods[number].remote(block)] = (number, block)

    for _ in range(IN_FLIGHT):
        for number in range(len(methods)):
            feed(number)
    while running:
        (done,), _ = ray.wait(list(running), num_returns=1)
        number, block = running.pop(done)
        result = _result(done)
        feed(number)
        yield block, result


def met_by_all(dealt: Iterable[tuple[int, int]], actors: int) -> Iterator[int]:
    """Yields blocks 0, 1, … each when all actors are done with it; these go on meanwhile."""
    seen: Counter[int] = Counter()
    following = 0
    for block, _ in dealt:
        seen[block] += 1
        while seen[following] == actors:
            yield following
            following += 1


def _result(done: Any) -> int:
    try:
        return int(ray.get(done))
    except RayTaskError as error:
        # A user's mistake stays one line; Ray would wrap it in the worker's traceback.
        if isinstance(error.cause, UserError):
            raise error.cause from None
        raise


def run_sharded(step: Sharded, config: Config, inputs: Inputs, out: Place, *, actors: int) -> dict[str, Any]:
    """Runs a step shard by shard, with the files that one process would write; skips shards already written.

    Args:
        actors: tasks among which the shards are divided, if a worker of the step loads much; else a task makes one
            shard, and as many run as fit.
    """
    step.begin(config, inputs, out)
    names = step.missing(inputs, out)
    count, gpus = len(names), 0.0
    if names and step.stays(config):
        count = min(actors, count)
        refuse_unschedulable(count, 1)
        gpus = share_of_gpu(count)
    task = ray.remote(max_retries=RESTARTS, num_gpus=gpus, scheduling_strategy="SPREAD")(_make_shards)
    running = [task.remote(step, config, dict(inputs), out, names[number::count]) for number in range(count)]
    try:
        while running:
            (done,), running = ray.wait(running)
            _result(done)
    finally:
        for left in running:
            ray.cancel(left)
    return step.finish(config, inputs, out)


def _make_shards(step: Sharded, config: Config, inputs: Inputs, out: Place, names: Sequence[str]) -> int:
    """Makes some shards, but for those that a task that died has made; how many it made."""
    missing = [name for name in names if not step.shard(out, name).exists()]
    step.make(config, inputs, out, missing)
    return len(missing)
