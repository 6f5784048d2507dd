"""What of the machine this process may use, and what identifies a process, so that another one can see whether it
still runs.
"""

import os
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """CPU cores that this process may use; `taskset`, Slurm and containers give it fewer than the machine has."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no such thing
        cores = os.cpu_count() or 1
    quotas = [text.split() for text in _group_limits("cpu.max")]
    first_version = [CONTROL_GROUPS / "cpu" / f"cpu.cfs_{name}_us" for name in ("quota", "period")]
    if all(file.exists() for file in first_version):
        quotas.append([file.read_text().strip() for file in first_version])
    limits = (int(quota) // int(period) for quota, period in quotas if quota not in ("max", "-1"))
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
    for own in (Path(line.removeprefix("0::")) for line in groups if line.startswith("0::")):
        for group in (own, *own.parents):
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
