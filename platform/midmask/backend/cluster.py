"""The cluster: joined, or a local Ray started and watched where none runs; and how trainings side by side divide it.

The kernel may end a local raylet for want of memory. Calls into a Ray without a raylet wait for ever, so a driver that
waits for a task or a training would hear nothing: the process ends with its own Ray. Trainings that run side by side
are the trials of a sweep and the cells of a benchmark.
"""

import atexit
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import grpc
import psutil
import ray
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
from ray._private.grpc_utils import init_grpc_channel
from ray._private.services import find_bootstrap_address
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

from midmask.backend.scratch import RAY, Scratch
from midmask.core.process import TRUST, same_command, usable_cores, usable_memory
from midmask.errors import UserError

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 10.0
OUTLIVED_BY_S = 10
"""How long Ray's agents look for the rest of a local Ray that was killed, before they end (Ray's default: a minute)."""

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
    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("http"):
        raise UserError(
            f"RAY_ADDRESS = {address!r} is a job server. Submit the job to it (`ray job submit -- jobs/NAME.py`), or "
            "set RAY_ADDRESS=HOST:6379 to run the driver here, or unset it."
        )
    on_sigterm = signal.getsignal(signal.SIGTERM)
    if address not in ("", "auto", "local"):
        _check(address)
        _join(address)
    elif address != "local" and (running := _find_running()):
        _check(running)
        _join(running)
    else:
        _start()
    if threading.current_thread() is threading.main_thread() and callable(on_sigterm):
        signal.signal(signal.SIGTERM, on_sigterm)  # ray.init replaces it


def _join(address: str) -> None:
    try:
        # finds the same address again; the cluster's workers have none of this process's environment
        ray.init(logging_level=logging.WARNING, runtime_env={"env_vars": _trust()} if _trust() else None)
    except (ConnectionError, RuntimeError) as error:  # RuntimeError: other versions of Ray or Python
        raise UserError(f"cannot join the Ray cluster at {address}: {' '.join(str(error).split())}") from None
    log.info("joined the Ray cluster at %s: %s", address, _size())


def _trust() -> dict[str, str]:
    """--verify and --allow-download, for the workers' environment; empty without them."""
    return {name: value for name, value in os.environ.items() if name in TRUST.values() and value}


def _find_running() -> str | None:
    """Address of the cluster last started on this machine with `ray start`, if it still answers."""
    address = find_bootstrap_address(None)
    if address is None:
        return None
    maybe_enable_token_auth_if_token_available(
        warn_if_disabled=False
    )  # as ray.init does for this machine's own cluster
    silent = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return None if _status(address) in silent else str(address)


def _check(address: str) -> None:
    status = _status(address)
    if status is grpc.StatusCode.UNAUTHENTICATED:
        raise UserError(
            f"the Ray cluster at {address} refuses this process's token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN "
            "or RAY_AUTH_TOKEN_PATH to the token that the cluster was started with."
        )
    if status is not grpc.StatusCode.OK:
        raise UserError(
            f"no Ray cluster answers at RAY_ADDRESS = {address} ({status.name.lower()}). Start one with "
            "`ray start --head`, correct the address, or unset RAY_ADDRESS to use this machine."
        )


def _status(address: str) -> grpc.StatusCode:
    """The head's answer to one 'are you there'. Left alone, ray.init asks for two minutes, with a warning each time."""
    with init_grpc_channel(address) as channel:
        stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        try:
            stub.CheckAlive(gcs_service_pb2.CheckAliveRequest(), timeout=ANSWER_WITHIN_S)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def _start() -> None:
    """A Ray of this process's own: its CPUs, no dashboard, its files in a private folder that goes with the process.

    Ray guards a local cluster by a token and would leave one in the user's home, after which every `ray start` demands
    it; a token of this process's own leaves no trace.

    Raises:
        UserError: if it does not start in time.
    """
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(OUTLIVED_BY_S))
    scratch = Scratch()
    try:
        ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=usable_cores(),
            object_store_memory=min(LARGEST_LOCAL_STORE, usable_memory() // 5),
            logging_level=logging.ERROR,
            _temp_dir=str(scratch.folder / RAY),
        )
    except Exception as error:  # Ray raises no kind of its own
        if "timed out during startup" not in str(error):
            raise
        raise UserError(
            "the local Ray did not start within the 30 seconds that Ray waits: this machine is busy. Type the same "
            "command again when it is less so, or name a cluster in RAY_ADDRESS."
        ) from None
    atexit.register(_stop, scratch)
    end_with_local_ray(scratch.folder, scratch.remove)
    log.info("no Ray cluster runs here; started a local one: %s", _size())


def _stop(scratch: Scratch) -> None:
    ray.shutdown()
    scratch.remove()


def _size() -> str:
    resources = ray.cluster_resources()
    return f"{resources.get('CPU', 0):g} CPUs, {resources.get('GPU', 0):g} GPUs"


NEEDED = ("raylet", "gcs_server")
"""Names of the processes that a Ray cannot do without."""

WORKERS_END_S = 1.0
"""Workers notice within this time that their raylet is gone; one that starts would make the folder again."""


def end_with_local_ray(folder: Path, clean_up: Callable[[], None]) -> None:
    """Watches the processes that this process's own Ray cannot do without, on threads. If one of them ends before
    `ray.shutdown`, all others are ended, and this process with exit code 1 and one line on stderr.

    Args:
        folder: that Ray was started in; each of its processes has it in its command line.
        clean_up: called before, to remove the folder.
    """
    processes, alone = [child for child in psutil.Process().children() if _runs_in(folder, child)], threading.Lock()
    for process in processes:
        if process.name() in NEEDED:
            watch = threading.Thread(
                target=_wait, args=(process, processes, clean_up, alone), name=f"midmask-{process.name()}", daemon=True
            )
            watch.start()


def _runs_in(folder: Path, process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has ended
        return any(str(folder) in argument for argument in process.cmdline())
    return False


def _wait(
    process: psutil.Process, processes: Sequence[psutil.Process], clean_up: Callable[[], None], alone: threading.Lock
) -> None:
    name, code = process.name(), process.wait()
    if not ray.is_initialized():  # ended by ray.shutdown
        return
    alone.acquire()  # for good: the others end because of this one
    cause = f"signal {-code}" if code < 0 else f"exit code {code}"
    try:
        for other in processes:
            with suppress(psutil.NoSuchProcess):
                other.kill()
        time.sleep(WORKERS_END_S)
        clean_up()
    finally:
        line = f"error: the local Ray of this job has ended ({name}: {cause}). What was finished is kept; go on with: "
        print(line + same_command(), file=sys.stderr, flush=True)
        os._exit(1)


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
    """The nodes of `ray.nodes()` that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


def whole(workers: int | None) -> Resources:
    """The cluster that this process is connected to, for one training at a time.

    Args:
        workers: its processes; none: one per GPU, or one where there is none.
    """
    gpus = int(ray.cluster_resources().get("GPU", 0))
    return Resources(cpus=1, gpus=1 if gpus else 0, side_by_side=1, workers=workers or max(1, gpus), alone=True)


def share(trainings: int, asked: int | None, per_training: int | None) -> Resources:
    """Resources of trainings on the cluster that this process is connected to; one training at a time is alone."""
    use = resources(ray.cluster_resources(), trainings, asked, per_training)
    return replace(use, alone=use.side_by_side == 1)


def share_among_trials(trainings: int, asked: int | None, per_training: int | None) -> Resources:
    """Resources for the trials of a search, each of which has a process that runs its steps."""
    return replace(share(trainings, asked, per_training), alone=False)


def resources(
    cluster: dict[str, float], trainings: int, asked: int | None, per_training: int | None = None
) -> Resources:
    """Resources of trainings: each process has its own GPU, or its own CPU core if there are no GPUs.

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
    cpus_each = 1 if not gpus else max(1, cpus // (gpus + 1))
    return Resources(cpus=cpus_each, gpus=1 if gpus else 0, side_by_side=together, workers=workers)
