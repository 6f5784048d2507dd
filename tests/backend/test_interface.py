"""The address at which workers reach each other, and what a driver says of a Ray that does not start."""

import os

import pytest
import ray
from ray.util import get_node_ip_address

from midmask.backend.connection import connect
from midmask.backend.interface import (
    VARIABLE,
    choose_interface,
    interfaces_by_address,
    is_loopback,
    refuse_loopback_nodes,
)
from midmask.backend.resources import alive_nodes
from midmask.errors import UserError


def node(name: str, address: str, *, alive: bool = True) -> dict[str, object]:
    return {"NodeManagerHostname": name, "NodeManagerAddress": address, "Alive": alive}


def test_a_node_that_the_others_cannot_reach_is_refused_by_name():
    with pytest.raises(UserError, match=r"1 of 2 nodes .* two as 127\.0\.1\.1.*--node-ip-address"):
        refuse_loopback_nodes([node("one", "10.0.0.1"), node("two", "127.0.1.1")])


@pytest.mark.parametrize(
    "nodes",
    [
        [node("one", "127.0.0.1")],
        [node("one", "127.0.0.1"), node("one", "127.0.0.1")],
        [node("one", "10.0.0.1"), node("two", "10.0.0.2")],
        [node("one", "fd00::2"), node("two", "fd00::3")],
    ],
    ids=["alone", "several on one machine", "each by its own address", "version 6"],
)
def test_other_clusters_are_not(nodes):
    refuse_loopback_nodes(nodes)


def test_a_hidden_node_that_has_gone_does_no_harm(monkeypatch):
    nodes = [node("one", "10.0.0.1"), node("two", "10.0.0.2"), node("gone", "127.0.1.1", alive=False)]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert alive_nodes() == nodes[:2]
    refuse_loopback_nodes(alive_nodes())


def test_gloo_is_told_the_interface_of_the_nodes_address(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    choose_interface()
    address = get_node_ip_address()
    wanted = None if is_loopback(address) else interfaces_by_address()[address]
    assert os.environ.pop(VARIABLE, None) == wanted


def test_what_the_environment_names_stays(monkeypatch):
    monkeypatch.setenv(VARIABLE, "chosen")
    choose_interface()
    assert os.environ[VARIABLE] == "chosen"


def test_a_ray_that_does_not_start_in_time_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray 2.60 says it on a machine with forty processes a core."""

    def time_out(**options: object) -> None:
        raise Exception("The current node timed out during startup. This could happen because some of the raylet …")

    monkeypatch.setattr(ray, "init", time_out)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(UserError, match="did not start within the 30 seconds") as caught:
        connect()
    assert "\n" not in str(caught.value)
