"""Reports of every node of a cluster: versions, clock, GPUs, which other nodes it reaches, and the stores."""

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from midmask.backend.cluster import alive_nodes
from midmask.errors import last_line
from midmask.store.checks import own_versions, why_not_writable
from midmask.store.place import Place
from midmask.tracking.store import why_silent

ANSWERS_WITHIN_S = 120.0
"""A node's first task imports torch and MLflow."""

CONNECTS_WITHIN_S = 3.0


@dataclass(frozen=True)
class NodeReport:
    """The state of one node of a cluster, as the node reports it."""

    name: str  # the host's
    address: str  # in Ray
    clock: float = 0.0  # seconds that its clock is ahead of the asking process's
    versions: Mapping[str, str] = field(default_factory=dict)  # as `own_versions` returns them
    gpus: tuple[int, int, int] = (0, 0, 0)  # seen by Ray, by torch and by faiss
    closed: tuple[str, ...] = ()  # addresses of nodes whose Ray it cannot reach
    store: str = ""  # why it cannot use the store; empty if it can
    tracking: str = ""  # why it cannot use the tracking store; empty if it can
    silent: str = ""  # why it did not answer; empty if it did


def report_on_nodes(storage: Place, tracking_uri: str) -> list[NodeReport]:
    """One report for each node that is alive, the head's first."""
    nodes = sorted(alive_nodes(), key=lambda node: "node:__internal_head__" not in node["Resources"])
    doors = [(node["NodeManagerAddress"], node["NodeManagerPort"]) for node in nodes]
    examiners = [_Examiner.options(scheduling_strategy=_on(node)).remote() for node in nodes]  # type: ignore[attr-defined]
    answers = [examiner.examine.remote(doors, storage, tracking_uri) for examiner in examiners]
    ray.wait(answers, num_returns=len(answers), timeout=ANSWERS_WITHIN_S)
    return [_report(*parts) for parts in zip(nodes, examiners, answers, strict=True)]


def gpus_seen() -> tuple[int, int]:
    """Number of GPUs that torch sees and that faiss sees."""
    import torch  # here, for the sake of --help

    from midmask.retrieve.dense import faiss_gpus

    return torch.cuda.device_count(), faiss_gpus()


@ray.remote(num_cpus=0)
class _Examiner:
    """An actor on the node that it looks at."""

    def clock(self) -> float:
        return time.time()

    def examine(self, doors: Sequence[tuple[str, int]], storage: Place, tracking_uri: str) -> dict[str, Any]:
        """The fields of a report that only the node knows, but for its clock."""
        return {
            "versions": own_versions(),
            "gpus": gpus_seen(),
            "closed": tuple(address for address, port in doors if not _is_open(address, port)),
            "store": why_not_writable(storage),
            "tracking": why_silent(tracking_uri),
        }


def _is_open(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), CONNECTS_WITHIN_S):
            return True
    except OSError:
        return False


def _on(node: Mapping[str, Any]) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)


def _report(node: Mapping[str, Any], examiner: Any, answer: Any) -> NodeReport:
    name, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
    try:
        values = ray.get(answer, timeout=0)
        clock = _ahead(examiner)
    except ray.exceptions.GetTimeoutError:
        return NodeReport(name, address, silent=f"it has not answered within {ANSWERS_WITHIN_S:.0f} s")
    except ray.exceptions.RayError as error:
        return NodeReport(name, address, silent=last_line(error)[:300])
    gpus = (int(node["Resources"].get("GPU", 0)), *values.pop("gpus"))
    return NodeReport(name, address, clock=clock, gpus=gpus, **values)


def _ahead(examiner: Any) -> float:
    """Seconds by which a node's clock is ahead of this process's, at the middle of the exchange."""
    before = time.time()
    node_time = ray.get(examiner.clock.remote(), timeout=ANSWERS_WITHIN_S)
    return float(node_time - (before + time.time()) / 2)
