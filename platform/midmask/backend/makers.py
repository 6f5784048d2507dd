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
from midmask.experiment.kinds import KINDS, LOCAL, StepKind
from midmask.experiment.run import Maker
from midmask.sharded import Sharded
from midmask.training.run import Log

TWINS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "prepare": lambda config, inputs, out, actors: corpora.prepare(config, inputs, out),
    "encode": pool.encode,
    "search": pool.search,
    "bm25": pool.rank_with_bm25,
}
"""Steps that run as a stream or on a pool of actors -> what computes them there."""


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
            case "stream" | "actors":
                return TWINS[kind.name](config, inputs, out, actors=workers)
            case "task" | "threads":
                return _run_as_task(kind, config, inputs, out)
        return kind.make(config, inputs, out, log=log)

    return run


def _run_as_task(kind: StepKind, config: Any, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The one-process step on some node of the cluster, with a CPU for each of its threads; its inputs travel as
    places, not as data. More threads than a node has CPUs are refused; Ray would wait without a word.
    """
    cpus = config.threads if kind.runs == "threads" else 1
    if kind.runs == "threads":
        pool.refuse_unschedulable(1, cpus)
    # Without a strategy of its own it would have to fit into a trial's placement group, which holds no CPU.
    task = ray.remote(num_cpus=cpus, scheduling_strategy="SPREAD")(_make_kind)
    result: dict[str, Any] = ray.get(task.remote(kind.name, config, dict(inputs), out))
    return result


def _make_kind(name: str, config: Any, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    return KINDS[name].make(config, inputs, out, log=lambda at, values: None)
