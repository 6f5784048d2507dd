"""How a cluster is divided among trainings that run side by side: trials of a sweep, cells of a benchmark."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import ray

from midmask.errors import UserError

Executor = Literal["process", "ray train"]


@dataclass(frozen=True)
class Resources:
    """What one training may use."""

    # Of each of its processes.
    cpus: float
    gpus: float
    # Trainings that run at once.
    side_by_side: int
    # Processes of a training; also actors that encode and search for it.
    workers: int = 1
    # It has the whole cluster, and is started by the job's own process, which trains nothing itself.
    alone: bool = False

    @property
    def executor(self) -> Executor:
        """Where trainings run, decided here for recipes, sweeps and benchmarks: as a group of Ray Train's workers, fed
        by Ray Data, with encoding, search and mining on actors; or, without a GPU, one worker in the process that runs
        all steps of a trial. A group takes 20 to 40 s to start on two busy cores.
        """
        return "process" if self.workers == 1 and not self.gpus and not self.alone else "ray train"

    @property
    def held(self) -> tuple[float, float]:
        """CPUs and GPUs of the process that runs a trial's steps: none where workers and actors hold their own."""
        return (self.cpus, self.gpus) if self.executor == "process" else (0, 0)


def alive_nodes() -> list[Mapping[str, Any]]:
    """Those that `ray.nodes()` has and that still run."""
    return [node for node in ray.nodes() if node["Alive"]]


def whole(workers: int | None) -> Resources:
    """The cluster that this process is connected to, for one training at a time.

    Args:
        workers: its processes; none: one per GPU, or one where there is none.
    """
    gpus = int(ray.cluster_resources().get("GPU", 0))
    return Resources(cpus=1, gpus=1 if gpus else 0, side_by_side=1, workers=workers or max(1, gpus), alone=True)


def share(trainings: int, asked: int | None, per_training: int | None) -> Resources:
    """As `resources`, of the cluster that this process is connected to; a single training at a time is alone."""
    use = resources(ray.cluster_resources(), trainings, asked, per_training)
    return replace(use, alone=use.side_by_side == 1)


def share_among_trials(trainings: int, asked: int | None, per_training: int | None) -> Resources:
    """As `share`, for the trials of a search, each of which has a process that runs its steps."""
    return replace(share(trainings, asked, per_training), alone=False)


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
