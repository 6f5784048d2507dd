"""Tables: Parquet files at a place, read whole, by row groups or in batches, and written compressed."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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


def read_row_groups(place: Place, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The row groups of a file, one after the other."""
    with place.reading() as stream:
        file = pq.ParquetFile(stream)
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=columns)


def read_batches(
    place: Place, batch_size: int = 65_536, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, at most `batch_size` at a time."""
    with place.reading() as stream:
        yield from pq.ParquetFile(stream).iter_batches(batch_size, columns=columns)


@contextlib.contextmanager
def writing_table(place: Place, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """A writer of a file, table by table; the file is there when the block ends without an error."""
    with place.writing() as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        yield writer


def write_table(table: pa.Table, place: Place, *, row_group_size: int | None = None, compression: str = "zstd") -> None:
    """Writes a file in row groups of `row_group_size` rows; by default, as pyarrow does."""
    with place.writing() as stream:
        pq.write_table(table, stream, row_group_size=row_group_size, compression=compression)
