"""A table of names. Its error lists the known names and the nearest one."""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from midmask.errors import unknown

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A read-only table: name -> entry. kind: what an entry is, for the error.

    Raises:
        UserError: on an unknown name.
    """

    def __init__(self, kind: str, entries: Mapping[str, T]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise unknown(self.kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        """Whether the name is known; unlike looking it up, asking raises nothing."""
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
