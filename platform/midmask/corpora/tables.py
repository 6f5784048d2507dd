"""Tables of other people, in Parquet or Arrow: which columns a file has, and one line for whatever is wrong with it."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midmask.errors import UserError, reason
from midmask.store.place import Place


@contextlib.contextmanager
def readable(name: object, layout: str) -> Iterator[None]:
    """Reading in here raises UserError for a file that is damaged, of another kind, or holds what is no text.

    Args:
        name: the file, for the message. layout: what is wanted instead.
    """
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{name}: it cannot be read ({reason(error)}); {layout}") from None


def arrow_batches(stream: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and record batches of a seekable stream in Arrow's IPC format, as a stream or as a file."""
    is_file = stream.read(6) == b"ARROW1"
    stream.seek(0)
    if is_file:
        file = pa.ipc.open_file(stream)
        return file.schema, (file.get_batch(number) for number in range(file.num_record_batches))
    batches = pa.ipc.open_stream(stream)
    return batches.schema, iter(batches)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_id(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold ids: texts or whole numbers."""
    return is_text(kind) or bool(pa.types.is_integer(kind))


def is_list_of_ids(kind: pa.DataType) -> bool:
    return is_list(kind) and is_id(kind.value_type)


def is_list_of_numbers(kind: pa.DataType) -> bool:
    return is_list(kind) and is_number(kind.value_type)


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def columns_told(schema: pa.Schema) -> str:
    """Names and types of a table's columns, for a message."""
    return ", ".join(f"{field.name} ({field.type})" for field in schema) or "none"


@dataclass(frozen=True)
class WantedColumn:
    """A column to read."""

    names: tuple[str, ...]  # accepted names, the usual one first
    accepts: Callable[[pa.DataType], bool]  # whether a type is accepted
    kind: str  # the accepted types in words
    optional: bool = False  # whether a dataset may lack the column


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
    columns = {}
    for column in wanted:
        names = [name for name in column.names if schema.names.count(name) == 1]
        fitting = [name for name in names if column.accepts(schema.field(name).type)]
        if fitting:
            columns[column.names[0]] = fitting[0]
        elif not column.optional or any(not pa.types.is_null(schema.field(name).type) for name in names):
            raise UserError(
                f"{file} has no column {column.names[0]} ({column.kind}); its columns are {columns_told(schema)}; "
                f"wanted is {layout}"
            )
    return columns
