"""What a row of fine-tuning is: a query with a passage that answers it, and passages that do not."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.artifact import Place
from midmask.corpora.ids import mix
from midmask.errors import UserError
from midmask.train.examples import Texts, joined
from midmask.train.plan import Rows
from midmask.train.table import Ints, TokenTable, read_table


@dataclass(frozen=True)
class PairExamples:
    """Fine-tuning: a row is a query with a positive passage in the split, and `per_query` negatives.

    Negatives come from the ranked list `negatives` (columns query_id, doc_id), all its rows being fair choices; where a
    query has too few of them, passages drawn at random stand in. Batches are not grouped by length: in-batch negatives
    would become clusters of one length.
    """

    tokens: Place
    corpus: Place
    split: str
    fingerprint: str
    negatives: Place | None = None
    per_query: int = 0
    query_length: int = 32
    passage_length: int = 128

    def open(self) -> "PairSource":
        return PairSource(self)


class PairSource:
    """Queries of a split that have a positive, in the order of `queries.parquet`."""

    lengths: Ints | None = None

    def __init__(self, examples: PairExamples) -> None:
        self._examples = examples
        self.group = 1 + examples.per_query
        self._table = TokenTable(examples.tokens / "passages")
        queries = read_table(examples.tokens / "queries.parquet")
        qrels = read_table(examples.corpus / "qrels.parquet")
        wanted = pc.and_(pc.equal(qrels["split"], examples.split), pc.greater_equal(qrels["grade"], 1))
        self._positives = self._lists(qrels.filter(wanted), queries["query_id"])
        self._kept = np.flatnonzero(np.diff(self._positives.offsets))
        self.count = len(self._kept)
        if not self.count:
            raise UserError(
                f"split {examples.split!r} of {examples.corpus}: no query has a relevant passage to train on"
            )
        self._queries = queries
        empty = queries.slice(0, 0).append_column("doc_id", pa.array([], pa.string()))
        mined = read_table(examples.negatives) if examples.negatives else empty
        self._negatives = self._lists(mined, queries["query_id"])

    def _lists(self, judged: pa.Table, query_ids: pa.ChunkedArray) -> "Lists":
        """The passages that a table of (query_id, doc_id) names, by query."""
        query = pc.index_in(judged["query_id"], value_set=query_ids).combine_chunks()
        passage = self._table.rows_of(judged["doc_id"])
        if query.null_count or (passage < 0).any():
            raise UserError(
                f"{self._examples.tokens}: judgements or negatives name queries or passages that the tokens lack; "
                "tokenise the corpus that they belong to"
            )
        return Lists.of(query.to_numpy(zero_copy_only=False).astype(np.int64), passage, len(query_ids))

    def read(self, rows: Rows, seed: int, epoch: int) -> Texts:
        queries = self._kept[rows]
        keys = mix(mix(np.uint64(seed), np.uint64(epoch)), queries.astype(np.uint64))
        passages = np.array(
            [self._choose(query, key) for query, key in zip(queries, keys, strict=True)], dtype=np.int64
        )
        ids = self._queries["ids"].take(pa.array(queries)).combine_chunks()
        offsets = ids.offsets.to_numpy()
        values = ids.values.to_numpy()
        texts = [values[start:end] for start, end in pairwise(offsets)]
        return {
            "query": joined([cut(text, self._examples.query_length) for text in texts], queries),
            "passage": joined(
                [cut(text, self._examples.passage_length) for text in self._table.read(passages.reshape(-1))],
                passages.reshape(-1),
            ),
        }

    def names(self, rows: Rows) -> list[str]:
        return [str(name) for name in self._queries["query_id"].take(pa.array(self._kept[rows])).to_pylist()]

    def _choose(self, query: int, key: np.uint64) -> Rows:
        """One positive, then `per_query` different negatives, by hash of the key; int64 [group]."""
        positives, mined = self._positives[query], self._negatives[query]
        positive = positives[int(mix(key, np.uint64(0))) % len(positives)]
        mined = mined[~np.isin(mined, positives)]
        order = np.argsort(mix(key, 1 + np.arange(len(mined), dtype=np.uint64)), kind="stable")
        chosen = list(mined[order[: self.group - 1]])
        taken = {int(row) for row in (*chosen, *positives)}
        draw = 1 << 32
        while len(chosen) < self.group - 1:
            row = int(mix(key, np.uint64(draw))) % self._table.count
            draw += 1
            # A corpus smaller than the group cannot give different passages: after many tries, repeat.
            if row not in taken or draw > (1 << 32) + 1000:
                chosen.append(np.int64(row))
                taken.add(row)
        return np.array([positive, *chosen], dtype=np.int64)


class Lists(NamedTuple):
    """A list of passage rows per query, end to end: list q is values[offsets[q] : offsets[q + 1]]."""

    offsets: Rows
    values: Rows

    @staticmethod
    def of(query: Rows, passage: Rows, count: int) -> "Lists":
        order = np.argsort(query, kind="stable")
        return Lists(np.searchsorted(query[order], np.arange(count + 1)), passage[order])

    def __getitem__(self, query: int) -> Rows:  # type: ignore[override]
        return self.values[self.offsets[query] : self.offsets[query + 1]]


def cut(ids: Ints, length: int) -> Ints:
    """At most `length` ids, the last one ([SEP]) kept at the end."""
    return ids if len(ids) <= length else np.concatenate([ids[: length - 1], ids[-1:]])
