"""This process: the cores and memory it may use, what identifies it to others, its command, switches and timers."""

import json
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from midmask.core.redaction import redacted

CONTROL_GROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """CPU cores that this process may use; `taskset`, Slurm and containers give it fewer than the machine has."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no such thing
        cores = os.cpu_count() or 1
    quotas = [text.split() for text in _group_limits("cpu.max")]
    limits = (int(quota) // int(period) for quota, period in quotas if quota != "max")
    return max(1, min([cores, *limits]))


def usable_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or its container's limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(int(text) for text in _group_limits("memory.max") if text != "max")])


def _group_limits(name: str) -> Iterator[str]:
    """The file `name` of this process's control group (version 2) and of each that this one is in."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for innermost in (Path(line.removeprefix("0::")) for line in groups if line.startswith("0::")):
        for group in (innermost, *innermost.parents):
            file = CONTROL_GROUPS / group.relative_to("/") / name
            if file.exists():
                yield file.read_text().strip()


def machine() -> str:
    """This machine since its last start, and the namespace (a container) that its process ids are of; empty where the
    system does not state them.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty if there is no such process, or only its exit code is left,
    and where the system has no /proc.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray in the drivers that `ray job submit` starts."""

HEAD = "MIDMASK_HEAD_COMMAND"
"""Set by `deploy/demo.py`: what to type before a command that needs its cluster, which ends with it."""


def shell_command() -> str:
    """`midmask`, as it can be typed in any shell of this machine, such as one that does not search this environment."""
    script = Path(sys.executable).with_name("midmask")
    return shlex.quote(str(script)) if script.is_file() else "midmask"


def same_command() -> str:
    """The command that was typed to start this process; for a submitted job, with `ray job submit`."""
    typed = redacted(shlex.join(sys.orig_argv))
    if RAY_JOB not in os.environ:
        return typed
    uploads = json.loads(os.environ[RAY_JOB]).get("runtime_env", {}).get("working_dir")
    head = f"{os.environ[HEAD]} " if HEAD in os.environ else ""
    return f"{head}ray job submit {'--working-dir . ' if uploads else ''}-- {typed}"


ALLOW_DOWNLOAD = "MIDMASK_ALLOW_DOWNLOAD"
"""The switch that worker processes have too."""

VERBOSE = "MIDMASK_VERBOSE"

SWITCHES = {"allow_download": ALLOW_DOWNLOAD, "verbose": VERBOSE}
"""Name of the flag -> variable."""

ON = ("1", "true", "yes", "on")


def is_on(variable: str) -> bool:
    """Whether a switch is on. Any value that is not in `ON` leaves it off."""
    return os.environ.get(variable, "").strip().lower() in ON


@contextmanager
def ticking(do: Callable[[], None], interval: float, name: str) -> Iterator[None]:
    """Calls `do` while the block runs, each time so many seconds after the last call has ended.

    Args:
        interval: seconds.
        name: of the thread. The end of the block waits for a call that is not over.
    """
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(interval):
            do()

    thread = threading.Thread(target=tick, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
