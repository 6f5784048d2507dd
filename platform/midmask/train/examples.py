"""From plan rows to token ids: what a row of a training run is, and how it is read from a tokens artifact.

An `Examples` is a small description that can be sent to any machine; `opened` turns it into a source there, once a
process.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.train.plan import Rows
from midmask.train.table import Ints, TokenTable, Values, read_table


class TextRows(NamedTuple):
    """Token rows end to end: flat int32 [sum of lengths]; lengths int32, rows (which text each row is) int64, [B];
    weights float32 [sum of lengths], each token's term weight, where asked for.
    """

    flat: Ints
    lengths: Ints
    rows: Rows
    weights: NDArray[np.float32] | None = None

    def pieces(self) -> Iterator[Ints]:
        """The rows one by one."""
        ends = np.cumsum(self.lengths)
        for end, length in zip(ends, self.lengths, strict=True):
            yield self.flat[end - length : end]


Texts = dict[str, TextRows]


class Source(Protocol):
    """An opened `Examples`. `lengths`, int32 [count], is there if batches are to be grouped by it."""

    count: int
    group: int
    lengths: Ints | None

    def read(self, rows: Rows, seed: int, epoch: int) -> Texts: ...

    def names(self, rows: Rows) -> list[str]: ...


class Examples(Protocol):
    """A hashable, picklable description of what a run is trained on."""

    def __hash__(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def open(self) -> Source: ...


@lru_cache(maxsize=2)
def opened(examples: Examples) -> Source:
    """The source of a description, opened once a process."""
    return examples.open()


class Passages:
    """The passages of a tokens artifact by row, with their term weights where a `weights` artifact is given."""

    def __init__(self, tokens: Place, weights: Place | None, *, planned: int | None = None) -> None:
        self._ids = TokenTable(tokens / "passages", planned=planned)
        self._weights = TokenTable(weights / "weights", "weights", planned=planned) if weights else None
        self.count = self._ids.count
        self.names = self._ids.doc_ids

    def read(self, rows: Rows) -> TextRows:
        return joined(self._ids.read(rows), rows, self._weights.read(rows) if self._weights else None)


def lengths_of(tokens: Place) -> Ints:
    """The tokens of each passage, int32."""
    with (tokens / "lengths.npy").reading() as stream:
        lengths: Ints = np.load(stream, allow_pickle=False)
    return lengths


@dataclass(frozen=True)
class PassageExamples:
    """Pre-training: a row is a passage of the tokens artifact.

    weights: an artifact of term weights. by_length: whether batches are grouped by length; not where the rows of a
    batch meet, since all negatives of a text would then be of its length.
    """

    tokens: Place
    fingerprint: str
    weights: Place | None = None
    by_length: bool = True

    def open(self) -> "PassageSource":
        return PassageSource(self)


class PassageSource:
    """Passages by row number."""

    group = 1

    def __init__(self, examples: PassageExamples) -> None:
        self.lengths: Ints | None = lengths_of(examples.tokens) if examples.by_length else None
        self._passages = Passages(examples.tokens, examples.weights)
        self.count = self._passages.count

    def read(self, rows: Rows, seed: int, epoch: int) -> Texts:
        return {"passage": self._passages.read(rows)}

    def names(self, rows: Rows) -> list[str]:
        return self._passages.names(rows)


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


def joined(pieces: list[Ints], rows: Rows, weights: list[Values] | None = None) -> TextRows:
    """Rows end to end; `weights`: of their tokens, row by row."""
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int32)
    flat = np.concatenate(pieces).astype(np.int32, copy=False)
    weighed = None if weights is None else np.concatenate(weights).astype(np.float32, copy=False)
    if weighed is not None and len(weighed) != len(flat):
        raise ValueError(f"{len(weighed)} term weights for {len(flat)} tokens: they belong to other tokens")
    return TextRows(flat, lengths, rows, weighed)


def drawn(seed: int, epoch: int, rows: Rows, what: int, below: Any) -> Rows:
    """A number below `below` for each row, by hash of (seed, epoch, row, what it decides); int64 [B]."""
    keys = mix(mix(np.uint64(seed), np.uint64(epoch)), rows.astype(np.uint64))
    return np.asarray(mix(keys, np.uint64(what)) % np.asarray(below).astype(np.uint64)).astype(np.int64)


def mix(key: Any, number: Any) -> Any:
    """A 64-bit hash of two numbers, elementwise: the finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number) + np.uint64(0x632BE59BD9B4E019)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
