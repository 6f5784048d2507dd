"""Search in an index of BM25, or in some of its shards.

Shapes: Q queries, N passages of all shards that are open, n of one of them, K results of a query.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midmask.arrays import Floats, Ints
from midmask.artifact import Place
from midmask.retrieve import ranked
from midmask.retrieve.best import Best, places_of
from midmask.retrieve.blocks import blocks_in
from midmask.retrieve.bm25_index import ALL_WORDS, file_name
from midmask.retrieve.merging import Neighbours, as_table
from midmask.retrieve.stems import StemmedWords

UNKNOWN = -1


class Bm25Index:
    """Shards of an index whose files are memory maps.

    Args:
        place: an artifact of `bm25_index`, or what `index_texts` wrote. shards: which of its shards are searched, by
            their order; none: all.

    first: the corpus row of the first open shard's first passage.
    """

    def __init__(self, place: Place, shards: range | None = None) -> None:
        self._place = place
        names = (place / "ids").names()
        self._names = names if shards is None else names[shards.start : shards.stop]
        self._words = SortedWords(place)
        folder = (place / "index").local()
        self._shards = [Bm25Shard(folder / file_name(name)) for name in self._names]
        before = names[: shards.start] if shards else []
        self.first = sum(block.rows for block in blocks_in([place / "ids" / name for name in before]))

    @cached_property
    def doc_ids(self) -> pa.LargeStringArray:
        """Ids of the open shards' passages in row order."""
        return read_ids(self._place, self._names)

    @cached_property
    def _places_N(self) -> Ints:
        return places_of(self.doc_ids)

    def search(self, query_ids: Sequence[str], texts: Sequence[str], k: int) -> pa.Table:
        """The ranked list of some queries: the best k of the passages that share a word with the query."""
        found = self.find(texts, k)
        return ranked.order(as_table(found, pa.chunked_array([pa.array(query_ids, pa.string())]), self.doc_ids))

    def find(self, texts: Sequence[str], k: int) -> Neighbours:
        """Scores and rows [Q, K] of the best k passages that share a word with each query, the best first; K is the
        length of the longest list. At the cut, of equal scores the smaller document ids stay.
        """
        words = [self._words.numbers(text) for text in texts]
        lists = [Best(k, self._places_N) for _ in texts]
        first = 0
        for shard in self._shards:
            for best, columns in zip(lists, shard.columns(words), strict=True):
                if len(columns):
                    _offer(best, shard.score(columns), first)
            first += shard.passages
        return _padded([best.ranking() for best in lists])


def _offer(best: Best, scores_n: Floats, first: int) -> None:
    least = best.least
    rows = np.flatnonzero(scores_n >= least if least > 0 else scores_n > 0)
    if len(rows):
        best.offer(scores_n[rows], first + rows)


def _padded(lists: Sequence[tuple[Floats, Ints]]) -> Neighbours:
    longest = max((len(rows) for _, rows in lists), default=0)
    scores_QK = np.full((len(lists), longest), -np.inf, np.float32)
    rows_QK = np.full((len(lists), longest), -1, np.int64)
    for query, (scores, rows) in enumerate(lists):
        scores_QK[query, : len(rows)], rows_QK[query, : len(rows)] = scores, rows
    return scores_QK, rows_QK


def read_ids(place: Place, names: Sequence[str] | None = None) -> pa.LargeStringArray:
    """Ids of the passages of some shards in row order, or of all; they may take more than 2 GiB."""
    found = [pa.chunked_array([], pa.large_string())]
    for name in (place / "ids").names() if names is None else names:
        with (place / "ids" / name).reading() as stream:
            found.append(pq.read_table(stream)["doc_id"].cast(pa.large_string()))
    return pa.chunked_array(chain.from_iterable(part.chunks for part in found), pa.large_string()).combine_chunks()


class SortedWords:
    """The words of an index, looked up in the sorted file: a dictionary of a large collection's would take hundreds of
    megabytes in each process.
    """

    def __init__(self, place: Place) -> None:
        self._sorted = _map_batch((place / "words").local() / ALL_WORDS).column("word")
        self._stems = StemmedWords().stems
        self._known: dict[str, int] = {}

    def numbers(self, text: str) -> list[int]:
        """The number of each word of the text, in order; words of no passage are left out."""
        found = [self._number(stem) for stem in self._stems(text)]
        return [number for number in found if number != UNKNOWN]

    def _number(self, stem: str) -> int:
        if stem not in self._known:
            at = bisect_left(self._sorted, stem, key=pa.LargeStringScalar.as_py)
            is_there = at < len(self._sorted) and self._sorted[at].as_py() == stem
            self._known[stem] = at if is_there else UNKNOWN
        return self._known[stem]


class Bm25Shard:
    """The index of one shard, mapped. passages: how many it has."""

    def __init__(self, file: Path) -> None:
        batch = _map_batch(file)
        self.passages = int(batch.schema.metadata[b"passages"])
        self._word_W: Ints = batch.column("word").to_numpy()
        postings = batch.column("postings")
        row_P, score_P = (postings.values.field(name).to_numpy() for name in ("row", "score"))
        self._index = import_bm25s().BM25(method="lucene")  # with the attributes that its own `load` sets
        self._index.nonoccurrence_array = None
        self._index.scores = {
            "data": score_P,
            "indices": row_P,
            "indptr": postings.offsets.to_numpy(),
            "num_docs": self.passages,
        }

    def columns(self, words: Sequence[Sequence[int]]) -> Iterator[Ints]:
        """Of each query, where its words stand in the shard's index, in order; words of no passage are left out."""
        if not len(self._word_W):
            yield from (np.empty(0, np.int64) for _ in words)
            return
        wanted = np.fromiter(chain.from_iterable(words), np.int64)
        at = np.minimum(np.searchsorted(self._word_W, wanted), len(self._word_W) - 1)
        is_there = self._word_W[at] == wanted
        edges = np.concatenate([[0], np.cumsum([len(one) for one in words])])
        for start, stop in pairwise(edges.tolist()):
            yield at[start:stop][is_there[start:stop]]

    def score(self, columns: Ints) -> Floats:
        """Scores [n] of all passages, added up in the order of the columns; 0 without any of the words."""
        scores_n: Floats = self._index.get_scores_from_ids(columns)
        return scores_n


def _map_batch(file: Path) -> pa.RecordBatch:
    """The only batch of an Arrow file, without reading it into memory."""
    return pa.ipc.open_file(pa.memory_map(str(file))).get_batch(0)


def import_bm25s() -> Any:
    """The library, imported where it is first needed and without its messages about each index it builds."""
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG itself
    return bm25s
