"""The cores of this process, and what identifies a process, so that another one can see whether it still runs."""

import os
from pathlib import Path


def usable_cores() -> int:
    """CPU cores that this process may use: all of the machine's, unless it was given some of them (`taskset`)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no such thing
        return os.cpu_count() or 1


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
    """When a process started, in the kernel's ticks; empty if there is no such process, or only its exit code is left.

    Without /proc it is "0" for every living process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "0"
