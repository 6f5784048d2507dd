"""Tables of other people, in Parquet or Arrow: which columns a file has, and one line for whatever is wrong with it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from midmask.errors import UserError, reason


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


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def columns_told(schema: pa.Schema) -> str:
    """Names and types of a table's columns, for a message."""
    return ", ".join(f"{field.name} ({field.type})" for field in schema) or "none"
