"""Passages that were tokenised elsewhere: files with a list of token ids a row.

    *.parquet    columns `input_ids` (or RetroMAE's `token_ids`) and, if there is one, `docid`, `doc_id`, `_id` or `id`
    *.arrow      the same as Arrow IPC, stream or file; `save_to_disk` of Hugging Face's datasets writes streams

The files of a folder are read in the order of their names, without `cache-*`, which `datasets` leaves behind. A row
that has no id is known by its file and number, `data.parquet:17`, counted from 0.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.corpora.tables import arrow_batches, columns_told, is_id, is_list, readable
from midmask.errors import UserError

TOKENS = ("input_ids", "token_ids")
IDS = ("docid", "doc_id", "_id", "id")

BLOCK_ROWS = 2_048
LAYOUT = f"wanted are .parquet or .arrow files with a column {' or '.join(TOKENS)}, a list of token ids a row"


class TokenBlock(NamedTuple):
    """Rows that follow each other in a file. first: the number of the first, from 0; doc_ids: strings, [B];
    flat: token ids end to end, int64 [sum of lengths]; lengths: int64 [B], 0 for a row that is null.
    """

    file: str
    first: int
    doc_ids: pa.Array
    flat: NDArray[np.int64]
    lengths: NDArray[np.int64]


def token_files(folder: Place) -> list[str]:
    """The names of a folder's files, in order.

    Raises:
        UserError: if it has none.
    """
    with readable(folder, LAYOUT):
        names = folder.names()
    found = [name for name in names if name.endswith((".parquet", ".arrow")) and not name.startswith("cache-")]
    if not found:
        splits = "dataset_dict.json" in names
        hint = " It holds several splits; name the folder of one, such as its train/." if splits else ""
        raise UserError(f"{folder}: there are no token files in it; {LAYOUT}.{hint}")
    return found


def read_token_files(folder: Place) -> Iterator[TokenBlock]:
    """The rows of a folder's files, in blocks, in order.

    Raises:
        UserError: naming the file that cannot be read, lacks the column or has two, or holds a missing token id.
    """
    for file in token_files(folder):
        first = 0
        with readable(folder / file, LAYOUT):
            for batch in _read_batches(folder / file):
                for start in range(0, len(batch), BLOCK_ROWS):
                    block = _block(folder / file, file, first, batch.slice(start, BLOCK_ROWS))
                    yield block
                    first += len(block.lengths)


def _read_batches(place: Place) -> Iterator[pa.RecordBatch]:
    """The columns that are read, as `ids` and, if there is one, `doc_id`."""
    with place.reading() as stream:
        if place.uri.endswith(".parquet"):
            parquet = pq.ParquetFile(stream)
            columns = _columns(place, parquet.schema_arrow)
            for batch in parquet.iter_batches(batch_size=BLOCK_ROWS, columns=list(columns.values())):
                yield _rename_columns(batch, columns)
            return
        schema, batches = arrow_batches(stream)
        columns = _columns(place, schema)
        for batch in batches:
            yield _rename_columns(batch, columns)


def _rename_columns(batch: pa.RecordBatch, columns: dict[str, str]) -> pa.RecordBatch:
    """The columns by our names; checked first, since Arrow trusts the lengths and places that a file states."""
    batch.validate(full=True)
    return pa.RecordBatch.from_arrays([batch[name] for name in columns.values()], names=list(columns))


def _columns(place: Place, schema: pa.Schema) -> dict[str, str]:
    """ids, doc_id -> the names of these columns in a file.

    Raises:
        UserError: if no column, or more than one, is a list of token ids.
    """
    lists = [name for name in TOKENS if schema.names.count(name) == 1 and _is_list_of_tokens(schema.field(name).type)]
    if len(lists) != 1:
        told = (
            f"both {' and '.join(lists)}" if lists else f"no list of token ids; its columns are {columns_told(schema)}"
        )
        raise UserError(f"{place} has {told}; {LAYOUT}")
    names = [name for name in IDS if schema.names.count(name) == 1 and is_id(schema.field(name).type)]
    return {"ids": lists[0], **({"doc_id": names[0]} if names else {})}


def _is_list_of_tokens(kind: pa.DataType) -> bool:
    return is_list(kind) and bool(pa.types.is_integer(kind.value_type))


def _block(place: Place, file: str, first: int, batch: pa.RecordBatch) -> TokenBlock:
    ids = batch["ids"].cast(pa.list_(pa.int64()))
    flat = ids.flatten()
    if flat.null_count:
        last = first + len(batch) - 1
        raise UserError(f"{place}: a token id is missing (null) in one of the rows {first} to {last}; write it again")
    lengths = pc.fill_null(pc.list_value_length(ids), 0).to_numpy().astype(np.int64)
    numbered = pa.array([f"{file}:{first + row}" for row in range(len(batch))], pa.string())
    named = batch["doc_id"].cast(pa.string()) if "doc_id" in batch.schema.names else numbered
    return TokenBlock(file, first, pc.coalesce(named, numbered), flat.to_numpy(), lengths)
