"""Small file systems of their own, to be filled or made read-only; how often files are opened, by whichever process."""

import ctypes
import os
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """The folder, made by this call, with a tmpfs in it. Skips the test where that cannot be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small file system, and not everywhere")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


OPEN, IS_FOLDER, NONBLOCK = 0x20, 0x40000000, os.O_NONBLOCK
"""Of <sys/inotify.h>."""


@contextmanager
def opens(*folders: Path) -> Iterator[Counter[str]]:
    """Counts of the kernel (inotify) by the names of files in these folders; complete when the block is left."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(NONBLOCK)
    for folder in folders:
        if libc.inotify_add_watch(descriptor, os.fsencode(folder), OPEN) < 0:
            raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")
    counts = Counter[str]()
    yield counts
    with open(descriptor, "rb", buffering=0) as events:
        while data := events.read(1 << 20):
            while data:
                _, mask, _, length = struct.unpack_from("iIII", data)
                counts[data[16 : 16 + length].rstrip(b"\0").decode()] += not mask & IS_FOLDER
                data = data[16 + length :]
    for name in [name for name, count in counts.items() if not count]:
        del counts[name]
