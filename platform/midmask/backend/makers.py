"""Where each step runs on a cluster: the distributed twin if it has one, else its one-process form as a Ray task."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ray

from midmask.artifact import Artifact, Place
from midmask.backend import pool
from midmask.backend import prepare as corpora
from midmask.backend.resources import Resources
from midmask.backend.shards import run_sharded
from midmask.backend.worker_group import train_on_ray
from midmask.derived.given_tokens import read_tokens
from midmask.experiment import steps
from midmask.experiment.run import Maker
from midmask.mining.given_negatives import read_negatives
from midmask.mining.query_subset import draw_queries
from midmask.queries.step import make_queries
from midmask.retrieve.run_file import read_run
from midmask.sharded import Sharded
from midmask.teacher.given_scores import read_scores
from midmask.training.run import Log
from midmask.training.setup import TrainingSetup


def makers_of(use: Resources) -> Mapping[str, Maker]:
    """Step name -> who computes it for one of several trainings side by side: this process, or workers and actors."""
    return steps.LOCAL if use.workers == 1 else cluster_makers(use.workers, side_by_side=use.side_by_side)


def cluster_makers(workers: int, *, side_by_side: int = 1) -> dict[str, Maker]:
    """Step name -> who computes it on this cluster.

    Args:
        workers: training workers, and actors that encode and search.
        side_by_side: trainings that share the cluster.
    """
    gpus = int(ray.cluster_resources().get("GPU", 0))
    trained = partial(_make_trainer, workers=workers, side_by_side=side_by_side, use_gpu=gpus > 0)
    return {
        "prepare": _ignore_log(corpora.prepare),
        **{name: _make_by_shards(step, workers) for name, step in steps.SHARDED.items()},
        **{name: trained(setup_of) for name, setup_of in steps.SETUPS.items()},
        "encode": _ignore_log(lambda config, inputs, out: pool.encode(config, inputs, out, actors=workers)),
        "search": _ignore_log(lambda config, inputs, out: pool.search(config, inputs, out, actors=workers)),
        "initial": _ignore_log(steps.initial),
        "adopt": _ignore_log(steps.adopt),
        "merge": _as_task("merge"),
        "untuned": _as_task("untuned"),
        "index": _as_task("index", threaded=True),
        "sample": _as_task("sample"),
        "search_sample": _as_task("search_sample"),
        "time_searches": _as_task("time_searches", threaded=True),
        "bm25": _ignore_log(lambda config, inputs, out: pool.rank_with_bm25(config, inputs, out, actors=workers)),
        "join": _as_task("join"),
        "read_tokens": _ignore_log(read_tokens),
        "list_pairs": _as_task("list_pairs"),
        "queries": _ignore_log(make_queries),
        "draw_queries": _ignore_log(draw_queries),
        "read_negatives": _ignore_log(read_negatives),
        "read_scores": _ignore_log(read_scores),
        "read_run": _ignore_log(read_run),
        "mine": _as_task("mine"),
        "fuse": _as_task("fuse"),
        "evaluate": _as_task("evaluate"),
    }


def _ignore_log(make: Callable[[Any, Mapping[str, Artifact], Place], dict[str, Any]]) -> Maker:
    def run(config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
        return make(config, inputs, out)

    return run


def _make_by_shards(step: Sharded, actors: int) -> Maker:
    return _ignore_log(lambda config, inputs, out: run_sharded(step, config, inputs, out, actors=actors))


def _make_trainer(
    setup_of: Callable[[Any, Mapping[str, Artifact]], TrainingSetup], *, workers: int, side_by_side: int, use_gpu: bool
) -> Maker:
    def run(config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
        setup = setup_of(config, inputs)
        return train_on_ray(setup, out, workers=workers, side_by_side=side_by_side, use_gpu=use_gpu, log=log)

    return run


def _as_task(name: str, *, threaded: bool = False) -> Maker:
    """The one-process step on some node of the cluster, with a CPU for each of its threads if it is `threaded`; its
    inputs travel as places, not as data. More threads than a node has CPUs are refused; Ray would wait without a word.
    """

    def run(config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
        cpus = config.threads if threaded else 1
        if threaded:
            pool.refuse_unschedulable(1, cpus)
        # Without a strategy of its own it would have to fit into a trial's placement group, which holds no CPU.
        task = ray.remote(num_cpus=cpus, scheduling_strategy="SPREAD")(_step)
        result: dict[str, Any] = ray.get(task.remote(name, config, dict(inputs), out))
        return result

    return run


def _step(name: str, config: Any, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    return steps.LOCAL[name](config, inputs, out, log=lambda at, values: None)
