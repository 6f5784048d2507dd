"""Processes of this test's own Ray, by the name that Ray gives them."""

from collections.abc import Iterator

import psutil


def ray_processes(name: str) -> Iterator[psutil.Process]:
    """The live processes below this one whose command line has the name; those that end meanwhile are left out."""
    for process in psutil.Process().children(recursive=True):
        try:
            if name in " ".join(process.cmdline()):
                yield process
        except psutil.Error:
            continue
