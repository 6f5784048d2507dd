"""A few queries for every passage: what query-as-context pre-training reads as the passage's context.

    pseudo_queries/<shard>   doc_id, queries, ids (by the tokens' tokenizer); row by row beside passages/<shard> there
    counts.npy               how many queries each passage has, int32

    source       where the queries come from
    sentences    the passage's own sentences: a stand-in that needs no model; far easier than a query, since its words
                 are in the passage
    titles       the passage's title; of a collection of documents, with the headings that it stands under
    file:PATH    lines {"doc_id", "queries"}, {"doc_id", "query"} or doc_id<TAB>query; "_id" does for "doc_id"
    model:FOLDER a sequence-to-sequence model of Hugging Face writes them, as published

Passages without a query are counted and sit out the pre-training.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from midmask.core.config import Config, model_content
from midmask.corpora.documents.passages import sentences, splitter
from midmask.errors import UserError
from midmask.queries.config import canonical, file_content, kind_and_place, listed
from midmask.queries.given import read_file, read_given, sort_by_row
from midmask.queries.query_model import GenerateConfig, QueryGenerator
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_batches, read_metadata, read_table, writing_table
from midmask.text.tokens import ROW_GROUP, encoder

FOLDER = "pseudo_queries"
SCHEMA = pa.schema(
    [("doc_id", pa.string()), ("queries", pa.list_(pa.string())), ("ids", pa.list_(pa.list_(pa.int32())))]
)


SOURCES = ("sentences", "titles", "file:PATH", "model:FOLDER")


class PseudoQueriesConfig(Config):
    """Where the queries of passages come from."""

    source: str = Field("sentences", description=listed(SOURCES))
    per_passage: int = Field(
        5, ge=1, le=1000, description="model: queries for each passage (CoT-MoTE: 5, query-as-context: 20)"
    )
    max_length: int = Field(
        64, ge=4, le=8192, description="largest number of tokens of a query, special tokens included; the rest is cut"
    )
    generate: GenerateConfig = Field(default_factory=GenerateConfig, description="model: how queries are written")

    @field_validator("source")
    @classmethod
    def _source_is_known(cls, source: str) -> str:
        return canonical(source, SOURCES)

    @property
    def kind(self) -> str:
        return kind_and_place(self.source)[0]

    @property
    def place(self) -> str:
        """The path of the file or the model; empty where the source has none."""
        return kind_and_place(self.source)[1]

    def content(self) -> dict[str, Any]:
        """What decides the queries besides the config, as a part of the artifact's identity.

        Raises:
            UserError: if the file or the model is not there.
        """
        if self.kind == "file":
            return {"file": file_content(self.place, f"pseudo_queries.source = {self.source}")}
        if self.kind == "model":
            return dict(model_content(Path(self.place), "pseudo_queries.source"))
        return splitter() if self.kind == "sentences" else {}


Maker = Callable[[str, int, pa.RecordBatch], list[list[str]]]
"""(shard, number of the first row, passages) -> the queries of each passage."""


def _begin_queries(config: PseudoQueriesConfig, inputs: Inputs, out: Place) -> None:
    if config.kind == "file":
        sort_by_row(read_file(Place(config.place)), inputs["corpus"].place, out)


def _queries_worker(config: PseudoQueriesConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    docs = inputs["corpus"].place / "docs"
    encode = encoder((inputs["tokens"].place / "tokenizer").local(), config.max_length)
    queries_of = _maker(config, docs, out)

    def write(name: str) -> None:
        first = 0
        with writing_table(out / FOLDER / name, SCHEMA) as file:
            for rows in read_batches(docs / name, ROW_GROUP):
                queries = queries_of(name, first, rows)
                file.write_table(_tokenise(rows["doc_id"], queries, encode), row_group_size=ROW_GROUP)
                first += len(rows)

    return write


def _maker(config: PseudoQueriesConfig, docs: Place, out: Place) -> Maker:
    match config.kind:
        case "sentences":
            return lambda name, first, rows: [
                [stripped for sentence in sentences(text) if (stripped := sentence.strip())]
                for text in rows["text"].to_pylist()
            ]
        case "titles":
            return lambda name, first, rows: [[title] if title else [] for title in rows["title"].to_pylist()]
        case "model":
            generator = QueryGenerator(Path(config.place), config.generate)
            return lambda name, first, rows: generator.queries(
                rows["doc_id"].to_pylist(), rows["text"].to_pylist(), config.per_passage
            )
    rows_before = np.cumsum([0, *(read_metadata(docs / name).num_rows for name in docs.names())]).tolist()
    start = dict(zip(docs.names(), rows_before, strict=False))
    return lambda name, first, rows: read_given(out, start[name] + first, len(rows))


def _tokenise(doc_ids: pa.Array, queries: list[list[str]], encode: Callable[[list[str]], Any]) -> pa.Table:
    flat = [query for row in queries for query in row]
    ids = iter(encode(flat) if flat else [])
    return pa.table([doc_ids, queries, [[next(ids) for _ in row] for row in queries]], schema=SCHEMA)


def _finish_queries(config: PseudoQueriesConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Writes counts.npy, and counts.

    Raises:
        UserError: if no passage has a query.
    """
    lists = [read_table(out / FOLDER / name, ["queries"])["queries"] for name in (out / FOLDER).names()]
    per_passage = np.concatenate([pc.list_value_length(column).to_numpy() for column in lists])
    passages, queries, without = len(per_passage), int(per_passage.sum()), int((per_passage == 0).sum())
    if not queries:
        raise UserError(
            f"pseudo_queries.source = {config.source}: none of {passages:,} passages has a query; "
            f"choose {', '.join(SOURCES)}"
        )
    (out / "counts.npy").write_array(per_passage.astype(np.int32))
    counts = {"passages": passages, "passages_without": without, "queries": queries}
    line_counts = {"given": (out / "given.json").read_json()} if (out / "given.json").exists() else {}
    return {**counts, "queries_per_passage": round(queries / passages, 2), **line_counts}


PSEUDO_QUERIES = Sharded(
    folder=FOLDER,
    over="corpus/docs",
    begin=_begin_queries,
    worker=_queries_worker,
    finish=_finish_queries,
    stays=lambda config: bool(config.kind == "model"),
)
"""The step: corpus and tokens (for their tokenizer) in, pseudo-queries artifact out."""
