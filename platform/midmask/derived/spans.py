"""Documents cut into spans of whole sentences, or spans from a file: what coCondenser and CoT-MAE read in pairs.

    docs shard     documents: passages, or runs of passages under one title
    sentences      packed in order into spans of at most `span_length` tokens; a longer one is cut into windows
    spans/<shard>  doc_id, number within the document, ids, overlap_ids; a document's spans stand together, and a row
                   group holds those of 2,048 documents
                   with `recurring` also sharing: numbers of spans of the document that share a phrase with the span
    sharing.npy    with `recurring`: how many these are, for each span; int8
    starts.npy     the row of each document's first span, then the number of spans; int64

Documents of one span have no pair: they are counted and left out. No token of the others is dropped. A title is no
part of a document's text. The published code (CoT-MAE, make_cotmae_data.py) lets a span run over by a sentence and
cuts it when it is read; here the sentence begins the next span.

source = file:PATH: lines {"doc_id", "spans": [text, …]}, a document being a passage of the corpus. A span stays as it
is given unless it is longer than `span_length`: then it is cut as documents are, and its pieces are spans. The fields
`short_share` and `documents` are of no effect. Beside the spans lie the files of `given`.
"""

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.derived.cutting import Document, cut_into_spans, overlap
from midmask.derived.sharing import find_sharing
from midmask.derived.span_documents import SpansConfig, begin, count_documents, documents_of_shards
from midmask.errors import UserError
from midmask.exchange.spans_file import DocumentSpans
from midmask.randomness.streams import python_stream
from midmask.randomness.texts import hash64
from midmask.sharded import Inputs, Sharded
from midmask.tokens import ROW_GROUP
from midmask.vocabulary import Vocabulary

SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("number", pa.int32()),
        ("ids", pa.list_(pa.int32())),
        ("overlap_ids", pa.list_(pa.int32())),
    ]
)


SHARING = pa.field("sharing", pa.list_(pa.int32()))
"""A column more, with `recurring`."""


def _spans_of(config: SpansConfig, document: Document) -> tuple[list[range], random.Random]:
    """The sentences of each span, and the draws that come after those of lengths."""
    random_ = python_stream(int(hash64([document.doc_id], f"spans {config.seed}")[0]))
    if config.file:
        return list(document.spans), random_
    return cut_into_spans(document, config.span_length - 2, config.short_share, random_), random_


def span_texts(config: SpansConfig, inputs: Inputs, place: Place) -> Iterator[DocumentSpans]:
    """The text of the spans of an artifact, which holds their tokens alone: documents are read and cut once more.

    Args:
        place: the artifact's.
    """
    documents = documents_of_shards(config, inputs, place)
    for name in (inputs["corpus"].place / "docs").names():
        for document in documents(name):
            spans, _ = _spans_of(config, document)
            if len(spans) > 1:
                yield DocumentSpans(document.doc_id, [document.text_of(span) for span in spans])


def _worker(config: SpansConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    vocabulary = Vocabulary.of((inputs["tokens"].place / "tokenizer").local())
    documents = documents_of_shards(config, inputs, out)
    schema = SCHEMA.append(SHARING) if config.recurring else SCHEMA

    def rows_of(document: Document) -> list[dict[str, Any]]:
        spans, random_ = _spans_of(config, document)
        starts = [0, *document.ends]
        whole = [document.ids[starts[span.start] : starts[span.stop]] for span in spans]
        limit = config.span_length - 2
        overlaps = [overlap(document, spans, number, limit, random_) for number in range(len(spans))]
        first, last = [vocabulary.cls_id], [vocabulary.sep_id]
        rows: list[dict[str, Any]] = [
            {"doc_id": document.doc_id, "number": number, "ids": first + ids + last, "overlap_ids": first + over + last}
            for number, (ids, over) in enumerate(zip(whole, overlaps, strict=True))
        ]
        if config.recurring and len(rows) > 1:
            shared = find_sharing([row["ids"] for row in rows], vocabulary, random_)
            rows = [{**row, "sharing": others} for row, others in zip(rows, shared, strict=True)]
        return rows

    def write(name: str) -> None:
        with (out / "spans" / name).writing() as stream, pq.ParquetWriter(stream, schema, compression="zstd") as file:
            several = (rows for document in documents(name) if len(rows := rows_of(document)) > 1)
            while rows := [row for own in islice(several, ROW_GROUP) for row in own]:
                file.write_table(pa.Table.from_pylist(rows, schema=schema), row_group_size=len(rows))

    return write


def _finish(config: SpansConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Writes starts.npy and counts.

    Raises:
        UserError: if no document has two spans.
    """
    starts, spans, tokens = [], 0, 0
    for name in (out / "spans").names():
        with (out / "spans" / name).reading() as stream:
            table = pq.read_table(stream, columns=["number", "ids"])
        starts.append(spans + np.flatnonzero(table["number"].to_numpy() == 0))
        spans += len(table)
        tokens += int(pc.sum(pc.list_value_length(table["ids"])).as_py() or 0)
    used = sum(map(len, starts))
    facts = count_documents(config, inputs, out)
    read = facts.pop("documents")
    if not used and config.file:
        raise UserError(f"spans.source = {config.source}: none of {read:,} documents has two spans; {facts['given']}")
    if not used:
        raise UserError(
            f"spans.span_length = {config.span_length}: none of {read:,} documents has two spans; choose a smaller "
            "spans.span_length, or spans.documents=titles if passages of one title stand together"
        )
    bounds = np.concatenate([*starts, [spans]]).astype(np.int64)
    with (out / "starts.npy").writing() as stream:
        np.save(stream, bounds)
    counts = {"documents": read, "documents_of_one_span": read - used, "documents_in_pairs": used, "spans": spans}
    if config.recurring:
        counts["documents_that_share_a_phrase"] = _count_sharing(out, bounds)
    return {**counts, "tokens": tokens, "tokens_per_span": round(tokens / spans, 1), **facts}


def _count_sharing(out: Place, starts: NDArray[np.int64]) -> int:
    """Writes sharing.npy; the number of documents of which two spans share a phrase.

    Raises:
        UserError: if there is none.
    """
    lengths = []
    for name in (out / "spans").names():
        with (out / "spans" / name).reading() as stream:
            lengths.append(pc.list_value_length(pq.read_table(stream, columns=["sharing"])["sharing"]).to_numpy())
    counts = np.concatenate(lengths).astype(np.int8)
    documents = int(np.count_nonzero(np.add.reduceat(counts, starts[:-1], dtype=np.int64)))
    if not documents:
        raise UserError(
            "spans.recurring = true: no document has two spans with a phrase in common; choose larger documents "
            "(spans.documents=titles)"
        )
    with (out / "sharing.npy").writing() as stream:
        np.save(stream, counts)
    return documents


SPANS = Sharded("spans", "corpus/docs", begin, _worker, _finish)
"""The step: corpus and tokens (for their tokenizer) in, spans artifact out (spans/, starts.npy)."""
