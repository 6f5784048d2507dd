"""Machines on one machine: each has a network address, processes, a clock-independent name and a disk of its own.

A machine is a set of Linux namespaces (network, mounts, processes, host name, shared memory) that its first process
holds. It reads this machine's disk, so that what is installed is there, but writes only to its own /tmp, /home,
/dev/shm and /run, which are in memory. All machines hang on one switch, a bridge in a namespace of its own. When the
first process ends, the kernel ends the others and takes the network away: nothing is left behind.

Needs root on Linux.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
WITH_THIS_PROCESS = ("setpriv", "--pdeathsig", "KILL")  # what follows is killed when this process ends, however it does
NETWORK = "10.77.0"
OWN = ("/tmp", "/home", "/run", "/dev/shm")
HOME = "/home/node"
OUT = "/mnt"
"""Folder of a machine that lies on this one's disk, if it has one."""

HOLD = """
set -e
{shared}
for folder in {own}; do mount -t tmpfs -o size=8g,mode=1777 tmpfs $folder; done
mount -o remount,bind,ro /
mkdir {home}
printf '127.0.0.1 localhost\\n{hosts}' > /run/hosts
mount --bind /run/hosts /etc/hosts
hostname {name}
echo ready
exec sleep infinity
"""


def missing() -> str:
    """What machines need and this process has not; "" if it has all."""
    if os.geteuid() != 0:
        return "namespaces need root: run it with sudo"
    if hidden := [folder for folder in OWN if Path(sys.executable).is_relative_to(folder)]:
        return f"each machine has a {hidden[0]} of its own, which hides {sys.executable}"
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"this system makes no namespaces: {tried.stderr.strip()}"
    return "" if subprocess.run(["ip", "-V"], capture_output=True, check=False).returncode == 0 else "no ip command"


class FirstProcess:
    """The process that holds a machine's namespaces: the only child of `parent`, which reaps it. Its handle names it
    for good, while its id is another process's some time after it has ended.
    """

    def __init__(self, parent: "subprocess.Popen[str]") -> None:
        self.id = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0])
        self._handle, self._parent = os.pidfd_open(self.id), parent

    def end(self) -> None:
        """With all that runs on the machine, at once, as a power cut would; a second time does nothing."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self._parent.wait()


@dataclass(frozen=True)
class Machine:
    address: str
    first: FirstProcess
    environment: Mapping[str, str]

    def command(self, *words: str) -> list[str]:
        """What runs these words on the machine."""
        own = {"HOME": HOME, "TMPDIR": "/tmp", "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **self.environment}
        enter = ["nsenter", f"--target={self.first.id}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        return [*enter, "env", "-i", *(f"{name}={value}" for name, value in own.items()), *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=900, cwd="/")

    def start(self, *words: str, log: Path) -> "subprocess.Popen[bytes]":
        """Runs in the background."""
        with open(log, "wb") as stream:
            return subprocess.Popen(self.command(*words), stdout=stream, stderr=subprocess.STDOUT, cwd="/")


class Network:
    """A switch, and the machines that hang on it.

    Args:
        names: of all machines that may ever hang on it; each has its address from the start. shared: folders of this
            machine that a machine may write to, by the machine's name.
    """

    def __init__(self, names: Sequence[str], shared: Mapping[str, Path]) -> None:
        self._shared = shared
        self.addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(names, start=2)}
        self._first: list[FirstProcess] = []
        self._switch = self._hold("switch", "")
        self._on_switch("ip link add bridge type bridge")
        self._on_switch("ip link set bridge up")

    def add(self, name: str, environment: Mapping[str, str]) -> Machine:
        """A new machine, also in place of one that was lost. Its own name resolves to 127.0.1.1 on it, as Debian has
        it.
        """
        hosts = "".join(f"{address} {other}\\n" for other, address in {**self.addresses, name: "127.0.1.1"}.items())
        first = self._hold(name, hosts)
        own, peer = self.addresses[name], f"to-{name}"[:15]  # Linux allows 15 characters
        self._on_switch(f"ip link del {peer} 2>/dev/null || true")
        # others remember an address' hardware by minutes, so that of a machine that takes another's place is the same
        hardware = f"02:00:00:00:00:{int(own.rpartition('.')[2]):02x}"
        self._on_switch(f"ip link add {peer} type veth peer name eth0 address {hardware} netns {first.id}")
        self._on_switch(f"ip link set {peer} master bridge up")
        machine = Machine(own, first, environment)
        for line in (f"ip addr add {own}/24 dev eth0", "ip link set eth0 up", "ip link set lo up"):
            machine.run(*line.split()).check_returncode()
        return machine

    def close(self) -> None:
        for first in reversed(self._first):
            first.end()

    def _hold(self, name: str, hosts: str) -> FirstProcess:
        """Starts the first process of a machine, and waits until its disk is its own."""
        folder = self._shared.get(name)
        keep = f"mount --bind {shlex.quote(str(folder))} {OUT}" if folder else ""
        script = HOLD.format(own=" ".join(OWN), home=HOME, hosts=hosts, name=name, shared=keep)
        command = [*WITH_THIS_PROCESS, "unshare", *NAMESPACES, "--propagation", "private", "sh", "-c", script]
        own = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert own.stdout is not None and own.stderr is not None
        if own.stdout.readline().strip() != "ready":
            raise RuntimeError(f"no machine {name}: its first process said {own.stderr.read().strip()!r}")
        self._first.append(FirstProcess(own))
        return self._first[-1]

    def _on_switch(self, command: str) -> None:
        enter = ["nsenter", f"--target={self._switch.id}", "--net", "sh", "-c", command]
        subprocess.run(enter, check=True, capture_output=True)
