"""Training on several workers with Ray Train: the same loop; when a worker dies, all go on from the last checkpoint.

On several nodes, the number of workers follows the nodes that are alive: without a node that is lost, fewer go on, and
when it is back, all. The batch of a step stays the same, since workers share it.

torch's gloo listens at the address that a node's own name resolves to; where that is a loopback address (Debian writes
`127.0.1.1` into /etc/hosts), or none, no other node finds it, and the training would wait for half an hour and end. Ray
knows each node's real address, so gloo is told the interface that has it.
"""

import ipaddress
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import ray
import ray.train
import ray.train.torch
import torch
from ray._private.state import state
from ray._private.worker import get_dashboard_url
from ray._raylet import PlacementGroupID
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.exceptions import RayActorError
from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.util import get_node_ip_address
from ray.util.placement_group import PlacementGroup, remove_placement_group

from midmask.backend.channel import Channel
from midmask.backend.cluster import alive_nodes
from midmask.backend.ray_data import READ_CPUS, ray_reader
from midmask.encoders.reading import SIZES
from midmask.errors import UserError
from midmask.objectives import distributed as world
from midmask.store.place import Place
from midmask.training.run import Log, NonFiniteLoss, run_training
from midmask.training.setup import TrainingSetup

logger = logging.getLogger(__name__)

INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"
"""Which interface gloo takes; NCCL has its own search, which passes loopback over."""


class ReachableTorch(TorchConfig):  # type: ignore[misc]  # Ray has no types
    """Ray Train's configuration of torch whose workers first choose their interface."""

    @property
    def backend_cls(self) -> type:
        return _ReachableBackend


class _ReachableBackend(TorchConfig().backend_cls):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        if len(worker_group) > 1:
            worker_group.execute(choose_interface)
        if not all(worker_group.execute(torch.cuda.is_available)):  # Ray takes NCCL wherever it has given a GPU
            backend_config = replace(backend_config, backend="gloo")
        super().on_start(worker_group, backend_config)


def choose_interface() -> None:
    """Names the interface of this node's address to gloo, unless the environment names one already.

    A node with an address that none of its interfaces has (behind NAT) is left to gloo, with a warning.
    """
    address = get_node_ip_address()
    if INTERFACE_VARIABLE in os.environ or is_loopback(address):
        return
    for name, addresses in psutil.net_if_addrs().items():
        if address in (each.address for each in addresses):
            os.environ[INTERFACE_VARIABLE] = name
            return
    logger.warning(
        "node %s joined Ray as %s, which none of its interfaces has; if workers do not find each other, set "
        "%s=INTERFACE on it",
        *(socket.gethostname(), address, INTERFACE_VARIABLE),
    )


def refuse_loopback_nodes(nodes: Iterable[Mapping[str, Any]]) -> None:
    """Refuses a cluster of several machines one of which the others cannot reach.

    Args:
        nodes: those that are alive, as `ray.nodes()` has them.

    Raises:
        UserError: naming the nodes that joined with a loopback address, and how to start them.
    """
    named = [(node["NodeManagerHostname"], node["NodeManagerAddress"]) for node in nodes]
    wrong = [f"{name} as {address}" for name, address in named if is_loopback(address)]
    if 0 < len(wrong) < len(named):  # all of them: a cluster on one machine
        raise UserError(
            f"{len(wrong)} of {len(named)} nodes joined Ray with a loopback address, where the others cannot reach "
            f"them: {', '.join(wrong)}. Their own names resolve to it; start Ray there with "
            "`ray start --node-ip-address=ADDRESS`, or correct /etc/hosts"
        )


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name
        return False


RESTARTS = 5
"""Times that dead workers are replaced before the run fails; preempted nodes do not count."""

PREEMPTION_WATCHER = "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"
"""Ray Train starts an actor for each group that tells workers of a node's end beforehand, which they have no use for:
they have checkpoints. Starting it takes seconds, and Ray logs an error each time (ray-project/ray issue 53727).
"""


class WorkersPlaced(NamedTuple):
    """A group of workers has started."""

    workers: int


class StepsDone(NamedTuple):
    """The group has done so many optimiser steps."""

    done: int
    values: dict[str, float]


FINAL: dict[str, type[Exception]] = {"UserError": UserError, "NonFiniteLoss": NonFiniteLoss}
"""Errors that another try would only repeat: workers return them, instead of raising them to Ray Train."""


def train_on_ray(
    setup: TrainingSetup,
    out: Place,
    *,
    workers: int,
    use_gpu: bool,
    log: Log,
    side_by_side: int = 1,
) -> dict[str, Any]:
    """`run_training` on `workers` workers (gloo on CPUs, nccl on GPUs).

    Args:
        log: called in this process, each step once, also if a restart does some again; what dies on the way with a
            worker is in the trace alone.
        side_by_side: trainings of this size that share the cluster.

    Raises:
        UserError: if the cluster has no room for the workers and their reading tasks, or a node that none reaches.
        NonFiniteLoss: as `run_training`.
    """
    cpus = worker_cpus(workers * side_by_side, _node_cpus())
    if use_gpu and workers > (gpus := int(ray.cluster_resources().get("GPU", 0))):
        raise UserError(
            f"{workers} workers of a training (--workers-per-training, else --workers) need a GPU each, and the "
            f"cluster has {gpus}; use fewer"
        )
    threads = setup.train.threads or max(1, int(sum(_node_cpus())) // (workers * side_by_side))
    setup = replace(absolute(setup), train=setup.train.model_copy(update={"threads": threads}))
    notes = out / "ray"  # of Ray Train, while it runs; all nodes reach them
    scaling = ScalingConfig(
        num_workers=_sizes(workers),
        use_gpu=use_gpu,
        resources_per_worker={"CPU": cpus, **({"GPU": 1} if use_gpu else {})},
    )
    running = RunConfig(
        name="train",
        storage_path=notes.uri,
        failure_config=FailureConfig(max_failures=RESTARTS),
        logging_config=LoggingConfig(log_level="WARNING"),  # else each group's start is five lines
    )
    os.environ.setdefault(PREEMPTION_WATCHER, "0")
    logger.info("training on %d workers of %.2f CPUs and %d threads", workers, cpus, threads)
    reports = _Reports(log, workers)
    with Channel.open() as channel, channel.forwarding(reports):
        config = {"setup": setup, "out": out, "channel": channel}
        options = {"scaling_config": scaling, "run_config": running, "torch_config": ReachableTorch()}
        outcome = _train(partial(Trainer, _run_worker, train_loop_config=config, **options))
    notes.delete()
    if outcome["error"] is not None:
        raise FINAL[outcome["error"]](outcome["message"])
    result: dict[str, Any] = outcome["result"]
    return result


def _sizes(workers: int) -> int | tuple[int, int]:
    """Number of workers in a group; on several nodes, the smallest and the largest number.

    Raises:
        UserError: if workers are on nodes that cannot reach each other.
    """
    nodes = alive_nodes()
    refuse_loopback_nodes(nodes)
    return (1, workers) if workers > 1 and len(nodes) > 1 else workers


class Trainer(ray.train.torch.TorchTrainer):  # type: ignore[misc]  # Ray has no types
    """Ray Train's trainer with two changes.

    Where Ray has no dashboard, it has no actor that asks the dashboard once a second whether the training's controller
    lives: it could only warn, once a second, and `_train` removes a dead controller's placement group.

    It leaves SIGINT to the process: Ray Train's handler stays when the training has ended, and makes exit code 0 of a
    later interrupt.
    """

    def _create_default_callbacks(self) -> list[Any]:
        callbacks: list[Any] = super()._create_default_callbacks()
        if get_dashboard_url():
            return callbacks
        return [callback for callback in callbacks if not isinstance(callback, PlacementGroupCleanerCallback)]

    def _register_sigint_handler(self, controller: Any) -> None: ...


def _train(trainer: Callable[[], Any]) -> Any:
    """Runs a training and returns what its workers return.

    Ray Train replaces dead workers, but not its controller, an actor. If that dies, a new trainer goes on from the last
    checkpoint. The workers die with the controller; what was reserved for them is given back here.
    """
    for _ in range(RESTARTS):
        try:
            return trainer().fit().return_value
        except RayActorError:
            logger.warning("the controller of the training died; going on from the last checkpoint")
            give_reservations_back()
    return trainer().fit().return_value


def give_reservations_back(within_s: float = 5.0) -> None:
    """Removes the placement groups of this driver whose creators, controllers of trainings, are dead: they reserve CPUs
    and GPUs, and Ray keeps them as long as the driver lives.

    Args:
        within_s: how long to look for one: Ray learns of the death a little later than those who call the actor. A
            controller that died before it had reserved anything leaves none.
    """
    job, until = ray.get_runtime_context().get_job_id(), time.monotonic() + within_s
    while True:
        table = map(PlacementGroupTableData.FromString, state._connect_and_get_accessor().get_placement_group_table())
        left = [
            group
            for group in table
            if group.creator_actor_dead
            and group.creator_job_id.hex() == job
            and group.state != PlacementGroupTableData.REMOVED
        ]
        for group in left:
            remove_placement_group(PlacementGroup(PlacementGroupID(group.placement_group_id)))
        if left or time.monotonic() > until:
            return
        time.sleep(0.2)


def _run_worker(config: dict[str, Any]) -> dict[str, Any]:
    """The function that every worker runs."""
    channel: Channel = config["channel"]
    if world.rank() == 0:
        channel.push(WorkersPlaced(world.size()))

    def log(done: int, values: dict[str, float]) -> None:
        channel.push(StepsDone(done, values))

    try:
        result = run_training(config["setup"], config["out"], ray_reader, log, device=_device())
    except tuple(FINAL.values()) as error:
        logger.error("worker %d stops: %s", world.rank(), error)
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None, "result": result}


def _device() -> torch.device:
    """The worker's GPU, if it has one that torch can use; else the CPU, with a warning if Ray has given it a GPU."""
    if torch.cuda.is_available():
        device: torch.device = ray.train.torch.get_device()
        return device
    if ids := ray.get_runtime_context().get_accelerator_ids().get("GPU"):
        logger.warning(
            "Ray gave this worker GPU %s, which torch %s cannot use: it trains on the CPU", ids[0], torch.__version__
        )
    return torch.device("cpu")


class _Reports:
    """Reports from workers to the driver. Steps are passed on once: after a restart, they are done and reported again,
    with the same values.

    Args:
        workers: how many the training was to have.
    """

    def __init__(self, log: Log, workers: int) -> None:
        self._log, self._workers = log, workers
        self._newest = 0
        self._has_begun = False

    def __call__(self, event: WorkersPlaced | StepsDone) -> None:
        if isinstance(event, WorkersPlaced):
            if self._has_begun or event.workers < self._workers:
                goes_on = "goes on" if self._has_begun else "begins"
                logger.warning("the training %s with %d of %d workers", goes_on, event.workers, self._workers)
            self._has_begun = True
        elif event.done > self._newest:
            self._newest = event.done
            self._log(event.done, event.values)


def worker_cpus(workers: int, nodes: list[float]) -> float:
    """CPUs for each of `workers` so that all fit on the nodes, each beside a reading task of Ray Data.

    Raises:
        UserError: with the sum, if they do not fit.
    """
    total = sum(nodes)
    need = 2 * READ_CPUS  # a worker with a quarter of a CPU, and its reading task
    sizes = {node / count - READ_CPUS for node in nodes for count in range(1, workers + 1)}
    sizes.add(total / workers - READ_CPUS)
    fitting = [size for size in sizes if size >= READ_CPUS and _fit(size + READ_CPUS, nodes) >= workers]
    if not fitting:
        raise UserError(
            f"{workers} workers, of all trainings that run side by side, need at least {READ_CPUS} CPUs each, and as "
            f"much for each one's reading task: {workers * need:g} in all; the cluster has {total:g}. It has room for "
            f"{max(1, _fit(need, nodes))}: lower --workers or --workers-per-training"
        )
    cpus = max(fitting)
    return float(int(cpus)) if cpus >= 1 else int(cpus * 100) / 100


def _fit(cpus: float, nodes: list[float]) -> int:
    return sum(int(node / cpus + 1e-9) for node in nodes)


def _node_cpus() -> list[float]:
    return [float(node["Resources"].get("CPU", 0)) for node in alive_nodes()]


def absolute(setup: TrainingSetup) -> TrainingSetup:
    """The setup with a backbone's folder that is found in any working directory: Ray's workers have their own. All
    places are in the storage, whose path is absolute.
    """
    name = setup.backbone.name
    if name in SIZES or not Path(name).is_dir():
        return setup
    return replace(setup, backbone=setup.backbone.model_copy(update={"name": str(Path(name).absolute())}))
