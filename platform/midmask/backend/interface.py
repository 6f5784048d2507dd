"""The address at which the workers of a training reach each other.

torch's gloo listens at the address that a node's own name resolves to; where that is a loopback address (Debian writes
`127.0.1.1` into /etc/hosts), or none, no other node finds it, and the training would wait for half an hour and end. Ray
knows each node's real address, so gloo is told the interface that has it.
"""

import ipaddress
import logging
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import psutil
import torch
from ray.train.torch import TorchConfig
from ray.util import get_node_ip_address

from midmask.errors import UserError

logger = logging.getLogger(__name__)

VARIABLE = "GLOO_SOCKET_IFNAME"
"""Which interface gloo takes; NCCL has its own search, which passes loopback over."""


class ReachableTorch(TorchConfig):  # type: ignore[misc]  # Ray has no types
    """Ray Train's configuration of torch whose workers first choose their interface."""

    @property
    def backend_cls(self) -> type:
        return _Backend


class _Backend(TorchConfig().backend_cls):  # type: ignore[misc]
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
    if VARIABLE in os.environ or is_loopback(address):
        return
    interfaces = interfaces_by_address()
    if address in interfaces:
        os.environ[VARIABLE] = interfaces[address]
    else:
        known = ", ".join(f"{name} {each}" for each, name in interfaces.items())
        logger.warning(
            "node %s joined Ray as %s, which none of its interfaces has (%s); if workers do not find each other, set "
            "%s=INTERFACE on it",
            *(socket.gethostname(), address, known, VARIABLE),
        )


def interfaces_by_address() -> dict[str, str]:
    """Internet address -> the interface of this machine that has it."""
    found = psutil.net_if_addrs().items()
    return {each.address: name for name, own in found for each in own if _is_address(each.address)}


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
    return _is_address(address) and ipaddress.ip_address(address).is_loopback


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
