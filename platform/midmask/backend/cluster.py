"""The cluster: joined, or a local Ray started where none runs; and how trainings divide it.

Trainings that run side by side are the trials of a sweep and the cells of a benchmark.
"""

import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import ray
from ray._private.services import find_bootstrap_address
from ray.exceptions import AuthenticationError

from midmask.core.process import ALLOW_DOWNLOAD, is_on, usable_cores, usable_memory
from midmask.errors import UserError

log = logging.getLogger(__name__)

ANSWERS_WITHIN_S = 10.0
"""Left alone, Ray looks for a dead cluster for minutes, and then ends the process."""

LARGEST_LOCAL_STORE = 2 * 2**30  # bytes; midmask passes large arrays by path, so more would lie idle


def quiet_ray_data() -> None:
    """Ray Data in this process logs no dataset's plan and progress, nor that its bars are off, as they are."""
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)


def connect() -> None:
    """Connects this process to Ray: RAY_ADDRESS (as in `ray job submit`), else this machine's cluster, else a new one.

    Raises:
        UserError: if the cluster does not answer, refuses the token, or runs another version of Ray or Python.
    """
    quiet_ray_data()
    if ray.is_initialized():
        return
    on_sigterm = signal.getsignal(signal.SIGTERM)
    address = _running_cluster()
    if address is None:
        _start()
    else:
        _join(address)
    if threading.current_thread() is threading.main_thread() and callable(on_sigterm):
        signal.signal(signal.SIGTERM, on_sigterm)  # ray.init replaces it


def _running_cluster() -> str | None:
    """Address of the cluster in RAY_ADDRESS, else of the one last started on this machine with `ray start`, if it still
    answers.
    """
    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("http"):
        raise UserError(
            f"RAY_ADDRESS = {address!r} is a job server. Submit the job to it (`ray job submit -- jobs/NAME.py`), or "
            "set RAY_ADDRESS=HOST:6379 to run the driver here, or unset it."
        )
    if address in ("", "auto", "local"):
        started = None if address == "local" else find_bootstrap_address(None)
        return started if started and _answers(started) else None
    if not _answers(address):
        raise UserError(
            f"no Ray cluster answers at RAY_ADDRESS = {address}. Start one with `ray start --head`, correct the "
            "address, or unset RAY_ADDRESS to use this machine."
        )
    return address


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def _join(address: str) -> None:
    try:
        # The cluster's workers have none of this process's environment
        ray.init(
            os.environ.get("RAY_ADDRESS") or "auto",  # Ray takes the token in the user's home for its own find alone
            logging_level=logging.WARNING,
            runtime_env={"env_vars": {ALLOW_DOWNLOAD: "1"}} if is_on(ALLOW_DOWNLOAD) else None,
        )
    except RuntimeError as error:  # other versions of Ray or Python
        raise UserError(f"cannot join the Ray cluster at {address}: {' '.join(str(error).split())}") from None
    except (ConnectionError, AuthenticationError) as error:
        raise UserError(
            f"cannot join the Ray cluster at {address}: {' '.join(str(error).split())}. If it was started with a "
            "token, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to that token."
        ) from None
    log.info("joined the Ray cluster at %s: %s", address, _size())


def _start() -> None:
    """A Ray of this process's own: its CPUs, no dashboard.

    Ray guards a local cluster by a token and would leave one in the user's home, after which every `ray start` demands
    it; a token of this process's own leaves no trace.

    Raises:
        UserError: if it does not start in time.
    """
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Beyond this number Ray ends idle workers after a second, by default beyond one a core: on one core, where the
    # training is that one, each of its read tasks would start a process of its own.
    os.environ.setdefault("RAY_num_workers_soft_limit", str(2 * usable_cores() + 1))
    # Ray's agents outlive a process that was killed by so many seconds, else by a minute
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
    try:
        ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=usable_cores(),
            object_store_memory=min(LARGEST_LOCAL_STORE, usable_memory() // 5),
            logging_level=logging.ERROR,
        )
    except OSError as error:
        if "AF_UNIX" not in str(error):
            raise
        raise UserError(
            f"the local Ray cannot make its sockets: the path {str(error).rpartition(': ')[2]} is too long for the "
            "system; set RAY_TMPDIR=/tmp, or another folder with a short path"
        ) from None
    except Exception as error:  # Ray raises no kind of its own
        if "timed out during startup" not in str(error):
            raise
        raise UserError(
            "the local Ray did not start within the 30 seconds that Ray waits: this machine is busy. Type the same "
            "command again when it is less so, or name a cluster in RAY_ADDRESS."
        ) from None
    log.info("no Ray cluster runs here; started a local one: %s", _size())


def _size() -> str:
    resources = ray.cluster_resources()
    return f"{resources.get('CPU', 0):g} CPUs, {resources.get('GPU', 0):g} GPUs"


Executor = Literal["process", "ray train"]


@dataclass(frozen=True)
class Resources:
    """CPUs, GPUs and processes that one training may use."""

    # Of each of its processes.
    cpus: float
    gpus: float
    # Trainings that run at once.
    side_by_side: int
    # Processes of a training; also actors that encode and search for it.
    processes: int = 1
    # It has the whole cluster, and is started by the job's own process, which trains nothing itself.
    alone: bool = False

    @property
    def trains_in(self) -> Executor:
        """Where trainings run, decided here for recipes, sweeps and benchmarks: as a group of Ray Train's workers, fed
        by Ray Data, with encoding, search and mining on actors; or, without a GPU, one worker in the process that runs
        all steps of a trial. A group takes 20 to 40 s to start on two busy cores.
        """
        return "process" if self.processes == 1 and not self.gpus and not self.alone else "ray train"

    @property
    def held(self) -> tuple[float, float]:
        """CPUs and GPUs of the process that runs a trial's steps: none where workers and actors hold their own."""
        return (self.cpus, self.gpus) if self.trains_in == "process" else (0, 0)


def alive_nodes() -> list[Mapping[str, Any]]:
    """The nodes of `ray.nodes()` that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


def whole(workers: int | None) -> Resources:
    """The cluster that this process is connected to, for one training at a time.

    Args:
        workers: its processes; none: one per GPU, or one where there is none.
    """
    gpus = int(ray.cluster_resources().get("GPU", 0))
    return Resources(cpus=1, gpus=1 if gpus else 0, side_by_side=1, processes=workers or max(1, gpus), alone=True)


def share_cluster(trainings: int, side_by_side: int | None, per_training: int | None) -> Resources:
    """Resources of trainings on the cluster that this process is connected to; one training at a time is alone."""
    use = resources(ray.cluster_resources(), trainings, side_by_side, per_training)
    return replace(use, alone=use.side_by_side == 1)


def share_among_trials(trainings: int, side_by_side: int | None, per_training: int | None) -> Resources:
    """Resources for the trials of a search, each of which has a process that runs its steps."""
    return replace(share_cluster(trainings, side_by_side, per_training), alone=False)


def resources(
    cluster: dict[str, float], trainings: int, side_by_side: int | None, per_training: int | None = None
) -> Resources:
    """Resources of trainings: each process has its own GPU, or its own CPU core if there are no GPUs.

    Args:
        trainings: how many there are at most.
        side_by_side: trainings at once; none: as many as there is room for.
        per_training: processes of each; none: one, and more only where there are more GPUs than trainings that could
            use them. On CPUs several processes are slower than one with the same cores.

    Raises:
        UserError: if these could never be scheduled together, with the sum.
    """
    gpus, cpus = int(cluster.get("GPU", 0)), int(cluster.get("CPU", 0))
    workers = per_training or max(1, gpus // (side_by_side or max(1, trainings)))
    room, kind = gpus or cpus, "GPU" if gpus else "CPU"
    if workers > room:
        raise UserError(
            f"--workers-per-training {workers}: a training needs {workers} {kind}s, the cluster has {room}. "
            f"Type --workers-per-training {room} or fewer."
        )
    together = side_by_side or room // workers
    if together * workers > room:
        each = f" of {workers} processes" if workers > 1 else ""
        raise UserError(
            f"--workers {together}: {together} trainings{each} need {together * workers} {kind}s together, the cluster "
            f"has {room}. Type --workers {room // workers} or fewer."
        )
    cpus_each = 1 if not gpus else max(1, cpus // (gpus + 1))
    return Resources(cpus=cpus_each, gpus=1 if gpus else 0, side_by_side=together, processes=workers)
