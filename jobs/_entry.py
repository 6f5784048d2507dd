"""Imported first by every job: answers in one line where this Python cannot run midmask.

A cluster runs a job with the `python3` that was on the PATH of `ray start`, which need not be the project's. This file
therefore keeps to syntax that old Pythons read, and looks for midmask without importing it.

What the jobs do is in `midmask.commands`, which the console command `midmask` runs too.
"""

import os
import sys


def lacking() -> "str | None":
    """What this Python lacks to run midmask."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return "what midmask runs on, Python 3.11 to 3.13"
    from importlib.util import find_spec

    return None if find_spec("midmask") else "midmask"


def remedy() -> str:
    """What to type next: the project's own environment if it is made, else how to make one."""
    project = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    scripts = os.path.join(project, ".venv", "bin")
    if not os.path.exists(f"{scripts}/python"):
        return (
            "Make the project's environment (`make venv`, or `pip install -c constraints.txt -e '.[cpu]'`) and use it."
        )
    return f"Type `. {scripts}/activate` before `ray start`, or `ray job submit -- {scripts}/python jobs/NAME.py`."


missing = lacking()
if missing:
    sys.stderr.write(f"error: {sys.executable} (Python {sys.version.split()[0]}) lacks {missing}. {remedy()}\n")
    sys.exit(2)


def run(name: str) -> None:
    """The job of this file's name, which is a command of midmask. Jobs sweep_NAME: `run_space`."""
    from midmask.app.job import run as run_job
    from midmask.commands import JOBS

    (job,) = [command.load() for command in JOBS.values() if command.program == name]
    run_job(job.work, job.help, job.add_flags)


def run_space(name: str, description: "str | None") -> None:
    """The sweep of `search_spaces/NAME.yaml`, which is also `midmask sweep --space FILE`."""
    from pathlib import Path

    from midmask.app.flags import add_sweep_flags
    from midmask.app.job import run as run_job

    def work(options, flags):
        from midmask.sweep.job import sweep

        sweep(options, flags, Path(__file__).resolve().parents[1] / "search_spaces" / (name + ".yaml"))

    run_job(work, description, add_sweep_flags)
