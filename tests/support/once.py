"""What several processes of tests use and one of them makes."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


class MadeOnce:
    """`made_once(name, make)`: the folder of this name, common to all processes of a run of pytest, which the first to
    ask for it lets `make` fill while the others wait. Where that fails, the next to ask begins anew."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        base = factory.getbasetemp()
        self.root = base.parent if base.name.startswith("popen-") else base  # pytest-xdist gives each process one below

    def __call__(self, name: str, make: Callable[[Path], None]) -> Path:
        folder, finished = self.root / "once" / name, self.root / "once" / f"{name}.finished"
        folder.parent.mkdir(exist_ok=True)
        with open(folder.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not finished.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                finished.touch()
        return folder
