"""The documents that spans are cut from, as tokens: passages, runs of passages under one title, or lines of a file."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby, islice
from typing import Any, Literal

import pyarrow.parquet as pq
from pydantic import Field, field_validator

from midmask.artifact import Place
from midmask.corpora.sentences import splitter
from midmask.derived.cutting import Document, join_spans, tokenise_pieces
from midmask.derived.given import GivenLine, count_given, read_given, sort_by_shard
from midmask.errors import UserError
from midmask.exchange.spans_file import read_spans
from midmask.identity import Config, added
from midmask.sharded import Inputs
from midmask.tokens import ROW_GROUP
from midmask.vocabulary import load_tokenizer


class SpansConfig(Config):
    """How documents are cut into spans, or where their spans come from."""

    source: str = Field(
        "cut", description='cut: documents are cut here; file:PATH: spans from lines {"doc_id", "spans": [text, …]}'
    )
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

    @field_validator("source")
    @classmethod
    def _source_is_known(cls, value: str) -> str:
        kind, _, place = value.partition(":")
        if kind == "file" and place:
            return f"file:{Place.named(place)}"
        if value == "cut":
            return value
        raise ValueError("there is no such source; choose cut or file:PATH")

    @property
    def file(self) -> str:
        """The path of the file of spans; empty if documents are cut here."""
        return self.source.partition(":")[2]


def spans_content(config: SpansConfig) -> dict[str, Any]:
    """What decides the spans besides the config: the splitter of sentences, and the file that they are read from.

    Raises:
        UserError: if that is not there.
    """
    if not config.file:
        return splitter()
    if not Place(config.file).exists():
        raise UserError(f"spans.source = {config.source}: there is no such file")
    return {**splitter(), "file": Place(config.file).digest()}


def _read_documents(config: SpansConfig, shard: Place) -> Iterator[tuple[str, str]]:
    """(doc_id, text) of the shard's documents, in order."""
    with shard.reading() as stream:
        for _, passages in groupby(
            _read_passages(pq.ParquetFile(stream)), partial(_document_of, config.documents == "titles")
        ):
            rows = list(passages)
            yield rows[0][0], "\n\n".join(text for _, _, text in rows)


def _read_passages(file: Any) -> Iterator[tuple[str, str, str]]:
    for batch in file.iter_batches(batch_size=ROW_GROUP):
        yield from zip(*(batch[name].to_pylist() for name in ("doc_id", "title", "text")), strict=True)


def _document_of(titles: bool, row: tuple[str, str, str]) -> tuple[str, str]:
    """What rows of one document share: their title, if titles make documents and there is one."""
    doc_id, title, _ = row
    return ("title", title) if titles and title else ("passage", doc_id)


def _read_given(config: SpansConfig) -> Iterator[GivenLine]:
    """The file's lines; a blank span is a line of its own, of which nothing is kept."""
    for number, document in read_spans(Place(config.file)):
        usable = [span for span in document.spans if span.strip()]
        for span in document.spans:
            if not span.strip():
                yield GivenLine(number, document.doc_id, [span], "blank span")
        if usable:
            yield GivenLine(number, document.doc_id, usable)
        elif not document.spans:
            yield GivenLine(number, document.doc_id, [""], "no span")


def begin(config: SpansConfig, inputs: Inputs, out: Place) -> None:
    """Sorts the lines of a file by the shards of the corpus, once, before any shard is cut."""
    if config.file:
        sort_by_shard(_read_given(config), inputs["corpus"].place, out)


def documents_of_shards(config: SpansConfig, inputs: Inputs, out: Place) -> Callable[[str], Iterator[Document]]:
    """Name of a shard -> its documents, in order: those of the corpus, or those that the file has spans of."""
    tokenizer = load_tokenizer((inputs["tokens"].place / "tokenizer").local())
    docs, limit = inputs["corpus"].place / "docs", config.span_length - 2

    def cut_here(name: str) -> Iterator[Document]:
        documents = _read_documents(config, docs / name)
        while several := list(islice(documents, ROW_GROUP)):
            yield from tokenise_pieces(several, tokenizer, limit)

    def as_given(name: str) -> Iterator[Document]:
        number, first = docs.names().index(name), 0
        with (docs / name).reading() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(batch_size=ROW_GROUP, columns=["doc_id"]):
                texts = read_given(out, number, first, len(batch))
                for doc_id, own in zip(batch["doc_id"].to_pylist(), texts, strict=True):
                    if own:
                        parts = list(tokenise_pieces([(doc_id, text) for text in own], tokenizer, limit))
                        yield join_spans(doc_id, parts, limit)
                first += len(batch)

    return as_given if config.file else cut_here


def count_documents(config: SpansConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """How many documents were read; of a file also how many spans they have there, and what became of its lines."""
    docs = inputs["corpus"].place / "docs"
    if not config.file:
        return {"documents": sum(1 for name in docs.names() for _ in _read_documents(config, docs / name))}
    documents, spans = count_given(out)
    passages = 0
    for name in docs.names():
        with (docs / name).reading() as stream:
            passages += pq.ParquetFile(stream).metadata.num_rows
    facts = {"spans_given": spans, "passages_without_spans": passages - documents}
    return {"documents": documents, **facts, "given": (out / "given.json").read_json()}
