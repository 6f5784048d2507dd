"""Ranked lists: who was found, in which order, in Parquet and TREC files; and the fusion of BM25's with an encoder's.

Order: query id, then score descending, then document id ascending (code points). Ties are broken here, once, before
anything else sees the list. trec_eval breaks them by document id *descending* and other tools by input order; so that
all of them rank alike, a run file is written with strictly falling scores. The list of another tool can be ordered by
trec_eval's rule instead (`TieRule`).

BM25 and an encoder together are the strong baseline that needs no training. Two lists of a query become one, by

- `rrf`, reciprocal rank fusion (Cormack, Clarke & Büttcher 2009), which needs no common scale:

      score(passage) = (1 - s) / (60 + rank in the encoder's list) + s / (60 + rank in BM25's list)

- `convex`, the convex combination of min-max normalised scores (Bruch, Gai & Ingber 2023), which keeps how far a
  passage is ahead of the next:

      score(passage) = (1 - s) * encoder' + s * bm25',    x' = (x - min) / (max - min)

  min and max are taken over that list of that query; scores that are all equal become 1. A list's last passage
  therefore has 0, and the list's depth, through its minimum, is part of what is computed.

A passage that a list lacks gets 0 from it.
"""

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from midmask.core.arrays import Doubles
from midmask.core.config import Config, added
from midmask.corpora.opening import text_lines, write_lines
from midmask.errors import UserError, known_names
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table

SCHEMA = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("score", pa.float32()), ("rank", pa.int32())])
"""rank counts from 1 within a query."""

TieRule = Literal["midmask", "trec_eval"]
"""Order of documents of equal score: ids ascending (midmask), or descending (trec_eval)."""

TAG = "midmask"
"""In the last column of the run files of evaluations."""

LARGEST_SCORE = float(np.finfo(np.float32).max)

TREC_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")


def order(scored: pa.Table, depth: int | None = None, *, ties: TieRule = "midmask") -> pa.Table:
    """A ranked list from (query_id, doc_id, score) rows in any order, cut to the first `depth` of each query.

    Raises:
        ValueError: if a score is not finite.
    """
    scored = scored.select(["query_id", "doc_id", "score"]).cast(pa.schema(list(SCHEMA)[:3])).combine_chunks()
    if not np.isfinite(scored["score"].to_numpy()).all():
        raise ValueError("a ranked list cannot hold scores that are not finite")
    by_id = "ascending" if ties == "midmask" else "descending"
    return with_ranks(scored.sort_by([("query_id", "ascending"), ("score", "descending"), ("doc_id", by_id)]), depth)


def with_ranks(listed: pa.Table, depth: int | None = None) -> pa.Table:
    """Rows (query_id, doc_id, score), best first within each query, with their ranks; cut to the first `depth`."""
    names, position = listed["query_id"].combine_chunks(), np.arange(len(listed))
    begins = np.append(True, pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False))[: len(listed)]
    rank = position - np.maximum.accumulate(np.where(begins, position, 0)) + 1
    table = listed.combine_chunks().append_column(SCHEMA.field("rank"), pa.array(rank, pa.int32()))
    return table if depth is None else table.filter(pc.less_equal(table["rank"], depth))


def read(place: Place) -> pa.Table:
    """A ranked list from Parquet."""
    return read_table(place, schema=SCHEMA)


def read_queries(place: Place, query_ids: Sequence[str], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of some queries. Of a large file, only row groups are read that may hold one of them."""
    within = [("query_id", ">=", min(query_ids)), ("query_id", "<=", max(query_ids))]
    table = read_table(place, columns, filters=within)
    return table.filter(pc.is_in(table["query_id"], value_set=pa.array(query_ids, pa.string())))


def of_split(artifact: Place, split: str) -> Place:
    """The file of a split's ranked lists in an artifact.

    Raises:
        UserError: naming the splits that it has, if this one is not among them.
    """
    lists = artifact / "ranked"
    splits = [name.removesuffix(".parquet") for name in lists.names()]
    if split not in splits:
        raise UserError(f"{artifact}: no ranking of split {split!r}. {known_names(splits)}")
    return lists / f"{split}.parquet"


def write(place: Place, tables: Iterable[pa.Table]) -> int:
    """Writes ordered tables, one row group each, and returns the number of rows; memory holds one table at a time."""
    rows = 0
    # A document is met too seldom, and a score never twice: a dictionary of them would only cost time.
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": ["query_id", "rank"]}
    with place.writing() as stream, pq.ParquetWriter(stream, SCHEMA, **options) as writer:
        for table in tables:
            writer.write_table(table.cast(SCHEMA), row_group_size=max(1, len(table)))
            rows += len(table)
    return rows


def write_trec(place: Place, ranked: pa.Table, tag: str) -> None:
    """The six columns `query Q0 document rank score tag`, ranks from 1; gzip'd if the name ends in .gz.

    Scores fall strictly in single precision (trec_eval reads floats), by the smallest steps where they were equal.

    Raises:
        UserError: if an id holds white space, which the format cannot express.
    """
    columns = [ranked[name].to_pylist() for name in ("query_id", "doc_id", "rank")]
    for name in itertools.chain(*columns[:2]):
        if not name or name.split() != [name]:
            raise UserError(
                f"{place}: the id {name!r} is empty or holds white space, which a TREC run file cannot express"
            )
    scores = _strictly_falling(ranked["score"].to_numpy(), ranked["rank"].to_numpy())
    rows = zip(*columns, scores.tolist(), strict=True)
    with write_lines(place) as out:
        while some := list(itertools.islice(rows, 65_536)):
            lines = (f"{query} Q0 {doc} {rank} {score:.9g} {tag}\n" for query, doc, rank, score in some)
            out.write("".join(lines).encode())


def _strictly_falling(score: NDArray[np.float32], rank: NDArray[np.int32]) -> NDArray[np.float32]:
    """Scores lowered where they do not fall; rank 1 begins a new query."""
    score = score.astype(np.float32)
    low = np.float32(-np.inf)
    tied = np.flatnonzero((score[1:] >= score[:-1]) & (rank[1:] > 1)) + 1
    done = 0
    for row in tied.tolist():
        # One lowered score can reach the ones below it, which were not tied before.
        row = max(row, done)
        while row < len(score) and rank[row] > 1 and score[row] >= score[row - 1]:
            score[row] = np.nextafter(score[row - 1], low)
            row += 1
        done = row
    return score


def read_trec(place: Place, ties: TieRule = "midmask") -> pa.Table:
    """A ranked list from a TREC run file, plain or gzip'd. Its rank column is not believed (BEIR writes 0 for all).

    Raises:
        UserError: naming file and line, for a line without six columns, a score that is no number in single precision,
            a document twice; or for a file without a line.
    """
    lists: dict[str, dict[str, float]] = {}
    for number, line in text_lines(place):
        query_id, doc_id, score = _parse_trec(place, number, line)
        scores_of = lists.setdefault(query_id, {})
        if doc_id in scores_of:
            raise _bad_line(place, number, line, f"document {doc_id!r} stands twice for query {query_id!r}")
        scores_of[sys.intern(doc_id)] = score
    if not lists:
        raise UserError(f"{place}: no line in it; a TREC run file has lines `{' '.join(TREC_COLUMNS)}`")
    count = sum(map(len, lists.values()))
    scores = (score for scores_of in lists.values() for score in scores_of.values())
    rows = {
        "query_id": pa.array([query_id for query_id, scores_of in lists.items() for _ in scores_of], pa.string()),
        "doc_id": pa.array([doc_id for scores_of in lists.values() for doc_id in scores_of], pa.string()),
        "score": pa.array(np.fromiter(scores, dtype=np.float32, count=count)),
    }
    return order(pa.table(rows), ties=ties)


def _parse_trec(place: Place, number: int, line: str) -> tuple[str, str, float]:
    """(query, document, score) of a line."""
    parts = line.split()
    if len(parts) != len(TREC_COLUMNS):
        layout = f"{len(TREC_COLUMNS)} ({' '.join(TREC_COLUMNS)})"
        raise _bad_line(place, number, line, f"{len(parts)} columns instead of {layout}")
    try:
        score = float(parts[4])
    except ValueError:
        raise _bad_line(place, number, line, f"the score {parts[4]!r} is no number") from None
    if not math.isfinite(score) or abs(score) > LARGEST_SCORE:
        raise _bad_line(place, number, line, f"the score {parts[4]!r} is not finite in single precision")
    return parts[0], parts[2], score


def _bad_line(place: Place, number: int, line: str, fault: str) -> UserError:
    return UserError(f"{place}, line {number}: {fault}; the line is {line.strip()[:80]!r}")


Fusion = Literal["rrf", "convex"]
"""How two lists are joined: by ranks, or by scores."""

RRF_CONSTANT = 60
"""The paper's, of reciprocal ranks: how little the first ranks count more than those behind them."""


class FuseConfig(Config):
    """How two ranked lists of the same queries become one."""

    split: str = Field(description="split whose lists are joined")
    depth: int = Field(ge=1, le=100_001, description="passages ranked for each query")
    bm25_share: float = Field(gt=0, lt=1, description="share of BM25's list in a passage's score")
    fusion: Fusion = added("rrf", "by ranks (rrf), or by min-max normalised scores (convex)")


def fuse_lists(config: FuseConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: `encoder` and `bm25`, artifacts with `ranked/SPLIT.parquet`; writes the same.

    Returns:
        splits (split -> queries, ranked, empty_slots), read and recall, as of the encoder's search.
    """
    lists = {role: read(of_split(inputs[role].place, config.split)) for role in ("encoder", "bm25")}
    fused = fuse(lists["encoder"], lists["bm25"], config.bm25_share, config.depth, config.fusion)
    rows = write(out / "ranked" / f"{config.split}.parquet", [fused])
    searched = inputs["encoder"].result
    return {
        "splits": {config.split: {**searched["splits"][config.split], "ranked": rows}},
        "read": searched["read"],
        **{name: searched[name] for name in ("recall",) if name in searched},
    }


def fuse(encoder: pa.Table, bm25: pa.Table, bm25_share: float, depth: int, fusion: Fusion = "rrf") -> pa.Table:
    """One ranked list of two, cut to `depth`. Scores are computed in float64 and stored in float32."""
    scores = _SCORES[fusion]
    parts = []
    for ranked_list, share in ((encoder, 1 - bm25_share), (bm25, bm25_share)):
        score = pa.array(scores(ranked_list, share))
        parts.append(ranked_list.select(["query_id", "doc_id"]).append_column("score", score))
    joined = pa.concat_tables(parts).group_by(["query_id", "doc_id"]).aggregate([("score", "sum")])
    return order(joined.rename_columns(["query_id", "doc_id", "score"]), depth)


def _by_rank(ranked_list: pa.Table, share: float) -> Doubles:
    """The list's part of each row's score: its reciprocal rank."""
    score: Doubles = share / (RRF_CONSTANT + ranked_list["rank"].to_numpy().astype(np.float64))
    return score


def _by_score(ranked_list: pa.Table, share: float) -> Doubles:
    """The list's part of each row's score: `share` for a query's best scores, 0 for its lowest ones."""
    score = ranked_list["score"].to_numpy().astype(np.float64)
    first = np.flatnonzero(ranked_list["rank"].to_numpy() == 1)  # a query's rows stand together, the best one first
    rows = np.diff(np.append(first, len(score)))
    low = np.repeat(score[first + rows - 1], rows)
    span = np.repeat(score[first], rows) - low
    scaled: Doubles = np.divide(score - low, span, out=np.ones_like(score), where=span > 0)
    return share * scaled


_SCORES: Mapping[Fusion, Callable[[pa.Table, float], Doubles]] = {"rrf": _by_rank, "convex": _by_score}
