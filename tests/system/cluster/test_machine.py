"""Machines of the test bed: a disk and a name of their own, one network, and nothing left when they are lost."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cluster.machine import OUT, Machine, Network, missing, network
from tests.system.cluster.work import ROOT

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "never")

SERVE = "import socket; s = socket.create_server(('', 7000)); print('up', flush=True); s.accept()[0].sendall(b'here')"
ASK = "import socket, sys; print(socket.create_connection((sys.argv[1], 7000), timeout=2).recv(9).decode())"


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Network]:
    with network(["one", "two"], {"one": tmp_path}) as made:
        yield made


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
    assert one.run("getent", "hosts", "one").stdout.split()[0] == "127.0.1.1"
    assert one.run("getent", "hosts", "two").stdout.split()[0] == net.addresses["two"]


def test_they_reach_each_other_until_one_is_lost(net: Network, tmp_path: Path) -> None:
    def serve(machine: Machine, log: Path) -> None:
        server = machine.start(sys.executable, "-c", SERVE, log=log)
        while "up" not in log.read_text():
            assert server.poll() is None

    def answer() -> str:
        return one.run(sys.executable, "-c", ASK, "two").stdout.strip()

    one, two = net.add("one", {}), net.add("two", {})
    serve(two, tmp_path / "first")
    assert answer() == "here"
    serve(two, tmp_path / "second")
    two.lose()
    assert answer() == "" and not Path(f"/proc/{two.first.id}").exists() and two.run("true").returncode != 0
    serve(net.add("two", {}), tmp_path / "third")
    assert answer() == "here", "a new machine has the address of the lost one"


HOLDER = """
import sys, time
from tests.system.cluster.machine import network
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
