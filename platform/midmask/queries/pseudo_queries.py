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

Passages without a query are counted and sit out the pre-training. With `judged_by` and `keep_rank`, it reads the pairs
that a consistency filter keeps (E5, Wang et al. 2022): those whose passage a judge ranks among the best for the query.

    list_pairs   queries.parquet (query_id, text, ids, cut), by query id, which is the pair's number in the order of
                 the collection; qrels.parquet, the pairs as judgements of the split `pairs`
    keep_pairs   pseudo_queries/<shard> and counts.npy, in the layout of the pseudo-queries

Between them the queries are searched. A query without results, such as one without a word that BM25 knows, keeps no
passage.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, model_validator

from midmask.core.arrays import Ints
from midmask.core.config import Config, added
from midmask.corpora.documents.passages import sentences
from midmask.corpora.writer import QRELS
from midmask.errors import UserError
from midmask.queries.config import Sourced, listed
from midmask.queries.given import judged_queries, passage_and_queries, read_file, read_given, sort_by_shard
from midmask.queries.query_model import GenerateConfig, QueryGenerator
from midmask.retrieve import ranked
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from midmask.store.tables import read_batches, read_metadata, read_table, write_table, writing_table
from midmask.text.tokens import ROW_GROUP, TOKENISED_QUERIES, encoder, make_cutter

FOLDER = "pseudo_queries"
SCHEMA = pa.schema(
    [("doc_id", pa.string()), ("queries", pa.list_(pa.string())), ("ids", pa.list_(pa.list_(pa.int32())))]
)

BM25, MIDDLE_TRAINING = "bm25", "middle_training"
"""Judges of pairs that are no model's name."""
JUDGES = f"{BM25}, {MIDDLE_TRAINING} (this recipe's, on all pairs) or a model (minilm, a folder, a cached hub id)"


class PseudoQueriesConfig(Sourced):
    """Where the queries of passages come from."""

    SECTION = "pseudo_queries"
    SOURCES = ("sentences", "titles", "neighbours", "train", "file:PATH", "model:FOLDER")

    source: str = Field("sentences", description=listed(SOURCES))
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


Maker = Callable[[str, int, pa.RecordBatch], list[list[str]]]
"""(shard, number of the first row, passages) -> the queries of each passage."""


def _begin_queries(config: PseudoQueriesConfig, inputs: Inputs, out: Place) -> None:
    corpus = inputs["corpus"].place
    if config.kind == "file":
        lines = read_file(Place(config.place), f"pseudo_queries.source = {config.source}", passage_and_queries)
        sort_by_shard(lines, corpus, out)
    if config.kind == "train":
        sort_by_shard(judged_queries(corpus, "train"), corpus, out)


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
            return lambda name, first, rows: [_filled(sentences(text)) for text in rows["text"].to_pylist()]
        case "titles":
            return lambda name, first, rows: [[title] if title else [] for title in rows["title"].to_pylist()]
        case "neighbours":
            return _neighbour_reader(docs)
        case "model":
            generator = QueryGenerator(Path(config.place), config.generate)
            return lambda name, first, rows: generator.queries(
                rows["doc_id"].to_pylist(), rows["text"].to_pylist(), config.per_passage
            )
    shards = docs.names()
    return lambda name, first, rows: read_given(out, shards.index(name), first, len(rows))


def _filled(texts: Iterable[str]) -> list[str]:
    """The texts without white space around them, and without those of nothing else."""
    return [text.strip() for text in texts if text.strip()]


def _neighbour_reader(docs: Place) -> Maker:
    """The texts before and after each passage under its title. A passage without a title has none, and a passage in
    another shard is no neighbour.
    """

    @lru_cache(maxsize=1)
    def columns(name: str) -> list[tuple[str, str]]:
        table = read_table(docs / name, ["title", "text"])
        return list(zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True))

    def read(name: str, first: int, rows: pa.RecordBatch) -> list[list[str]]:
        passages = columns(name)
        neighbours = []
        for row, title in enumerate(rows["title"].to_pylist(), start=first):
            around = [*passages[max(row - 1, 0) : row], *passages[row + 1 : row + 2]]
            neighbours.append(_filled(text for other, text in around if title and other == title))
        return neighbours

    return read


def _tokenise(doc_ids: pa.Array, queries: list[list[str]], encode: Callable[[list[str]], Any]) -> pa.Table:
    flat = [query for row in queries for query in row]
    ids = iter(encode(flat) if flat else [])
    return pa.table([doc_ids, queries, [[next(ids) for _ in row] for row in queries]], schema=SCHEMA)


def _finish_queries(config: PseudoQueriesConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Writes counts.npy, and counts.

    Raises:
        UserError: if no passage has a query.
    """
    counts = count_queries(out)
    if not counts["queries"]:
        raise UserError(
            f"pseudo_queries.source = {config.source}: none of {counts['passages']:,} passages has a query; "
            f"choose {', '.join(config.SOURCES)}"
        )
    return {**counts, **({"given": (out / "given.json").read_json()} if (out / "given.json").exists() else {})}


def count_queries(out: Place) -> dict[str, Any]:
    """Counts the queries of all shards, and writes counts.npy."""
    counts = []
    for name in (out / FOLDER).names():
        lists = read_table(out / FOLDER / name, ["queries"])["queries"]
        counts.append(pc.list_value_length(lists).to_numpy())
    per_passage = np.concatenate(counts)
    (out / "counts.npy").write_array(per_passage.astype(np.int32))
    passages, queries, without = len(per_passage), int(per_passage.sum()), int((per_passage == 0).sum())
    per = round(queries / passages, 2)
    return {"passages": passages, "passages_without": without, "queries": queries, "queries_per_passage": per}


PSEUDO_QUERIES = Sharded(
    folder=FOLDER,
    over="corpus/docs",
    begin=_begin_queries,
    worker=_queries_worker,
    finish=_finish_queries,
    stays=lambda config: bool(config.kind == "model"),
)
"""The step: corpus and tokens (for their tokenizer) in, pseudo-queries artifact out."""


PAIRS = "pairs"
"""The split that pairs are judgements of."""

ASKED = pa.schema([TOKENISED_QUERIES.field("query_id"), ("text", pa.string()), *list(TOKENISED_QUERIES)[1:]])


class ListPairsConfig(Config):
    """How far the judge reads queries."""

    max_length: int = Field(ge=4, le=8192, description="largest number of tokens of a query; the rest is cut")


class KeepPairsConfig(Config):
    """Which pairs are kept."""

    rank: int = Field(ge=1, le=1000, description="a pair is kept if its passage is among so many best for its query")


def list_pairs(config: ListPairsConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: `pairs`, pseudo-queries; `tokens`, the collection as the judge reads it, for its tokenizer and
    its words before each query.
    """
    tokens, count = inputs["tokens"], 0
    cut_rows = make_cutter((tokens.place / "tokenizer").local(), config.max_length)
    prompt = str(tokens.record.get("config", {}).get("query_prompt", ""))
    with writing_table(out / "queries.parquet", ASKED) as queries, writing_table(out / "qrels.parquet", QRELS) as qrels:
        for doc_ids, texts in _read_pairs(inputs["pairs"].place):
            query_ids = [query_id(count + row) for row in range(len(texts))]
            ids, cut = cut_rows([prompt + text for text in texts])
            queries.write_table(pa.table([query_ids, texts, ids, cut], schema=ASKED))
            judged = [pa.repeat(PAIRS, len(texts)), query_ids, doc_ids, pa.repeat(1, len(texts))]
            qrels.write_table(pa.table(judged, names=QRELS.names).cast(QRELS))
            count += len(texts)
    return {"queries": count}


def query_id(number: int) -> str:
    """The id of a pair's query; ids are sorted as the numbers are."""
    return f"{number:012d}"


def _read_pairs(pairs: Place) -> Iterator[tuple[list[str], list[str]]]:
    """Passages' ids and queries of all pairs in the order of the collection, a row group of passages at a time."""
    for name in (pairs / FOLDER).names():
        for rows in read_batches(pairs / FOLDER / name, ROW_GROUP, ["doc_id", "queries"]):
            lists = rows["queries"]
            yield rows["doc_id"].take(pc.list_parent_indices(lists)).to_pylist(), lists.flatten().to_pylist()


def _filter_worker(config: KeepPairsConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    """Inputs: `pairs`, pseudo-queries; `ranked`, the judge's ranked lists of the split `pairs`."""
    pairs = inputs["pairs"].place
    lists = ranked.of_split(inputs["ranked"].place, PAIRS)
    first = _first_numbers(pairs)

    def write(name: str) -> None:
        table = read_table(pairs / FOLDER / name, schema=SCHEMA).combine_chunks()
        kept = _are_found(table, first[name], lists, config.rank)
        write_table(_keep(table, kept), out / FOLDER / name, row_group_size=ROW_GROUP)

    return write


def _first_numbers(pairs: Place) -> dict[str, int]:
    """Shard -> number of its first pair."""
    ends = np.cumsum((pairs / "counts.npy").read_array(), dtype=np.int64)
    numbers: dict[str, int] = {}
    passages = 0
    for name in (pairs / FOLDER).names():
        numbers[name] = int(ends[passages - 1]) if passages else 0
        passages += read_metadata(pairs / FOLDER / name).num_rows
    return numbers


def _are_found(table: pa.Table, first: int, lists: Place, rank: int) -> NDArray[np.bool_]:
    """Whether each pair's passage is in its query's list, within the rank; [pairs of the shard], in order."""
    parents = pc.list_parent_indices(table["queries"]).combine_chunks()
    doc_ids = table["doc_id"].combine_chunks().take(parents)
    within = [("query_id", ">=", query_id(first)), ("query_id", "<", query_id(first + len(doc_ids)))]
    rows = read_table(lists, ["query_id", "doc_id"], filters=[*within, ("rank", "<=", rank)])
    numbers: Ints = rows["query_id"].cast(pa.int64()).to_numpy() - first
    hits = pc.equal(doc_ids.take(pa.array(numbers)), rows["doc_id"].combine_chunks()).to_numpy(zero_copy_only=False)
    kept = np.zeros(len(doc_ids), dtype=np.bool_)
    kept[numbers[hits]] = True
    return kept


def _keep(table: pa.Table, kept: NDArray[np.bool_]) -> pa.Table:
    """The rows with these of their pairs."""
    parents = pc.list_parent_indices(table["queries"]).to_numpy()
    counts = np.bincount(parents[kept], minlength=len(table))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    columns = [table[name].combine_chunks().flatten().filter(pa.array(kept)) for name in ("queries", "ids")]
    lists = [pa.ListArray.from_arrays(offsets, column) for column in columns]
    return pa.table([table["doc_id"], *lists], schema=SCHEMA)


def _finish_filter(config: KeepPairsConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Writes counts.npy, and counts: `judged`, all pairs; `dropped` of them; those of the pseudo-queries.

    Raises:
        UserError: if no pair is kept.
    """
    judged = int(inputs["pairs"].result["queries"])
    counts = count_queries(out)
    if not counts["queries"]:
        raise UserError(
            f"pseudo_queries.keep_rank = {config.rank}: of {judged:,} pairs none has its passage among so many best "
            "for its query, so there is nothing to train on; raise pseudo_queries.keep_rank, or name another "
            "pseudo_queries.judged_by or pseudo_queries.source"
        )
    return {**counts, "judged": judged, "dropped": judged - counts["queries"]}


KEEP_PAIRS = Sharded(
    folder=FOLDER,
    over=f"pairs/{FOLDER}",
    begin=lambda config, inputs, out: None,
    worker=_filter_worker,
    finish=_finish_filter,
)
"""The step: pseudo-queries and a judge's ranked lists in, the pairs that are kept out, as pseudo-queries."""
