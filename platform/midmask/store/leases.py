"""Leases: files by which processes that share a store see who still works.

A lease names its process and is written again every few seconds. Its owner is dead if the process has ended, which is
seen at once from the same machine, or if the lease has not changed for a while, which each observer measures with its
own clock.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from midmask.core.process import machine, start_of, ticking
from midmask.errors import UserError
from midmask.store.place import Place

LEASE = ".lease"
"""Ending of a lease's name."""


@dataclass(frozen=True)
class Timing:
    """The times of leases, in seconds."""

    renew_s: float = 5.0  # between two renewals of a lease
    dead_s: float = 60.0  # until the owner of an unchanged lease counts as dead
    look_s: float = 0.5  # between two looks of a process that waits
    by_process: bool = True  # whether an owner on this machine is looked up by its process id


class LeaseWatch:
    """Other processes' leases, as this process has observed them."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._seen: dict[str, tuple[Any, float]] = {}

    def lives(self, lease: Place) -> bool:
        state = _read_lease(lease)
        if state is None:
            return False
        gone = self._is_gone(state)
        if gone is not None:
            return not gone
        now = time.monotonic()
        before, since = self._seen.setdefault(lease.uri, (state, now))
        if before != state:
            self._seen[lease.uri] = (state, now)
            return True
        return now - since < self._timing.dead_s

    def is_surely_dead(self, lease: Place) -> bool:
        """Whether the owner's process is known to have ended, or has released the lease."""
        state = _read_lease(lease)
        return state is None or self._is_gone(state) is True

    def _is_gone(self, state: dict[str, Any]) -> bool | None:
        """Whether the owner of a lease has ended; None if that cannot be known from here."""
        if not self._timing.by_process or not state.get("machine") or state["machine"] != machine():
            return None
        return bool(start_of(int(state["process"])) != state["began"])


@contextlib.contextmanager
def lease(place: Place, timing: Timing) -> Iterator[None]:
    """Holds a lease: written now, written again by a thread while the block runs, then deleted."""
    # The process, its namespace (a container) and its start. Where the system does not name the machine, a lease lives
    # as long as it changes.
    owner = {"machine": machine(), "process": os.getpid(), "began": start_of(os.getpid())}
    beats = itertools.count()

    def renew() -> None:
        with contextlib.suppress(OSError, UserError):  # the work itself meets the same error and states it
            place.write_json({**owner, "beat": next(beats)})

    place.write_json({**owner, "beat": next(beats)})
    try:
        with ticking(renew, timing.renew_s, "lease"):
            yield
    finally:
        with contextlib.suppress(OSError):
            place.delete()
            if place.is_path:
                os.rmdir(os.path.dirname(place.uri))  # unless other attempts, or what this one has made, lie there


def _read_lease(lease: Place) -> dict[str, Any] | None:
    """The contents of a lease; None if there is none; empty if it cannot be read now, as while it is written again."""
    try:
        state: dict[str, Any] = lease.read_json()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return state
