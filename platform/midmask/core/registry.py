"""A table of names whose errors list the choices."""

from collections.abc import Mapping
from typing import TypeVar

from midmask.errors import unknown

T = TypeVar("T")


class Registry(dict[str, T]):
    """A table: name -> entry, that raises UserError for an unknown name. kind: what an entry is, for the error."""

    def __init__(self, kind: str, entries: Mapping[str, T]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: str) -> T:
        raise unknown(self.kind, name, self)
