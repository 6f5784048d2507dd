"""Documents cut into spans of whole sentences: what coCondenser and CoT-MAE read in pairs.

    docs shard     documents: passages, or runs of passages under one title
    sentences      packed in order into spans of at most `span_length` tokens; a longer one is cut into windows
    spans/<shard>  doc_id, number within the document, ids, overlap_ids; a document's spans stand together, and a row
                   group holds those of 2,048 documents
    starts.npy     the row of each document's first span, then the number of spans; int64

Documents of one span have no pair: they are counted and left out. No token of the others is dropped. A title is no
part of a document's text. The published code (CoT-MAE, `make_cotmae_data.py`) lets a span run over by a sentence and
cuts it when it is read; here the sentence begins the next span.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby, islice, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from midmask.artifact import Place
from midmask.corpora.ids import hash64
from midmask.derived.sentences import sentences
from midmask.errors import UserError
from midmask.identity import Config
from midmask.sharded import Inputs, Sharded
from midmask.tokens import ROW_GROUP
from midmask.vocabulary import Vocabulary, load_tokenizer

SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("number", pa.int32()),
        ("ids", pa.list_(pa.int32())),
        ("overlap_ids", pa.list_(pa.int32())),
    ]
)


class SpansConfig(Config):
    """How documents are cut into spans."""

    span_length: int = Field(128, ge=8, le=8192, description="tokens of a span at most, special tokens included")
    short_share: float = Field(
        0.15, ge=0.0, le=1.0, description="share of spans whose length limit is drawn from 2 tokens up (CoT-MAE: 0.15)"
    )
    documents: Literal["passages", "titles"] = Field(
        "passages", description="what a document is: a passage, or passages that follow each other under one title"
    )
    seed: int = Field(0, ge=0, description="of span lengths and overlaps")


class Document(NamedTuple):
    """Token ids of a text without specials; ends: where each of its sentences ends, ascending, windows included."""

    doc_id: str
    ids: list[int]
    ends: list[int]


def cut_into_spans(document: Document, limit: int, short_share: float, random_: random.Random) -> list[range]:
    """Sentence numbers of each span: as many whole sentences as fit into `limit` tokens, or into fewer, drawn."""

    def target() -> int:
        return random_.randint(2, limit) if random_.random() < short_share else limit

    spans: list[range] = []
    first, begin, room = 0, 0, target()
    for number, (before, end) in enumerate(pairwise([0, *document.ends])):
        if number > first and end - begin > room:
            spans.append(range(first, number))
            first, begin, room = number, before, target()
    if document.ends:
        spans.append(range(first, len(document.ends)))
    return spans


def overlap(document: Document, spans: list[range], number: int, limit: int, random_: random.Random) -> list[int]:
    """CoT-MAE's overlapping context of a span: 1 to half of its sentences, from its end, and what comes next.

    The last span: from its beginning, after what comes before. A span of one sentence gives half of its tokens (the
    published code: all of them).
    """
    starts = [0, *document.ends]
    span = spans[number]
    taken = random_.randint(1, max(1, len(span) // 2))
    middle = (starts[span.start] + starts[span.stop]) // 2
    if number < len(spans) - 1:
        start = starts[span.stop - taken] if len(span) > 1 else middle
        return document.ids[start : start + limit]
    end = starts[span.start + taken] if len(span) > 1 else max(middle, starts[span.start] + 1)
    return document.ids[max(0, end - limit) : end]


def _documents(config: SpansConfig, shard: Place) -> Iterator[tuple[str, str]]:
    """(doc_id, text) of the shard's documents, in order."""
    with shard.reading() as stream:
        for _, passages in groupby(
            _passages(pq.ParquetFile(stream)), partial(_document_of, config.documents == "titles")
        ):
            rows = list(passages)
            yield rows[0][0], "\n\n".join(text for _, _, text in rows)


def _passages(file: Any) -> Iterator[tuple[str, str, str]]:
    for batch in file.iter_batches(batch_size=ROW_GROUP):
        yield from zip(*(batch[name].to_pylist() for name in ("doc_id", "title", "text")), strict=True)


def _document_of(titles: bool, row: tuple[str, str, str]) -> tuple[str, str]:
    """What rows of one document share: their title, if titles make documents and there is one."""
    doc_id, title, _ = row
    return ("title", title) if titles and title else ("passage", doc_id)


def _tokenised(documents: list[tuple[str, str]], tokenizer: Any, limit: int) -> Iterator[Document]:
    """Documents as tokens: each text is cut into tokens as a whole, so that words at sentence ends stay as they are."""
    texts = [text for _, text in documents]
    encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    for (doc_id, text), ids, offsets in zip(documents, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        last_characters = np.array([end for _, end in offsets], np.int64) - 1
        bounds = np.cumsum([len(sentence) for sentence in sentences(text)])
        ends = np.searchsorted(last_characters, bounds).tolist()
        yield Document(doc_id, list(ids), _windows(ends, limit))


def _windows(ends: list[int], limit: int) -> list[int]:
    """The sentence ends, each once, and between two that are more than `limit` apart the ends of windows of `limit`."""
    cut = []
    for before, end in pairwise([0, *sorted(set(ends) - {0})]):
        cut += [*range(before + limit, end, limit), end]
    return cut


def _worker(config: SpansConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    folder = (inputs["tokens"].place / "tokenizer").local()
    tokenizer, vocabulary = load_tokenizer(folder), Vocabulary.of(folder)
    limit = config.span_length - 2

    def rows_of(document: Document) -> list[dict[str, Any]]:
        random_ = random.Random(int(hash64([document.doc_id], f"spans {config.seed}")[0]))
        spans = cut_into_spans(document, limit, config.short_share, random_)
        starts = [0, *document.ends]
        whole = [document.ids[starts[span.start] : starts[span.stop]] for span in spans]
        overlaps = [overlap(document, spans, number, limit, random_) for number in range(len(spans))]
        first, last = [vocabulary.cls_id], [vocabulary.sep_id]
        return [
            {"doc_id": document.doc_id, "number": number, "ids": first + ids + last, "overlap_ids": first + over + last}
            for number, (ids, over) in enumerate(zip(whole, overlaps, strict=True))
        ]

    def pairs(name: str) -> Iterator[list[dict[str, Any]]]:
        documents = _documents(config, inputs["corpus"].place / "docs" / name)
        while several := list(islice(documents, ROW_GROUP)):
            for document in _tokenised(several, tokenizer, limit):
                rows = rows_of(document)
                if len(rows) > 1:
                    yield rows

    def write(name: str) -> None:
        with (out / "spans" / name).writing() as stream, pq.ParquetWriter(stream, SCHEMA, compression="zstd") as file:
            documents = pairs(name)
            while rows := [row for rows in islice(documents, ROW_GROUP) for row in rows]:
                file.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), row_group_size=len(rows))

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
    docs = inputs["corpus"].place / "docs"
    read = sum(1 for name in docs.names() for _ in _documents(config, docs / name))
    if not used:
        raise UserError(
            f"spans.span_length = {config.span_length}: none of {read:,} documents has two spans; choose a smaller "
            "spans.span_length, or spans.documents=titles if passages of one title stand together"
        )
    with (out / "starts.npy").writing() as stream:
        np.save(stream, np.concatenate([*starts, [spans]]).astype(np.int64))
    facts = {"documents": read, "documents_of_one_span": read - used, "documents_in_pairs": used}
    return {**facts, "spans": spans, "tokens": tokens, "tokens_per_span": round(tokens / spans, 1)}


SPANS = Sharded("spans", "corpus/docs", lambda config, inputs, out: None, _worker, _finish)
"""The step: corpus and tokens (for their tokenizer) in, spans artifact out (spans/, starts.npy)."""
