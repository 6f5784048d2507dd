"""Passages that were cut or tokenised elsewhere: files of spans of documents, and of token ids.

Spans, as coCondenser and CoT-MAE are given them, a line a document, plain or gzip'd:

    {"doc_id": …, "spans": [text, …]}       `_id` does for `doc_id`; ids may be integers or strings, and become strings

Token ids, a row a passage:

    *.parquet    columns `input_ids` (or RetroMAE's `token_ids`) and, if there is one, `docid`, `doc_id`, `_id` or `id`
    *.arrow      the same as Arrow IPC, stream or file; `save_to_disk` of Hugging Face's datasets writes streams

The files of a folder are read in the order of their names, without `cache-*`, which `datasets` leaves behind. A row
that has no id is known by its file and number, `data.parquet:17`, counted from 0.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.corpora.opening import parse_lines, write_lines
from midmask.errors import UserError
from midmask.exchange.negatives_files import id_in
from midmask.store.place import Place
from midmask.store.tables import arrow_batches, columns_told, is_id, is_list, readable

SPANS_LAYOUT = '{"doc_id": …, "spans": [text, …]}'


class DocumentSpans(NamedTuple):
    """A document's spans, in their order in it."""

    doc_id: str
    spans: list[str]


def write_spans(place: Place, documents: Iterable[DocumentSpans]) -> int:
    """Writes a file, gzip'd if its name ends in .gz; returns the number of documents."""
    count = 0
    with write_lines(place) as stream:
        for document in documents:
            row = {"doc_id": document.doc_id, "spans": document.spans}
            stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            count += 1
    return count


def read_spans(place: Place) -> Iterator[tuple[int, DocumentSpans]]:
    """(number from 1, document) of the lines of a file that are not blank.

    Raises:
        UserError: naming file and line, where `spans` is not a list of texts.
    """
    return parse_lines(place, _document, SPANS_LAYOUT)


def _document(row: Any) -> DocumentSpans:
    spans = row["spans"]
    if not isinstance(spans, list):
        raise ValueError(f"{spans!r} is not a list")
    for span in spans:
        if not isinstance(span, str):
            raise ValueError(f"{span!r} is not a text")
    document = DocumentSpans(id_in(row["doc_id"] if "doc_id" in row else row["_id"]), spans)
    "".join([document.doc_id, *spans]).encode()  # a lone surrogate, written as an escape, is no text
    return document


TOKENS = ("input_ids", "token_ids")
IDS = ("docid", "doc_id", "_id", "id")

BLOCK_ROWS = 2_048
TOKENS_LAYOUT = f"wanted are .parquet or .arrow files with a column {' or '.join(TOKENS)}, a list of token ids a row"


class TokenBlock(NamedTuple):
    """Consecutive rows of a file."""

    file: str
    first: int  # number of the first row, from 0
    doc_ids: pa.Array  # strings, [B]
    flat: NDArray[np.int64]  # token ids end to end, [sum of lengths]
    lengths: NDArray[np.int64]  # tokens of each row, [B]; 0 for a row that is null


def token_files(folder: Place) -> list[str]:
    """The names of a folder's files, in order.

    Raises:
        UserError: if it has none.
    """
    with readable(folder, TOKENS_LAYOUT):
        names = folder.names()
    files = [name for name in names if name.endswith((".parquet", ".arrow")) and not name.startswith("cache-")]
    if not files:
        splits = "dataset_dict.json" in names
        hint = " It holds several splits; name the folder of one, such as its train/." if splits else ""
        raise UserError(f"{folder}: there are no token files in it; {TOKENS_LAYOUT}.{hint}")
    return files


def read_token_files(folder: Place) -> Iterator[TokenBlock]:
    """The rows of a folder's files, in blocks, in order.

    Raises:
        UserError: naming the file that cannot be read, lacks the column or has two, or holds a missing token id.
    """
    for file in token_files(folder):
        first = 0
        with readable(folder / file, TOKENS_LAYOUT):
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
            batches = parquet.iter_batches(batch_size=BLOCK_ROWS, columns=list(columns.values()))
        else:
            schema, batches = arrow_batches(stream)
            columns = _columns(place, schema)
        for batch in batches:
            batch.validate(full=True)  # Arrow trusts the lengths and places that a file states
            yield pa.RecordBatch.from_arrays([batch[name] for name in columns.values()], names=list(columns))


def _columns(place: Place, schema: pa.Schema) -> dict[str, str]:
    """ids, doc_id -> the names of these columns in a file.

    Raises:
        UserError: if no column, or more than one, is a list of token ids.
    """
    lists = [name for name in TOKENS if schema.names.count(name) == 1 and _is_list_of_tokens(schema.field(name).type)]
    if len(lists) != 1:
        columns = (
            f"both {' and '.join(lists)}" if lists else f"no list of token ids; its columns are {columns_told(schema)}"
        )
        raise UserError(f"{place} has {columns}; {TOKENS_LAYOUT}")
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
