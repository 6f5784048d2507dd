"""ir_datasets itself: its registry, and its records read without its downloads.

The package fetches what it lacks and has no switch for that. So each of its downloads is refused while it reads, and
nothing leaves the machine; what it needs to unpack or to index, it writes to its own folder (IR_DATASETS_HOME, else
~/.ir_datasets).
"""

import contextlib
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any, NoReturn

from midmask.errors import UserError, how_to_install, unknown

BLOCK_ROWS = 2_048
_SWAP = threading.Lock()


class MissingLibrary(UserError):
    """Something is not on this machine; `what`: a file, or the address that it would be fetched from."""

    def __init__(self, dataset_id: str, rows: str, what: str) -> None:
        super().__init__(missing_line(dataset_id, [(dataset_id, rows, what)]))
        self.what = what


class _RefusedByLibrary(Exception):
    """The address of what would have been fetched."""


def records(dataset_id: str, rows: str) -> Iterator[Any]:
    """The documents ("docs"), queries or judgements ("qrels") of an id, as the package's named tuples.

    Raises:
        MissingLibrary: for a file that is not here. UserError: for whatever else the package raises.
    """
    read = getattr(dataset(dataset_id), f"{rows}_iter")
    with _offline(dataset_id, rows):
        own = iter(read())
    while True:
        with _offline(dataset_id, rows):
            several = list(islice(own, BLOCK_ROWS))
        if not several:
            return
        yield from several


def missing_line(dataset_id: str, lacking: list[tuple[str, str, str]]) -> str:
    """The error's line for a corpus that lacks parts: (id, rows, missing file) each."""
    parts = "; ".join(f"{rows} of {own} ({what})" for own, rows, what in lacking)
    commands = " && ".join(f"ir_datasets export {own} {rows} > /dev/null" for own, rows, _ in lacking)
    return (
        f"ir_datasets:{dataset_id}: not on this machine: {parts}. midmask fetches nothing; to have ir_datasets fetch "
        f"it, or say where to ask for it, type: {commands}"
    )


def children(dataset_id: str) -> list[str]:
    """Ids one step below."""
    depth = dataset_id.count("/") + 1
    return sorted(
        name for name in _library().registry if name.startswith(f"{dataset_id}/") and name.count("/") == depth
    )


def dataset(dataset_id: str) -> Any:
    """
    Raises:
        UserError: without the package, and for an id that the package does not have.
    """
    registry = _library().registry
    try:
        return registry[dataset_id]
    except KeyError:
        raise unknown("ir_datasets id", dataset_id, registry) from None


def _library() -> Any:
    """The package; importing it makes its folder, so it is not imported before it is asked for."""
    try:
        import ir_datasets
    except ImportError:
        raise UserError(
            "corpora ir_datasets:ID need the package ir-datasets, which is not installed; type: "
            f"{how_to_install('ir-datasets')}"
        ) from None
    return ir_datasets


@contextlib.contextmanager
def _offline(dataset_id: str, rows: str) -> Iterator[None]:
    """In here all sources of the package but local files refuse, and what it raises becomes an error for people."""
    util = _library().util
    with _SWAP:
        kept = {kind: kind.stream for kind in util.BaseDownload.__subclasses__() if kind is not util.LocalDownload}
        try:
            for kind in kept:
                kind.stream = _refuse
            yield
        except Exception as error:  # readers of two hundred formats
            if what := _missing_file(error):
                raise MissingLibrary(dataset_id, rows, what) from None
            said = " ".join(str(error).split())[:300]
            raise UserError(
                f"ir_datasets:{dataset_id}: its {rows} cannot be read: {type(error).__name__}: {said}"
            ) from None
        finally:
            for kind, stream in kept.items():
                kind.stream = stream


def _refuse(source: Any) -> NoReturn:
    raise _RefusedByLibrary(getattr(source, "url", None) or getattr(source, "uri", repr(source)))


def _missing_file(error: Exception) -> str:
    """The source or file that is not there, if that is what is wrong."""
    tried = error.args[1] if isinstance(error, RuntimeError) and len(error.args) == 2 else []
    errors = [error, *(one for _, one in tried)] if isinstance(tried, list) else [error]
    for one in errors:
        # A file that has to be asked for is an OSError without a number.
        if isinstance(one, _RefusedByLibrary | FileNotFoundError) or (isinstance(one, OSError) and one.errno is None):
            return " ".join(str(one).split())
    return ""
