"""A cluster whose nodes share nothing: a head, workers, and the stores, each on a machine of its own.

Artifacts go to S3, tracked runs to MLflow's server over PostgreSQL, and Ray asks for a token. A node's disk is its own,
so that what one node wrote is there for another through the store alone. Names of machines resolve to loopback
addresses on themselves, as Debian has it. Any node and any store can be lost, and comes back.
"""

import contextlib
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.system.cluster.cycle import Blow, Job
from tests.system.cluster.machine import HOME, OUT, Machine, Network
from tests.system.cluster.services import BUCKET, environment
from tests.system.cluster.work import ROOT, Work

PROGRAMS = Path(sys.executable).parent
SERVICES, HEAD = "services", "head"
GCS = 6379
STARTS_WITHIN_S = 180
COPY = """
import sys, pyarrow.fs
(here, source), (there, target) = map(pyarrow.fs.FileSystem.from_uri, sys.argv[1:])
pyarrow.fs.copy_files(source, target, here, there)
"""
"""Copies a folder between two places, each a path or a URI."""

COUNT_NODES = "import ray; ray.init(logging_level='ERROR'); print(sum(n['Alive'] for n in ray.nodes()))"
RUNS = """
import sys
from tests.system.cluster.compare import tracked
print("".join(f"{line}\\n" for line in tracked(sys.argv[1], int(sys.argv[2]))), end="")
"""
STARTED = re.compile(r"(\S+): starts$", re.M)


@dataclass
class Cluster:
    """nodes: name -> machine, the head first. logs: folder of this machine. variables: of every node's environment."""

    net: Network
    logs: Path
    stores: Machine
    control: "subprocess.Popen[str]"
    variables: Mapping[str, str]
    nodes: dict[str, Machine] = field(default_factory=dict)
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def head(self) -> Machine:
        return self.nodes[HEAD]

    def add(self, name: str) -> None:
        """Starts a node; one of a name that was lost takes its place."""
        machine = self.net.add(name, self.variables)
        gcs = f"{self.net.addresses[HEAD]}:{GCS}"
        where = ["--head", f"--port={GCS}", "--include-dashboard=false"] if name == HEAD else [f"--address={gcs}"]
        own = [f"--node-ip-address={machine.address}", "--num-cpus=1", "--object-store-memory=200000000"]
        command = [str(PROGRAMS / "ray"), "start", *where, *own, "--disable-usage-stats", "--block"]
        self.started.append(machine.start(*command, log=self.logs / f"{name}.log"))
        self.nodes[name] = machine
        until = time.monotonic() + STARTS_WITHIN_S
        while True:
            asked = self.head.run(sys.executable, "-c", COUNT_NODES)
            if asked.returncode == 0 and asked.stdout.split()[-1:] == [str(len(self.nodes))]:
                return
            if time.monotonic() > until:
                raise RuntimeError(f"{name} is not there: {asked.stdout}{asked.stderr[-2000:]}")

    def lose(self, name: str) -> None:
        self.nodes.pop(name).first.end()

    def tell(self, order: str) -> None:
        """An order to the stores: `stop storage`, `continue storage`, `kill tracking`, …"""
        assert self.control.stdin is not None and self.control.stdout is not None
        self.control.stdin.write(f"{order}\n")
        self.control.stdin.flush()
        if self.control.stdout.readline().strip() != "done":
            raise RuntimeError(f"the stores did not: {order}")

    def upload(self, folder: Path) -> str:
        """A folder of this machine as one of the bucket, as the name of a collection."""
        uri = f"s3://{BUCKET}/{folder.name}"
        self.head.run(sys.executable, "-c", COPY, str(folder), uri).check_returncode()
        return f"beir:{uri}"

    def download(self) -> None:
        """The storage into the folder `out/store` on this machine's disk."""
        self.stores.run(sys.executable, "-c", COPY, f"s3://{BUCKET}/store", f"{OUT}/store").check_returncode()


@contextlib.contextmanager
def cluster(folder: Path, workers: Sequence[str] = ("worker1", "worker2")) -> Iterator[Cluster]:
    """The cluster with all its nodes of one CPU; it ends with the block. The folder is for logs, and for `out`, into
    which `download` writes.
    """
    (folder / "logs").mkdir(parents=True)
    (folder / "out").mkdir()
    with contextlib.closing(Network([SERVICES, HEAD, *workers], {SERVICES: folder / "out"})) as net:
        reach = environment(net.addresses[SERVICES])
        stores = net.add(SERVICES, {**reach, "PYTHONPATH": str(ROOT)})
        with open(folder / "logs" / "services.log", "wb") as log:
            serve = stores.command(sys.executable, "-m", "tests.system.cluster.services", stores.address)
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            control = subprocess.Popen(serve, **pipes, text=True, cwd="/")  # type: ignore[call-overload]
        if control.stdout.readline().strip() != "ready":
            raise RuntimeError((folder / "logs" / "services.log").read_text()[-3000:])
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        own = {"RAY_ADDRESS": f"{net.addresses[HEAD]}:{GCS}", "MIDMASK_HOME": HOME, "OMP_NUM_THREADS": "1"}
        made = Cluster(net, folder / "logs", stores, control, {**reach, **token, **own})
        for name in (HEAD, *workers):
            made.add(name)
        yield made


class Bed:
    """A site on a cluster, for `tests.system.cluster.cycle`. Steps that have started are the marks."""

    kinds = ("worker", "both workers", "storage", "tracking", "tracking killed", "database", "head")
    nodes = ("worker", "both workers", "head")
    lethal = ("head",)
    outage = 45.0  # with the start of a server, less than a job waits for its tracking store as it begins and ends

    def __init__(self, there: Cluster, work: Work, corpus: str) -> None:
        self.there, self.work, self.corpus = there, work, corpus
        self.troubles: list[str] = []
        self._seen: set[str] = set()
        self._looked = 0.0
        self._heads = 0

    def start(self, number: int) -> Job:
        log = self.there.logs / f"{self.work.job}-{number}.log"
        return self.there.head.start(*self.work.command(self.corpus, self.work.there), log=log)

    def is_up(self) -> bool:
        return True

    def marks(self) -> int:
        if time.monotonic() - self._looked > 0.5:  # a job that is started again begins some anew
            log = self.there.head.run("sh", "-c", f"grep -h starts {HOME}/logs/*.log")
            self._seen |= set(STARTED.findall(log.stdout))
            self._looked = time.monotonic()
        return len(self._seen)

    def strike(self, blow: Blow, job: Job) -> Callable[[], None]:
        workers = [name for name in self.there.nodes if name != HEAD]
        if blow.kind in self.nodes:
            self._heads += blow.kind == "head"
            one = [workers[int(blow.pick * len(workers))]]
            # without a head, Ray's other nodes end by themselves
            lost = {"worker": one, "both workers": workers, "head": [HEAD, *workers]}[blow.kind]
            for name in lost:
                self.there.lose(name)
            return lambda: self._after(blow.away, *(lambda name=name: self.there.add(name) for name in lost))
        store = blow.kind.removesuffix(" killed")
        ends, begins = ("stop", "continue") if store == blow.kind else ("kill", "start")
        self.there.tell(f"{ends} {store}")
        return lambda: self._after(blow.away, lambda: self.there.tell(f"{begins} {store}"))

    def _after(self, seconds: float, *come_back: Callable[[], None]) -> None:
        time.sleep(seconds)
        for one in come_back:
            one()

    def settle(self, job: Job, killed: str) -> None:
        """Nothing to be seen from here."""

    def give_up(self, job: Job) -> None:
        job.kill()
        job.wait()

    def finish(self) -> None:
        """Looks at the tracked runs, and takes the storage to this machine."""
        path = f"PYTHONPATH={ROOT}:{ROOT / 'platform'}"
        own = (self.there.variables["MLFLOW_TRACKING_URI"], str(self._heads))
        asked = self.there.head.run("env", path, sys.executable, "-c", RUNS, *own)
        self.troubles += asked.stdout.splitlines() if asked.returncode == 0 else [asked.stderr[-500:]]
        self.there.download()
