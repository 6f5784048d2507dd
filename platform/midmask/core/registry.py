"""Tables of names: a registry whose errors list the choices, and a package's names that are imported when used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from midmask.errors import unknown

T = TypeVar("T")


class Registry(dict[str, T]):
    """A table: name -> entry, that raises UserError for an unknown name. kind: what an entry is, for the error."""

    def __init__(self, kind: str, entries: Mapping[str, T]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: str) -> T:
        raise unknown(self.kind, name, self)


def import_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        homes: public name -> the module, by its full name, that it is imported from.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return load
