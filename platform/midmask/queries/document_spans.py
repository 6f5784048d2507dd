"""Documents cut into spans of whole sentences: what coCondenser and CoT-MAE read in pairs.

    docs shard     documents: passages, or runs of passages under one title
    sentences      packed in order into spans of at most `span_length` tokens; a longer one is cut into windows
    spans/<shard>  doc_id, number within the document, ids, overlap_ids; a document's spans stand together, and a row
                   group holds those of 2,048 documents
                   with `recurring` also sharing: numbers of spans of the document that share a phrase with the span
    sharing.npy    with `recurring`: how many these are, for each span; int8
    starts.npy     the row of each document's first span, then the number of spans; int64

Documents of one span have no pair: they are counted and left out. No token of the others is dropped. A title is no
part of a document's text. The published code (CoT-MAE, make_cotmae_data.py) lets a span run over by a sentence and
cuts it when it is read; here the sentence begins the next span. Spider draws its pairs from spans that share a phrase.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain, groupby, islice, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from pydantic import Field
from torch import Tensor

from midmask.core.batch import TokenRows
from midmask.core.config import Config, added
from midmask.core.randomness import hash64, python_stream
from midmask.corpora.documents.passages import sentences
from midmask.errors import UserError
from midmask.masking.words import LEAST_WORDS, MOST_WORDS, phrases
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_passages, read_table, writing_table
from midmask.text.tokens import ROW_GROUP
from midmask.text.vocabulary import Vocabulary, load_tokenizer


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


def tokenise_documents(documents: list[tuple[str, str]], tokenizer: Any, limit: int) -> Iterator[Document]:
    """(doc_id, text) as tokens: each text is cut into tokens as a whole, so that words at sentence ends stay as they
    are.
    """
    texts = [text for _, text in documents]
    encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    for (doc_id, text), ids, offsets in zip(documents, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        last_characters = np.array([end for _, end in offsets], np.int64) - 1
        bounds = np.cumsum([len(sentence) for sentence in sentences(text)])
        ends = _windows(np.searchsorted(last_characters, bounds).tolist(), limit)
        yield Document(doc_id, list(ids), ends)


def _windows(ends: list[int], limit: int) -> list[int]:
    """The sentence ends, each once, and between two that are more than `limit` apart the ends of windows of `limit`."""
    cut = []
    for before, end in pairwise([0, *sorted(set(ends) - {0})]):
        cut += [*range(before + limit, end, limit), end]
    return cut


PARTNERS = 32
"""Other spans that are kept for a span at most; of more, so many are drawn."""


def find_sharing(spans: list[list[int]], vocabulary: Vocabulary, random_: random.Random) -> list[list[int]]:
    """The numbers of the other spans that have a phrase of 2 to 10 words in common with each span, ascending.

    Args:
        spans: token ids of a document's spans, special tokens included.
    """
    lengths = [len(span) for span in spans]
    width = max(lengths)
    ids_BL = torch.tensor([span + [vocabulary.pad_id] * (width - len(span)) for span in spans])
    text = TokenRows(ids_BL, torch.tensor(lengths), torch.zeros(len(spans), dtype=torch.int64))
    having: defaultdict[int, set[int]] = defaultdict(set)  # hash of a phrase -> the spans that have it
    for runs in phrases(text, vocabulary, range(LEAST_WORDS, MOST_WORDS + 1), width):
        numbers: Tensor = runs.valid_BL.nonzero()[:, 0]
        for phrase, number in zip(runs.hashes_BL[runs.valid_BL].tolist(), numbers.tolist(), strict=True):
            having[phrase].add(number)
    partners: list[set[int]] = [set() for _ in spans]
    for members in having.values():
        for number in members:
            partners[number] |= members - {number}
    several = map(sorted, partners)
    return [numbers if len(numbers) <= PARTNERS else sorted(random_.sample(numbers, PARTNERS)) for numbers in several]


class SpansConfig(Config):
    """How documents are cut into spans."""

    span_length: int = Field(
        128, ge=8, le=8192, description="largest number of tokens of a span, special tokens included"
    )
    short_share: float = Field(
        0.15, ge=0.0, le=1.0, description="share of spans whose length limit is drawn from 2 tokens up (CoT-MAE: 0.15)"
    )
    documents: Literal["passages", "titles"] = Field(
        "passages", description="what a document is: a passage, or passages that follow each other under one title"
    )
    recurring: bool = added(
        False, description="note which spans of a document have words in common, which Spider reads pairs of"
    )
    seed: int = Field(0, ge=0, description="seed of span lengths and overlaps")


def _read_documents(config: SpansConfig, shard: Place) -> Iterator[tuple[str, str]]:
    """(doc_id, text) of the shard's documents, in order; passages without a title are documents by themselves."""

    def document(row: tuple[str, str, str]) -> tuple[bool, str]:
        doc_id, title, _ = row
        by_title = config.documents == "titles" and bool(title)
        return by_title, title if by_title else doc_id

    rows = (row for columns in read_passages(shard) for row in zip(*columns, strict=True))
    for _, passages in groupby(rows, document):
        doc_ids, _, texts = zip(*passages, strict=True)
        yield doc_ids[0], "\n\n".join(texts)


IDS = pa.list_(pa.int32())
SCHEMA = pa.schema([("doc_id", pa.string()), ("number", pa.int32()), ("ids", IDS), ("overlap_ids", IDS)])
SHARING = pa.field("sharing", IDS)
"""A column more, with `recurring`."""


def _worker(config: SpansConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    vocabulary = Vocabulary.of((inputs["tokens"].place / "tokenizer").local())
    tokenizer = load_tokenizer((inputs["tokens"].place / "tokenizer").local())
    docs, limit = inputs["corpus"].place / "docs", config.span_length - 2
    schema = SCHEMA.append(SHARING) if config.recurring else SCHEMA
    first, last = [vocabulary.cls_id], [vocabulary.sep_id]

    def rows_of(document: Document) -> list[dict[str, Any]]:
        """A row for each span of a document of several; a document of one has none."""
        random_ = python_stream(int(hash64([document.doc_id], f"spans {config.seed}")[0]))
        spans = cut_into_spans(document, limit, config.short_share, random_)
        if len(spans) < 2:
            return []
        rows: list[dict[str, Any]] = []
        starts = [0, *document.ends]
        for number, span in enumerate(spans):
            ids = first + document.ids[starts[span.start] : starts[span.stop]] + last
            overlap_ids = first + overlap(document, spans, number, limit, random_) + last
            rows.append({"doc_id": document.doc_id, "number": number, "ids": ids, "overlap_ids": overlap_ids})
        if config.recurring:
            shared = find_sharing([row["ids"] for row in rows], vocabulary, random_)
            rows = [{**row, "sharing": others} for row, others in zip(rows, shared, strict=True)]
        return rows

    def documents(name: str) -> Iterator[Document]:
        texts = _read_documents(config, docs / name)
        while several := list(islice(texts, ROW_GROUP)):
            yield from tokenise_documents(several, tokenizer, limit)

    def write(name: str) -> None:
        with writing_table(out / "spans" / name, schema) as file:
            several = filter(None, map(rows_of, documents(name)))
            while rows := list(chain.from_iterable(islice(several, ROW_GROUP))):
                file.write_table(pa.Table.from_pylist(rows, schema=schema), row_group_size=len(rows))

    return write


def _finish(config: SpansConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Writes starts.npy and counts.

    Raises:
        UserError: if no document has two spans.
    """
    starts, spans, tokens = [], 0, 0
    for name in (out / "spans").names():
        table = read_table(out / "spans" / name, ["number", "ids"])
        starts.append(spans + np.flatnonzero(table["number"].to_numpy() == 0))
        spans += len(table)
        tokens += int(pc.sum(pc.list_value_length(table["ids"])).as_py() or 0)
    used = sum(map(len, starts))
    docs = inputs["corpus"].place / "docs"
    read = sum(1 for name in docs.names() for _ in _read_documents(config, docs / name))
    if not used:
        raise UserError(
            f"spans.span_length = {config.span_length}: none of {read:,} documents has two spans; choose a smaller "
            "spans.span_length, or spans.documents=titles if passages of one title stand together"
        )
    bounds = np.concatenate([*starts, [spans]]).astype(np.int64)
    (out / "starts.npy").write_array(bounds)
    counts = {"documents": read, "documents_of_one_span": read - used, "documents_in_pairs": used, "spans": spans}
    if config.recurring:
        _keep_sharing(out)
    return {**counts, "tokens": tokens, "tokens_per_span": round(tokens / spans, 1)}


def _keep_sharing(out: Place) -> None:
    """Writes sharing.npy.

    Raises:
        UserError: if no two spans of a document share a phrase.
    """
    tables = [read_table(out / "spans" / name, ["sharing"]) for name in (out / "spans").names()]
    counts = pc.list_value_length(pa.concat_tables(tables)["sharing"]).to_numpy().astype(np.int8)
    if not counts.any():
        raise UserError(
            "spans.recurring = true: no document has two spans with a phrase in common; choose larger documents "
            "(spans.documents=titles)"
        )
    (out / "sharing.npy").write_array(counts)


SPANS = Sharded(folder="spans", over="corpus/docs", worker=_worker, finish=_finish)
"""The step: corpus and tokens (for their tokenizer) in, spans artifact out (spans/, starts.npy)."""
