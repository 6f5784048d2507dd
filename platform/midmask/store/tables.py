"""Tables: Parquet files at a place, read whole, by row groups or in batches, and written compressed; and tables of
other people, in Parquet or Arrow, with a line for whatever is wrong with one.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.errors import UserError, reason
from midmask.store.place import Place


def read_table(
    place: Place,
    columns: Sequence[str] | None = None,
    *,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    schema: pa.Schema | None = None,
) -> pa.Table:
    """The rows of a file that pass all `filters`, (column, operator, value) each; `schema`: the types to read them as.

    Raises:
        UserError: as from `Place.reading`, here and in the other readers.
    """
    with place.reading() as stream:
        return pq.read_table(stream, columns=columns, filters=filters, schema=schema)


def read_metadata(place: Place) -> pq.FileMetaData:
    """The footer of a file: its number of rows and row groups, and what its writer stated."""
    with place.reading() as stream:
        return pq.read_metadata(stream)


def read_batches(
    place: Place, batch_size: int = 65_536, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, at most `batch_size` at a time."""
    with place.reading() as stream:
        yield from pq.ParquetFile(stream).iter_batches(batch_size, columns=columns)


def read_passages(shard: Place) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Ids, titles and texts of a shard of a corpus's `docs/`, 2,048 at a time."""
    for batch in read_batches(shard, 2_048):
        yield batch["doc_id"].to_pylist(), batch["title"].to_pylist(), batch["text"].to_pylist()


@contextlib.contextmanager
def writing_table(place: Place, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """A writer of a file, table by table; the file is there when the block ends without an error."""
    with place.writing() as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        yield writer


def write_table(table: pa.Table, place: Place, *, row_group_size: int | None = None, compression: str = "zstd") -> None:
    """Writes a file in row groups of `row_group_size` rows; by default, as pyarrow does."""
    with place.writing() as stream:
        pq.write_table(table, stream, row_group_size=row_group_size, compression=compression)


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


def describe_columns(schema: pa.Schema) -> str:
    """Names and types of a table's columns, for a message."""
    return ", ".join(f"{field.name} ({field.type})" for field in schema) or "none"
