"""The address at which workers reach each other."""

import os
import socket

import psutil
import pytest
import ray
from ray.util import get_node_ip_address

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


def test_every_internet_address_of_this_machine_has_its_interface():
    found = interfaces_by_address()
    assert found["127.0.0.1"] in psutil.net_if_addrs()
    own = {each.address for each in psutil.net_if_addrs()[found["127.0.0.1"]] if each.family == socket.AF_INET}
    assert "127.0.0.1" in own


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
