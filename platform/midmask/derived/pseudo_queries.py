"""A few queries for every passage: what query-as-context pre-training reads as the passage's context.

    pseudo_queries/<shard>   doc_id, queries, ids (by the tokens' tokenizer); row by row beside passages/<shard> there
    counts.npy               how many queries each passage has, int32

    source       where the queries come from
    sentences    the passage's own sentences: a stand-in that needs no model; far easier than a query, since its words
                 are in the passage
    titles       the passage's title; of a collection of documents, with the headings that it stands under
    neighbours   the passages before and after it under the same title
    train        the queries of split train that it is judged relevant to; it then leaks them into pre-training
    file:PATH    lines {"doc_id", "queries"}, {"doc_id", "query"} or doc_id<TAB>query; "_id" does for "doc_id"
    model:FOLDER a Hugging Face model writes them: sequence-to-sequence as published, or causal with a prompt

Passages without a query are counted and sit out the pre-training. With `judged_by` and `keep_rank`, the pre-training
reads the pairs that `derived.kept_pairs` keeps of these.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field, field_validator, model_validator

from midmask.artifact import Place
from midmask.corpora.sentences import sentences, splitter
from midmask.derived.generate import GenerateConfig, Generator
from midmask.derived.given import judged_queries, read_file, read_given, sort_by_shard
from midmask.derived.neighbours import neighbour_reader
from midmask.errors import UserError
from midmask.identity import Config, added, file_fingerprint, model_content
from midmask.sharded import Inputs, Sharded
from midmask.token_rows import encoder
from midmask.tokens import ROW_GROUP

FOLDER = "pseudo_queries"
SCHEMA = pa.schema(
    [("doc_id", pa.string()), ("queries", pa.list_(pa.string())), ("ids", pa.list_(pa.list_(pa.int32())))]
)
PLAIN = ("sentences", "titles", "neighbours", "train")
SOURCES = f"{', '.join(PLAIN)}, file:PATH or model:FOLDER"
CHOICES = f"choose {SOURCES}"

BM25, MIDDLE_TRAINING = "bm25", "middle_training"
"""Judges of pairs that are no model's name."""
JUDGES = f"{BM25}, {MIDDLE_TRAINING} (this recipe's, on all pairs) or a model (minilm, a folder, a cached hub id)"


class PseudoQueriesConfig(Config):
    """Where the queries of passages come from."""

    source: str = Field("sentences", description=SOURCES)
    per_passage: int = Field(
        5, ge=1, le=1000, description="model: queries for each passage (CoT-MoTE: 5, query-as-context: 20)"
    )
    max_length: int = Field(
        64, ge=4, le=8192, description="largest number of tokens of a query, special tokens included; the rest is cut"
    )
    generate: GenerateConfig = Field(default_factory=GenerateConfig, description="model: how queries are written")
    judged_by: str | None = added(
        None, f"consistency filter: what ranks the passages for each query: {JUDGES}; none: all pairs are kept"
    )
    keep_rank: int | None = added(
        None,
        "consistency filter: a pair is kept if its passage is among so many best for its query, of all passages of the "
        "collection (E5: 2, of a million; the same rank of more passages is stricter)",
        ge=1,
        le=1000,
    )

    @field_validator("source")
    @classmethod
    def _source_is_known(cls, value: str) -> str:
        kind, colon, place = value.partition(":")
        if kind in PLAIN and not colon:
            return value
        if kind in ("file", "model") and place:  # absolute, since workers run in other folders
            return value if "://" in place else f"{kind}:{Path(place).expanduser().absolute()}"
        raise ValueError(f"there is no such source; {CHOICES}")

    @model_validator(mode="after")
    def _a_rank_has_a_judge(self) -> Self:
        if self.judged_by is not None and self.keep_rank is None:
            raise ValueError(
                f"judged_by = {self.judged_by} with keep_rank = none: say which ranks are kept, such as "
                "pseudo_queries.keep_rank=2 (E5)"
            )
        if self.keep_rank is not None and self.judged_by is None:
            raise ValueError(
                f"keep_rank = {self.keep_rank} with judged_by = none: nothing ranks the passages; set "
                f"pseudo_queries.judged_by to {JUDGES}"
            )
        return self

    @property
    def all_pairs(self) -> "PseudoQueriesConfig":
        """The config without the consistency filter."""
        return self.model_copy(update={"judged_by": None, "keep_rank": None})

    @property
    def kind(self) -> str:
        return self.source.partition(":")[0]

    @property
    def place(self) -> str:
        """The path of a file or model."""
        return self.source.partition(":")[2]


def pseudo_queries_content(config: PseudoQueriesConfig) -> dict[str, Any]:
    """Fingerprints of the source's files, as a part of the artifact's identity.

    Raises:
        UserError: if the file or the model is not there.
    """
    if config.kind == "sentences":
        return splitter()
    if config.kind == "file":
        if not Path(config.place).is_file():
            raise UserError(f"pseudo_queries.source = {config.source}: there is no such file")
        return {"file": file_fingerprint(config.place)}
    if config.kind == "model":
        return dict(model_content(Path(config.place), "pseudo_queries.source"))
    return {}


def _begin(config: PseudoQueriesConfig, inputs: Inputs, out: Place) -> None:
    corpus = inputs["corpus"].place
    if config.kind == "file":
        sort_by_shard(read_file(Place(config.place)), corpus, out)
    if config.kind == "train":
        sort_by_shard(judged_queries(corpus, "train"), corpus, out)


def _worker(config: PseudoQueriesConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    docs = inputs["corpus"].place / "docs"
    encode = encoder((inputs["tokens"].place / "tokenizer").local(), config.max_length)
    queries_of = _writer_of_queries(config, docs, out)

    def write(name: str) -> None:
        first = 0
        with (
            (docs / name).reading() as source,
            (out / FOLDER / name).writing() as stream,
            pq.ParquetWriter(stream, SCHEMA, compression="zstd") as file,
        ):
            for rows in pq.ParquetFile(source).iter_batches(batch_size=ROW_GROUP):
                queries = queries_of(name, first, rows)
                file.write_table(_tokenise(rows["doc_id"], queries, encode), row_group_size=ROW_GROUP)
                first += len(rows)

    return write


def _writer_of_queries(
    config: PseudoQueriesConfig, docs: Place, out: Place
) -> Callable[[str, int, pa.RecordBatch], list[list[str]]]:
    """(shard, number of the first row, passages) -> the queries of each passage."""
    if config.kind == "sentences":
        return lambda name, first, rows: [_split_sentences(text) for text in rows["text"].to_pylist()]
    if config.kind == "titles":
        return lambda name, first, rows: [[title] if title else [] for title in rows["title"].to_pylist()]
    if config.kind == "neighbours":
        return neighbour_reader(docs)
    if config.kind == "model":
        generator = Generator(Path(config.place), config.generate)
        return lambda name, first, rows: generator.queries(
            rows["doc_id"].to_pylist(), rows["text"].to_pylist(), config.per_passage
        )
    shards = docs.names()
    return lambda name, first, rows: read_given(out, shards.index(name), first, len(rows))


def _split_sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in sentences(text) if sentence.strip()]


def _tokenise(doc_ids: pa.Array, queries: list[list[str]], encode: Callable[[list[str]], Any]) -> pa.Table:
    flat = [query for own in queries for query in own]
    ids = iter(encode(flat) if flat else [])
    return pa.table([doc_ids, queries, [[next(ids) for _ in own] for own in queries]], schema=SCHEMA)


def _finish(config: PseudoQueriesConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Writes counts.npy, and counts.

    Raises:
        UserError: if no passage has a query.
    """
    found = count_queries(out)
    if not found["queries"]:
        raise UserError(
            f"pseudo_queries.source = {config.source}: none of {found['passages']:,} passages has a query; {CHOICES}"
        )
    return {**found, **({"given": (out / "given.json").read_json()} if (out / "given.json").exists() else {})}


def count_queries(out: Place) -> dict[str, Any]:
    """Counts the queries of all shards, and writes counts.npy."""
    counts = []
    for name in (out / FOLDER).names():
        with (out / FOLDER / name).reading() as stream:
            lists = pq.read_table(stream, columns=["queries"])["queries"]
        counts.append(pc.list_value_length(lists).to_numpy())
    per_passage = np.concatenate(counts)
    with (out / "counts.npy").writing() as stream:
        np.save(stream, per_passage.astype(np.int32))
    passages, queries, without = len(per_passage), int(per_passage.sum()), int((per_passage == 0).sum())
    per = round(queries / passages, 2)
    return {"passages": passages, "passages_without": without, "queries": queries, "queries_per_passage": per}


PSEUDO_QUERIES = Sharded(
    FOLDER, "corpus/docs", _begin, _worker, _finish, stays=lambda config: bool(config.kind == "model")
)
"""The step: corpus and tokens (for their tokenizer) in, pseudo-queries artifact out."""
