"""Joining the cluster that runs, or starting a local Ray where there is none."""

import atexit
import logging
import os
import secrets
import signal
import threading

import grpc
import ray
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
from ray._private.grpc_utils import init_grpc_channel
from ray._private.services import find_bootstrap_address
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

from midmask.backend.liveness import end_with_local_ray
from midmask.backend.scratch import RAY, Scratch
from midmask.errors import UserError
from midmask.processes import usable_cores, usable_memory
from midmask.switches import TRUST

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
    """--no-verify and --allow-download, for the workers' environment; empty without them."""
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
    own = Scratch()
    try:
        ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=usable_cores(),
            object_store_memory=min(LARGEST_LOCAL_STORE, usable_memory() // 5),
            logging_level=logging.ERROR,
            _temp_dir=str(own.folder / RAY),
        )
    except Exception as error:  # Ray raises no kind of its own
        if "timed out during startup" not in str(error):
            raise
        raise UserError(
            "the local Ray did not start within the 30 seconds that Ray waits: this machine is busy. Type the same "
            "command again when it is less so, or name a cluster in RAY_ADDRESS."
        ) from None
    atexit.register(_stop, own)
    end_with_local_ray(own.folder, own.remove)
    log.info("no Ray cluster runs here; started a local one: %s", _size())


def _stop(own: Scratch) -> None:
    ray.shutdown()
    own.remove()


def _size() -> str:
    resources = ray.cluster_resources()
    return f"{resources.get('CPU', 0):g} CPUs, {resources.get('GPU', 0):g} GPUs"
