"""How a cluster is divided among trainings that run side by side: trials of a sweep, cells of a benchmark."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray

from midmask.errors import UserError


@dataclass(frozen=True)
class Resources:
    """What one training may use. cpus, gpus: of each of its processes. side_by_side: trainings that run at once.
    workers: processes of a training; if more than one, it runs on Ray Train, and encoding and search on as many actors.
    """

    cpus: float
    gpus: float
    side_by_side: int
    workers: int = 1


def alive_nodes() -> list[Mapping[str, Any]]:
    """Those that `ray.nodes()` has and that still run."""
    return [node for node in ray.nodes() if node["Alive"]]


def whole(workers: int | None) -> Resources:
    """The cluster that this process is connected to, for one training at a time.

    Args:
        workers: its processes; none: one per GPU, or one where there is none.
    """
    gpus = int(ray.cluster_resources().get("GPU", 0))
    return Resources(cpus=1, gpus=1 if gpus else 0, side_by_side=1, workers=workers or max(1, gpus))


def share(trainings: int, asked: int | None, per_training: int | None) -> Resources:
    """As `resources`, of the cluster that this process is connected to."""
    return resources(ray.cluster_resources(), trainings, asked, per_training)


def resources(
    cluster: dict[str, float], trainings: int, asked: int | None, per_training: int | None = None
) -> Resources:
    """Each process on a GPU of its own, or on a CPU core where there is none.

    Args:
        trainings: how many there are at most.
        asked: trainings side by side; none: as many as there is room for.
        per_training: processes of each; none: one, and more only where there are more GPUs than trainings that could
            use them. On CPUs several processes are slower than one with the same cores.

    Raises:
        UserError: if these could never be scheduled together, with the sum.
    """
    gpus, cpus = int(cluster.get("GPU", 0)), int(cluster.get("CPU", 0))
    workers = per_training or max(1, gpus // (asked or max(1, trainings)))
    room, kind = gpus or cpus, "GPU" if gpus else "CPU"
    if workers > room:
        raise UserError(
            f"--workers-per-training {workers}: a training needs {workers} {kind}s, the cluster has {room}. "
            f"Type --workers-per-training {room} or fewer."
        )
    together = asked or room // workers
    if together * workers > room:
        each = f" of {workers} processes" if workers > 1 else ""
        raise UserError(
            f"--workers {together}: {together} trainings{each} need {together * workers} {kind}s together, the cluster "
            f"has {room}. Type --workers {room // workers} or fewer."
        )
    own = 1 if not gpus else max(1, cpus // (gpus + 1))
    return Resources(cpus=own, gpus=1 if gpus else 0, side_by_side=together, workers=workers)
