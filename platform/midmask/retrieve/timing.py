"""How long searches take beside each other: all of them in one process, in turn, with the same queries.

Seconds that each search measures by itself, at other times and beside other work, are no comparison of indexes.
"""

import statistics
import time
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from midmask.artifact import Artifact, Place
from midmask.identity import Config, runtime
from midmask.retrieve.search import Search, SearchConfig, SearchWorker
from midmask.retrieve.shards import search_shard
from midmask.retrieve.views import read_views


class TimingConfig(Config):
    """Which searches are timed, and how often."""

    searches: tuple[SearchConfig, ...] = Field(min_length=1, description="settings of each search")
    rounds: int = Field(5, ge=1, description="times that each search is timed, after one that warms its memory")
    threads: int = runtime(1, "threads of each search", ge=1)


def time_searches(config: TimingConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: passages (encoded), queries (a sample, encoded, in one block), tokens, and `indexN` for each
    search number N that is not exact.

    Returns:
        queries, rounds, milliseconds (number of the search -> its milliseconds for each query, all of them in one
        batch: the median over rounds), seconds.
    """
    started = time.perf_counter()
    searches = [_open(number, config, inputs, out) for number in range(len(config.searches))]
    (block,) = searches[0].work.query_blocks
    stored = read_views(inputs["queries"].place, block.name, searches[0].work.views)
    seconds: list[list[float]] = [[] for _ in searches]
    for _ in range(1 + config.rounds):
        for own, worker in zip(seconds, searches, strict=True):
            views, depth = worker.work.narrowed(stored), worker.work.config.depth
            began = time.perf_counter()
            search_shard(worker.shard, views, depth)
            own.append(time.perf_counter() - began)
    medians = [1000 * statistics.median(own[1:]) / block.rows for own in seconds]
    return {
        "queries": block.rows,
        "rounds": config.rounds,
        "milliseconds": {str(number): round(median, 6) for number, median in enumerate(medians)},
        "seconds": round(time.perf_counter() - started, 3),
    }


def _open(number: int, config: TimingConfig, inputs: Mapping[str, Artifact], out: Place) -> SearchWorker:
    """A search with its passages and its index open."""
    given = {name: inputs[name] for name in ("passages", "queries", "tokens")}
    if f"index{number}" in inputs:
        given["index"] = inputs[f"index{number}"]
    work = Search(config.searches[number].model_copy(update={"threads": config.threads}), given, out)
    worker = SearchWorker(work, range(len(work.blocks)))
    _ = worker.shard  # a cached property, which is opened here, before anything is timed
    return worker
