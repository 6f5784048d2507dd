"""The processes of a running job, also of one whose driver is dead: what they are, and how they are ended.

This process adopts the orphans among its descendants (a subreaper, as `man 2 prctl` calls it), so that nothing that a
job has started can leave its tree.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time

import psutil

CHANNEL = re.compile(r"ray::(_Post|Post|Channel|Mailbox)")
AGENT = re.compile(r"ray::(RuntimeEnvAgent|DashboardAgent|DashboardHead|LogMonitor)")
"""Daemons of Ray's with a worker's kind of title; a raylet ends with its agents."""

TRIAL = re.compile(r"ray::(ImplicitFunc|trainable|bundle)")
PR_SET_CHILD_SUBREAPER = 36
RAY_FOLDER = re.compile(r"/tmp/mm[^/\s'\":,]+")


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose own parent dies."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def alive(pid: int | None = None) -> list[psutil.Process]:
    """Every descendant of a process, by default of this one, that has not ended."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def title(process: psutil.Process) -> str:
    """The command line, which a Ray worker sets to `ray::` and what it runs; empty if the process has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kind(process: psutil.Process, driver: int) -> str:
    """driver, raylet, channel, trial, worker, idle (a worker that runs nothing) or other."""
    text = title(process)
    if process.pid == driver:
        return "driver"
    if text.split(" ")[0].endswith("/raylet"):
        return "raylet"
    if not text.startswith("ray::") or AGENT.match(text):
        return "other"
    if text.startswith("ray::IDLE"):
        return "idle"
    if CHANNEL.match(text):
        return "channel"
    return "trial" if TRIAL.match(text) else "worker"


def victims(wanted: str, driver: int) -> list[psutil.Process]:
    """Whom a kill of this kind ends; for `group` all processes of the job, the driver first."""
    everyone = [psutil.Process(driver), *alive(driver)]
    if wanted == "group":
        return everyone
    found = [process for process in everyone if kind(process, driver) == wanted]
    return sorted(found, key=lambda process: process.pid)


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


def wait_until_gone(within: float) -> list[psutil.Process]:
    """Waits for all descendants to end; those that are alive after `within` seconds."""
    deadline = time.monotonic() + within
    while (left := alive()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def bury() -> None:
    """Collects the exit codes of adopted orphans. To be called while no job of this process runs."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def ray_folders() -> set[str]:
    """Temporary folders of the local Rays of which anything runs now."""
    return {folder for process in alive() for folder in RAY_FOLDER.findall(title(process))}


def stacks() -> str:
    """What every Python process of the job is doing."""
    texts = []
    for process in alive():
        name = title(process)
        if "python" in name or name.startswith("ray::"):
            done = subprocess.run(["py-spy", "dump", "--pid", str(process.pid)], capture_output=True, text=True)
            texts.append(f"--- {process.pid} {name[:150]}\n{done.stdout or done.stderr}")
    return "\n".join(texts)
