"""Jobs that are ended with -9 together with all that they started."""

import os
import signal
import subprocess

import psutil


def kill_tree(process: subprocess.Popen[str]) -> None:
    """Ends a process and its descendants at once, and reads what is left of its output."""
    for pid in [*(child.pid for child in psutil.Process(process.pid).children(recursive=True)), process.pid]:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
