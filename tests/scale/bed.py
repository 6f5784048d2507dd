"""A cluster whose nodes share nothing: a head, workers, and the stores, each on a machine of its own.

Artifacts go to S3, tracked runs to MLflow's server over PostgreSQL, and Ray asks for a token. A node's disk is its own,
so that what one node wrote is there for another through the store alone.
"""

import contextlib
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.scale.machine import OUT, Machine, Network, network
from tests.scale.services import BUCKET, environment

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent

SERVICES, HEAD = "services", "head"
GCS = 6379
STARTS_WITHIN_S = 120

COPY = """
import sys, pyarrow.fs
(here, source), (there, target) = map(pyarrow.fs.FileSystem.from_uri, sys.argv[1:])
pyarrow.fs.copy_files(source, target, here, there)
"""
"""Copies a folder between two places, each a path or a URI."""


@dataclass
class Cluster:
    """nodes: name -> machine, the head first. logs: folder of this machine. variables: of every node's environment.
    loopback_names: a node's own name resolves to a loopback address, as Debian has it.
    """

    net: Network
    logs: Path
    stores: Machine
    control: "subprocess.Popen[str]"
    variables: Mapping[str, str]
    cpus: int
    loopback_names: bool
    nodes: dict[str, Machine] = field(default_factory=dict)
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def head(self) -> Machine:
        return self.nodes[HEAD]

    @property
    def address(self) -> str:
        return f"{self.net.addresses[HEAD]}:{GCS}"

    def add(self, name: str) -> None:
        """Starts a node; one of a name that was lost takes its place."""
        machine = self.net.add(name, self.variables, loopback_name=self.loopback_names)
        where = ["--head", f"--port={GCS}"] if name == HEAD else [f"--address={self.address}"]
        own = f"--node-ip-address={machine.address}"
        resources = [f"--num-cpus={self.cpus}", "--object-store-memory=200000000"]
        quiet = ["--include-dashboard=false"] if name == HEAD else []
        command = [str(PROGRAMS / "ray"), "start", *where, own, *resources, *quiet, "--disable-usage-stats", "--block"]
        self.started.append(machine.start(*command, log=self.logs / f"{name}.log"))
        self.nodes[name] = machine
        self.wait_for(len(self.nodes))

    def lose(self, name: str) -> None:
        """A node ends with all that runs on it."""
        self.nodes.pop(name).lose()

    def wait_for(self, count: int) -> None:
        """Until so many nodes are alive."""
        count_nodes = "import ray; ray.init(logging_level='ERROR'); print(sum(n['Alive'] for n in ray.nodes()))"
        until = time.monotonic() + STARTS_WITHIN_S
        while True:
            asked = self.head.run(sys.executable, "-c", count_nodes)
            if asked.returncode == 0 and asked.stdout.split()[-1:] == [str(count)]:
                return
            if time.monotonic() > until:
                raise RuntimeError(f"{count} nodes are not there: {asked.stdout}{asked.stderr[-2000:]}")

    def job(self, name: str, *flags: str, log: str = "") -> "subprocess.Popen[bytes]":
        """A job's driver, on the head, in the background."""
        command = [sys.executable, str(ROOT / "jobs" / f"{name}.py"), *flags]
        return self.head.start(*command, log=self.logs / f"{log or name}.log")

    def tell(self, order: str) -> None:
        """An order to the stores: `stop storage`, `continue storage`, `kill tracking`, …"""
        assert self.control.stdin is not None and self.control.stdout is not None
        self.control.stdin.write(f"{order}\n")
        self.control.stdin.flush()
        if self.control.stdout.readline().strip() != "done":
            raise RuntimeError(f"the stores did not: {order}")

    def upload(self, folder: Path, name: str) -> str:
        """A folder of this machine as one of the bucket; its URI."""
        uri = f"s3://{BUCKET}/{name}"
        self.head.run(sys.executable, "-c", COPY, str(folder), uri).check_returncode()
        return uri

    def download(self, uri: str, name: str) -> None:
        """A folder of the bucket into the stores' folder on this machine's disk."""
        self.stores.run(sys.executable, "-c", COPY, uri, f"{OUT}/{name}").check_returncode()


@contextlib.contextmanager
def cluster(
    folder: Path, workers: Sequence[str] = ("worker1", "worker2"), *, cpus: int = 1, loopback_names: bool = False
) -> Iterator[Cluster]:
    """The cluster with all its nodes; it ends with the block.

    Args:
        folder: of logs, and `out`, into which `download` writes. cpus: of each node. loopback_names: as `Cluster` has.
    """
    (folder / "logs").mkdir(parents=True)
    (folder / "out").mkdir()
    with network([SERVICES, HEAD, *workers], {SERVICES: folder / "out"}) as net:
        reach = environment(net.addresses[SERVICES])
        stores = net.add(SERVICES, {**reach, "PYTHONPATH": str(ROOT)})
        with open(folder / "logs" / "services.log", "wb") as log:
            control = subprocess.Popen(
                stores.command(sys.executable, "-m", "tests.scale.services", stores.address),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd="/",
            )
        assert control.stdout is not None
        if control.stdout.readline().strip() != "ready":
            raise RuntimeError((folder / "logs" / "services.log").read_text()[-3000:])
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        head = f"{net.addresses[HEAD]}:{GCS}"
        variables = {**reach, **token, "RAY_ADDRESS": head, "MIDMASK_HOME": "/home/node", "OMP_NUM_THREADS": "1"}
        made = Cluster(net, folder / "logs", stores, control, variables, cpus, loopback_names)
        for name in (HEAD, *workers):
            made.add(name)
        yield made
