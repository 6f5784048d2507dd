"""Machines of the test bed: a disk and a name of their own, one network, and nothing left when they are lost."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scale.machine import OUT, Machine, Network, missing, network

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "never")

SERVE = "import socket; s = socket.create_server(('', 7000)); print('up', flush=True); s.accept()[0].sendall(b'here')"
ASK = "import socket, sys; print(socket.create_connection((sys.argv[1], 7000), timeout=2).recv(9).decode())"


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Network]:
    with network(["one", "two"], {"one": tmp_path}) as made:
        yield made


def ask(machine: Machine, name: str) -> str:
    """What a server on another machine answers; "" if it does not."""
    return machine.run(sys.executable, "-c", ASK, name).stdout.strip()


def serve(machine: Machine, log: Path) -> None:
    server = machine.start(sys.executable, "-c", SERVE, log=log)
    while "up" not in log.read_text():
        assert server.poll() is None


def test_each_writes_to_a_disk_of_its_own(net: Network, tmp_path: Path) -> None:
    one, two = net.add("one", {"OWN": "1"}), net.add("two", {})
    for place in ("/tmp", "/home/node", "/dev/shm"):
        one.run("touch", f"{place}/mine").check_returncode()
        assert one.run("test", "-e", f"{place}/mine").returncode == 0
        assert two.run("test", "-e", f"{place}/mine").returncode == 1
    beside = Path(__file__).with_name("never")
    assert one.run("touch", str(beside)).returncode == 1 and not beside.exists(), "this machine's disk is only read"
    one.run("touch", f"{OUT}/seen").check_returncode()
    assert (tmp_path / "seen").exists()
    assert one.run("sh", "-c", "echo $OWN $HOME").stdout.split() == ["1", "/home/node"]
    assert (one.run("hostname").stdout, two.run("hostname").stdout) == ("one\n", "two\n")


def test_they_reach_each_other_until_one_is_lost(net: Network, tmp_path: Path) -> None:
    one, two = net.add("one", {}), net.add("two", {})
    serve(two, tmp_path / "first")
    assert ask(one, "two") == "here"
    serve(two, tmp_path / "second")
    net.set_link("two", up=False)
    assert ask(one, "two") == ""
    net.set_link("two", up=True)
    assert ask(one, "two") == "here"
    two.lose()
    assert ask(one, "two") == ""
    again = net.add("two", {})
    serve(again, tmp_path / "third")
    assert ask(one, "two") == "here", "a new machine has the address of the lost one"


def test_a_name_may_resolve_to_a_loopback_address(net: Network) -> None:
    one, two = net.add("one", {}, loopback_name=True), net.add("two", {})
    assert one.run("getent", "hosts", "one").stdout.split()[0] == "127.0.1.1"
    assert two.run("getent", "hosts", "one").stdout.split()[0] == net.addresses["one"]


def test_nothing_is_left(tmp_path: Path) -> None:
    with network(["one"]) as made:
        machine = made.add("one", {})
        machine.start("sleep", "1000", log=tmp_path / "log")
        holder = machine.first.id
    assert not os.path.exists(f"/proc/{holder}")
    assert machine.run("true").returncode != 0


LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


@pytest.mark.skipif(not LAST_PID.exists(), reason="this kernel does not let a test choose a process id")
def test_a_process_that_has_the_id_of_a_lost_machines_first_one_lives_on(net: Network) -> None:
    machine = net.add("one", {})
    machine.lose()
    others = []
    for _ in range(50):  # other processes may take the id first
        LAST_PID.write_text(str(machine.first.id - 1))
        others.append(subprocess.Popen(["sleep", "60"]))
        if others[-1].pid == machine.first.id:
            break
    try:
        assert others[-1].pid == machine.first.id
        net.close()
        assert others[-1].poll() is None
    finally:
        for other in others:
            other.kill()
            other.wait()


HOLDER = """
import sys, time
from tests.scale.machine import network
with network(["one"]) as made:
    print(made.add("one", {}).first.id, flush=True)
    time.sleep(600)
"""


def test_machines_end_with_a_process_that_is_killed() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert holder.stdout is not None
    handle = os.pidfd_open(int(holder.stdout.readline()))
    holder.kill()
    holder.wait()
    ended, _, _ = select.select([handle], [], [], 30)
    assert ended, "the machine's first process lives on"
