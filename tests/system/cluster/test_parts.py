"""What the comparison of two homes must notice, and the machines of the test bed."""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.store.artifact import produce
from midmask.store.place import Place
from tests.system.cluster.compare import OF_RUN, contents, differences, identities, rewritten, unlike_trainings
from tests.system.cluster.machine import OUT, Machine, Network, missing
from tests.system.cluster.work import ROOT


def write(home: Path, value: float = 1.0, seconds: float = 1.0, loss: float = 2.0, lexical: str | None = None) -> Path:
    """A finished search and a training; where the file of the search lies."""

    def search(out: Place) -> dict[str, object]:
        (out / "scores.npy").write(np.float64(value).tobytes())
        return {"measure": value, "seconds": seconds, "workers": 2}

    def train(out: Place) -> dict[str, object]:
        Path(out.uri).mkdir(parents=True, exist_ok=True)
        trace = {"loss": [3.0, loss], "seconds": [seconds, seconds]}
        pq.write_table(pa.table(trace), Path(out.uri) / "trace.parquet")
        return {"loss": loss}

    for step, make in (("pretrain", train), ("search", search)):
        own = {"config": {"representation": {"lexical": lexical}}, "inputs": {"start": f"{home}/store/pretrain/p"}}
        record = {"step": step, "fingerprint": "f", **own}
        made = produce(Place(str(home / "store" / step / "f")), record, make)
    return made.place.local() / "scores.npy"


def test_only_what_tells_a_time_or_a_place_may_differ(tmp_path: Path) -> None:
    write(tmp_path / "one")
    expected = contents(tmp_path / "one")
    write(tmp_path / "value", value=1.0000001)
    assert differences(expected, contents(tmp_path / "value")) == [
        *("differs: search/f/record.json", "differs: search/f/scores.npy")
    ]
    write(tmp_path / "loss", loss=2.5)
    assert len(differences(expected, contents(tmp_path / "loss"))) == 2, "the training's record and its trace"
    write(tmp_path / "slow", seconds=2.0)
    assert differences(expected, contents(tmp_path / "slow")) == []
    assert len(differences(expected, {})) == len(differences({}, expected)) == len(expected) == 4
    assert contents(tmp_path / "one", OF_RUN)["search/f/record.json"] != expected["search/f/record.json"]


def test_a_finished_file_that_is_written_again_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path)
    before = identities(tmp_path)
    assert rewritten(before, identities(tmp_path)) == []
    Place(str(path)).write(path.read_bytes())
    assert len(rewritten(before, identities(tmp_path))) == 1


@pytest.mark.parametrize(
    ("loss", "lexical", "wrong"), [(2.0, None, 0), (2.001, None, 1), (2.001, "splade", 0), (2.01, "splade", 1)]
)
def test_losses_may_differ_by_rounding_alone(tmp_path: Path, loss: float, lexical: str | None, wrong: int) -> None:
    write(tmp_path / "one", lexical=lexical)
    write(tmp_path / "two", lexical=lexical, loss=loss)
    lines, most = unlike_trainings(tmp_path / "one", tmp_path / "two")
    assert len(lines) == wrong and most == pytest.approx(loss / 2 - 1)
    assert len(unlike_trainings(tmp_path / "one", tmp_path / "none")[0]) == 1, "a training that is not there"


SERVE = "import socket; s = socket.create_server(('', 7000)); print('up', flush=True); s.accept()[0].sendall(b'here')"
ASK = "import socket, sys; print(socket.create_connection((sys.argv[1], 7000), timeout=2).recv(9).decode())"


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Network]:
    """Machines with a disk and a name of their own on one network; nothing is left when they are lost."""
    if lacks := missing():
        pytest.skip(lacks)
    with contextlib.closing(Network(["one", "two"], {"one": tmp_path})) as made:
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
    two.first.end()
    assert answer() == "" and not Path(f"/proc/{two.first.id}").exists() and two.run("true").returncode != 0
    serve(net.add("two", {}), tmp_path / "third")
    assert answer() == "here", "a new machine has the address of the lost one"


HOLDER = """
import time
from tests.system.cluster.machine import Network
print(Network(["one"], {}).add("one", {}).first.id, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(bool(missing()), reason=missing() or "never")
def test_machines_end_with_a_process_that_is_killed() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert holder.stdout is not None
    handle = os.pidfd_open(int(holder.stdout.readline()))
    holder.kill()
    holder.wait()
    ended, _, _ = select.select([handle], [], [], 30)
    assert ended, "the machine's first process lives on"
