"""The consistency filter of pairs (E5, Wang et al. 2022): of the pseudo-queries, those are kept whose passage a judge
ranks among the best for the query.

    pseudo-queries ─► list_pairs ─► queries with judgements ─► search, or BM25 ─► keep_pairs ─► pseudo-queries

    list_pairs   queries.parquet (query_id, text, ids, cut), by query id, which is the pair's number in the order of
                 the collection; qrels.parquet, the pairs as judgements of the split `pairs`
    keep_pairs   pseudo_queries/<shard> and counts.npy, in the layout of `derived.pseudo_queries`

Passages are ranked by score, then by id. A query without results, such as one without a word that BM25 knows, keeps no
passage. Pairs that were dropped are counted in the record.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from midmask.arrays import Ints
from midmask.artifact import Artifact, Place
from midmask.corpora.writer import QRELS
from midmask.derived.pseudo_queries import FOLDER, SCHEMA, count_queries
from midmask.errors import UserError
from midmask.identity import Config
from midmask.retrieve import ranked
from midmask.sharded import Inputs, Sharded
from midmask.token_rows import make_cutter
from midmask.tokens import ROW_GROUP, TOKENISED_QUERIES

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
    with (
        (out / "queries.parquet").writing() as queries_stream,
        (out / "qrels.parquet").writing() as qrels_stream,
        pq.ParquetWriter(queries_stream, ASKED, compression="zstd") as queries,
        pq.ParquetWriter(qrels_stream, QRELS, compression="zstd") as qrels,
    ):
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
        with (pairs / FOLDER / name).reading() as stream:
            for rows in pq.ParquetFile(stream).iter_batches(batch_size=ROW_GROUP, columns=["doc_id", "queries"]):
                lists = rows["queries"]
                yield rows["doc_id"].take(pc.list_parent_indices(lists)).to_pylist(), lists.flatten().to_pylist()


def _begin(config: KeepPairsConfig, inputs: Inputs, out: Place) -> None:
    """There is nothing to do before the first shard."""


def _worker(config: KeepPairsConfig, inputs: Inputs, out: Place) -> Callable[[str], None]:
    """Inputs: `pairs`, pseudo-queries; `ranked`, the judge's ranked lists of the split `pairs`."""
    pairs = inputs["pairs"].place
    found = ranked.of_split(inputs["ranked"].place, PAIRS)
    first = _first_numbers(pairs)

    def write(name: str) -> None:
        with (pairs / FOLDER / name).reading() as stream:
            table = pq.read_table(stream, schema=SCHEMA).combine_chunks()
        kept = _are_found(table, first[name], found, config.rank)
        with (out / FOLDER / name).writing() as stream:
            pq.write_table(_keep(table, kept), stream, row_group_size=ROW_GROUP, compression="zstd")

    return write


def _first_numbers(pairs: Place) -> dict[str, int]:
    """Shard -> number of its first pair."""
    with (pairs / "counts.npy").reading() as stream:
        ends = np.cumsum(np.load(stream, allow_pickle=False), dtype=np.int64)
    numbers: dict[str, int] = {}
    passages = 0
    for name in (pairs / FOLDER).names():
        numbers[name] = int(ends[passages - 1]) if passages else 0
        with (pairs / FOLDER / name).reading() as stream:
            passages += pq.read_metadata(stream).num_rows
    return numbers


def _are_found(table: pa.Table, first: int, lists: Place, rank: int) -> NDArray[np.bool_]:
    """Whether each pair's passage is in its query's list, within the rank; [pairs of the shard], in order."""
    parents = pc.list_parent_indices(table["queries"]).combine_chunks()
    own = table["doc_id"].combine_chunks().take(parents)
    within = [("query_id", ">=", query_id(first)), ("query_id", "<", query_id(first + len(own)))]
    with lists.reading() as stream:
        rows = pq.read_table(stream, columns=["query_id", "doc_id"], filters=[*within, ("rank", "<=", rank)])
    numbers: Ints = rows["query_id"].cast(pa.int64()).to_numpy() - first
    hits = pc.equal(own.take(pa.array(numbers)), rows["doc_id"].combine_chunks()).to_numpy(zero_copy_only=False)
    kept = np.zeros(len(own), dtype=np.bool_)
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


def _finish(config: KeepPairsConfig, inputs: Inputs, out: Place) -> dict[str, Any]:
    """Writes counts.npy, and counts: `judged`, all pairs; `dropped` of them; those of `derived.pseudo_queries`.

    Raises:
        UserError: if no pair is kept.
    """
    judged = int(inputs["pairs"].result["queries"])
    found = count_queries(out)
    if not found["queries"]:
        raise UserError(
            f"pseudo_queries.keep_rank = {config.rank}: of {judged:,} pairs none has its passage among so many best "
            "for its query, so there is nothing to train on; raise pseudo_queries.keep_rank, or name another "
            "pseudo_queries.judged_by or pseudo_queries.source"
        )
    return {**found, "judged": judged, "dropped": judged - found["queries"]}


KEEP_PAIRS = Sharded(FOLDER, f"pairs/{FOLDER}", _begin, _worker, _finish)
"""The step: pseudo-queries and a judge's ranked lists in, the pairs that are kept out, as pseudo-queries."""
