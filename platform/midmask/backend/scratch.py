"""Private temporary folders that go away with the process that made them, also when it is killed.

Each is `/tmp/mm…` with mode 0700: short, since Ray's sockets lie below it and their paths may have 107 bytes, and
private, although Ray makes the folders that it is given writable for everyone. The file `owner` in it is locked by the
process that made the folder. The kernel drops the lock when the process dies, and the next process of the same user
that makes such a folder deletes it.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/tmp")
PREFIX = "mm"
OWNER = "owner"
RAY = "ray"
"""The folder of a Ray, below that of the process that started it."""


class Scratch:
    """A private folder below `root`, locked by this process until it is removed."""

    def __init__(self, root: Path = ROOT) -> None:
        remove_abandoned(root)
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        unlocked = self.folder / f"{OWNER}.new"
        self._lock = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.folder / OWNER)  # under its name it is locked already, so that nobody deletes the folder

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


@contextlib.contextmanager
def scratch(root: Path = ROOT) -> Iterator[Path]:
    """A private folder for the length of a block."""
    private = Scratch(root)
    try:
        yield private.folder
    finally:
        private.remove()


def remove_abandoned(root: Path) -> None:
    """Deletes this user's folders below `root` whose owner has died."""
    for folder in root.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # deleted by another process meanwhile, or another user's
            if folder.stat().st_uid == os.getuid() and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Whether nobody holds the lock, or the last processes of a dying Ray have made the folder again, without one."""
    owner = folder / OWNER
    return not _is_locked(owner) if owner.exists() else (folder / RAY).exists()


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
