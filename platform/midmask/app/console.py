"""Where a job's log lines go: warnings and the progress to standard error, and every line to a file.

The file is opened when the job begins to compute; what was logged before is written to it then. --verbose (or
MIDMASK_VERBOSE=1) shows every line on standard error too.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path

from midmask.switches import VERBOSE, is_on

FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")

SHOWN = (
    *("midmask.app.display", "midmask.app.tracked_job"),
    *("midmask.backend.connection", "midmask.corpora.assemble"),
)
"""Loggers whose lines are always shown: the progress; what was computed before; the cluster; rows that were refused."""

KEPT = 10_000
"""Lines that wait for the file."""


class _StandardError:
    """Writes to what `sys.stderr` is at the time: a bar takes its place while it is shown."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def set_up_logging() -> None:
    """midmask's lines and everyone's warnings, on standard error, a line each: readable in `ray job submit`'s output.
    Of midmask's lines below a warning only those of `SHOWN`, unless `MIDMASK_VERBOSE` says otherwise.
    """
    root = logging.getLogger()
    for old in [one for one in root.handlers if one.name in ("console", "waiting")]:
        root.removeHandler(old)
    console = logging.StreamHandler(_StandardError())
    console.addFilter(_is_shown)
    waiting = MemoryHandler(KEPT, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
    for name, handler in (("console", console), ("waiting", waiting)):
        handler.set_name(name)
        handler.setFormatter(FORMAT)
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("midmask").setLevel(logging.INFO)


def _is_shown(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name in SHOWN or is_on(VERBOSE)


@contextmanager
def log_file(folder: Path, job: str) -> Iterator[Path]:
    """Writes every line to a file of this process in the folder, until the block ends; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{job}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(FORMAT)
    root = logging.getLogger()
    for waiting in [one for one in root.handlers if isinstance(one, MemoryHandler)]:
        waiting.setTarget(file)
        waiting.flush()
        root.removeHandler(waiting)
    root.addHandler(file)
    try:
        yield path
    finally:
        root.removeHandler(file)
        file.close()
