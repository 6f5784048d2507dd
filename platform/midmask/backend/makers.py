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
from midmask.sharded import Sharded
from midmask.teacher.given_scores import read_scores
from midmask.teacher.teach import teach_setup
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
    trained = partial(_trained, workers=workers, side_by_side=side_by_side, use_gpu=gpus > 0)
    return {
        "prepare": _silent(corpora.prepare),
        **{name: _shard_by_shard(step, workers) for name, step in steps.SHARDED.items()},
        "pretrain": trained(steps.pretrain_setup),
        "finetune": trained(steps.finetune_setup),
        "teach": trained(teach_setup),
        "encode": _silent(lambda config, inputs, out: pool.encode(config, inputs, out, actors=workers)),
        "search": _silent(lambda config, inputs, out: pool.search(config, inputs, out, actors=workers)),
        "initial": _silent(steps.initial),
        "adopt": _silent(steps.adopt),
        "untuned": _as_task("untuned"),
        "index": _as_task("index"),
        "bm25": _as_task("bm25"),
        "join": _as_task("join"),
        "read_tokens": _silent(read_tokens),
        "draw_queries": _silent(draw_queries),
        "read_negatives": _silent(read_negatives),
        "read_scores": _silent(read_scores),
        "mine": _as_task("mine"),
        "evaluate": _as_task("evaluate"),
    }


def _silent(make: Callable[[Any, Mapping[str, Artifact], Place], dict[str, Any]]) -> Maker:
    def run(config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
        return make(config, inputs, out)

    return run


def _shard_by_shard(step: Sharded, actors: int) -> Maker:
    return _silent(lambda config, inputs, out: run_sharded(step, config, inputs, out, actors=actors))


def _trained(
    setup_of: Callable[[Any, Mapping[str, Artifact]], TrainingSetup], *, workers: int, side_by_side: int, use_gpu: bool
) -> Maker:
    def run(config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
        setup = setup_of(config, inputs)
        return train_on_ray(setup, out, workers=workers, side_by_side=side_by_side, use_gpu=use_gpu, log=log)

    return run


def _as_task(name: str) -> Maker:
    """The one-process step on some node of the cluster; its inputs travel as places, not as data."""

    def run(config: Any, inputs: Mapping[str, Artifact], out: Place, *, log: Log) -> dict[str, Any]:
        # Without a strategy of its own it would have to fit into a trial's placement group, which holds no CPU.
        task = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(_step)
        result: dict[str, Any] = ray.get(task.remote(name, config, dict(inputs), out))
        return result

    return run


def _step(name: str, config: Any, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    return steps.LOCAL[name](config, inputs, out, log=lambda at, values: None)
