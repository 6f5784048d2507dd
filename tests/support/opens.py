"""How often files are opened, by whichever process: the kernel counts (inotify)."""

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OPEN, IS_FOLDER, NONBLOCK = 0x20, 0x40000000, os.O_NONBLOCK
"""Of <sys/inotify.h>."""


@contextmanager
def opens(*folders: Path) -> Iterator[Counter[str]]:
    """Counts by the names of files in these folders; complete when the block is left."""
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
