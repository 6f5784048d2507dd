"""Fingerprints of the files that recipes name: each file is read once, however many recipes name it.

The driver reads; other nodes, which may not see these places, get what it has found.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Survey:
    """Remembers what collections, folders and files hold, by fingerprint. Plain data, so it travels to any node."""

    def __init__(self) -> None:
        self._found: dict[str, Mapping[str, Any]] = {}

    def find(self, read: Callable[[T], Mapping[str, Any]], of: T) -> Mapping[str, Any]:
        """What `read` finds of a config or a name; it is called once for each.

        Raises:
            UserError: as `read` does, each time.
        """
        key = f"{read.__module__}.{read.__qualname__} {of!r}"
        if key not in self._found:
            self._found[key] = read(of)
        return self._found[key]
