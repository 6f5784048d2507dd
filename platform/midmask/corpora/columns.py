"""Columns of Arrow files: which are wanted, under which names, and how much of a file they take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from midmask.artifact import Place
from midmask.corpora.tables import arrow_batches, columns_told, readable
from midmask.errors import UserError


@dataclass(frozen=True)
class WantedColumn:
    """A column to read. names: what it may be called, the usual name first. accepts: its types. kind: these in words.
    optional: a dataset may lack it.
    """

    names: tuple[str, ...]
    accepts: Callable[[pa.DataType], bool]
    kind: str
    optional: bool = False


def find_columns(file: Place, wanted: Sequence[WantedColumn], layout: str) -> tuple[dict[str, str], float]:
    """Usual name -> the file's own name of each column that is wanted and there; and the share of the file's bytes that
    they take, by its first batch.

    Raises:
        UserError: naming a column that is missing or of another type, and the columns that are there.
    """
    with readable(file, f"wanted is {layout}"), file.reading() as stream:
        schema, batches = arrow_batches(stream)
        found = _match_columns(file, schema, wanted, layout)
        if len(found) == len(schema):
            return found, 1.0
        first = next(batches, None)
    if first is None:
        return found, 1.0
    read = sum(first[name].get_total_buffer_size() for name in found.values())
    return found, read / max(1, first.get_total_buffer_size())


def _match_columns(file: Place, schema: pa.Schema, wanted: Sequence[WantedColumn], layout: str) -> dict[str, str]:
    found = {}
    for column in wanted:
        names = [name for name in column.names if schema.names.count(name) == 1]
        fitting = [name for name in names if column.accepts(schema.field(name).type)]
        if fitting:
            found[column.names[0]] = fitting[0]
        elif not column.optional or any(not pa.types.is_null(schema.field(name).type) for name in names):
            raise UserError(
                f"{file} has no column {column.names[0]} ({column.kind}); its columns are {columns_told(schema)}; "
                f"wanted is {layout}"
            )
    return found
