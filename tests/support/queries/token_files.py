"""Files of token ids, as other tools write them."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.store.place import Place

WRITTEN = pa.schema([("docid", pa.string()), ("input_ids", pa.list_(pa.int32()))])


def write_token_file(place: Place, tables: Iterable[pa.Table]) -> int:
    """Writes rows (columns `doc_id`, `ids`) to a file, Arrow's stream format if its name ends in .arrow, else Parquet.

    Returns:
        The number of rows.
    """
    rows = 0
    with place.writing() as stream, _writer(place, stream) as writer:
        for table in tables:
            writer.write_table(pa.table([table["doc_id"], table["ids"]], names=WRITTEN.names).cast(WRITTEN))
            rows += len(table)
    return rows


def _writer(place: Place, stream: Any) -> Any:
    if place.uri.endswith(".arrow"):
        return pa.ipc.new_stream(stream, WRITTEN)
    return pq.ParquetWriter(stream, WRITTEN, compression="zstd")


def tokenised_passages(tokens: Place) -> Iterator[pa.Table]:
    """The passages of a tokens artifact as `write_token_file` takes them."""
    for name in (tokens / "passages").names():
        with (tokens / "passages" / name).reading() as stream:
            yield pq.read_table(stream, columns=["doc_id", "ids"])
