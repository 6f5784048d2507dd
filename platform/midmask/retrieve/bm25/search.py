"""BM25 (bm25s, the Lucene variant of Kamphuis et al. 2020): search of a whole index or of some of its shards.

    corpus ─► bm25_words ─► bm25_index ─┐ a shard of the corpus at a time
    queries of a split ─────► block ────┴► search (shards, block) ─► partial file ─► merge ─► ranked/SPLIT.parquet

Words are lower-cased runs of two or more word characters, stemmed by Snowball English; no stop words are removed; a
passage is its title and its text. k1 = 0.9 and b = 0.4 as in Anserini. The index serves every split and depth; the
ranked list has the same bytes however its shards are dealt out.

Shapes: Q queries, N passages of all shards that are open, n of one of them, K results of a query.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from midmask.core.arrays import Floats, Ints
from midmask.retrieve import ranked
from midmask.retrieve.best import Best, Neighbours, places_of
from midmask.retrieve.blocks import SELECTION, Block, blocks_in, ranges
from midmask.retrieve.bm25.index import ALL_WORDS, Bm25IndexConfig, StemmedWords, file_name
from midmask.retrieve.searched_queries import select_queries
from midmask.retrieve.units import UnitSearch, as_table, search_alone
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table

log = logging.getLogger(__name__)


UNKNOWN = -1


class Bm25Index:
    """Shards of an index whose files are memory maps.

    Args:
        place: of a `bm25_index`. shards: which of its shards are searched, by their order; none: all.

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
        results = self.find(texts, k)
        return ranked.order(as_table(results, pa.chunked_array([pa.array(query_ids, pa.string())]), self.doc_ids))

    def find(self, texts: Sequence[str], k: int) -> Neighbours:
        """Scores and rows [Q, K] of the best k passages that share a word with each query, the best first; -inf and -1
        where there are fewer. At the cut, of equal scores the smaller document ids stay.
        """
        words = [self._words.numbers(text) for text in texts]
        best = Best(len(texts), min(k, len(self.doc_ids)), self._places_N)
        first = 0
        for shard in self._shards:
            for query, columns in enumerate(shard.columns(words)):
                if len(columns):
                    scores_n = shard.score(columns)
                    rows = np.flatnonzero((scores_n > 0) & (scores_n >= best.least(query)))
                    best.offer(query, scores_n[rows], first + rows)
            first += shard.passages
        return best.ranking()


def read_ids(place: Place, names: Sequence[str] | None = None) -> pa.LargeStringArray:
    """Ids of the passages of some shards in row order, or of all; they may take more than 2 GiB."""
    tables = [pa.chunked_array([], pa.large_string())]
    for name in (place / "ids").names() if names is None else names:
        tables.append(read_table(place / "ids" / name)["doc_id"].cast(pa.large_string()))
    return pa.chunked_array(chain.from_iterable(part.chunks for part in tables), pa.large_string()).combine_chunks()


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
        numbers = [self._number(stem) for stem in self._stems(text)]
        return [number for number in numbers if number != UNKNOWN]

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
        """For each query, its words' positions in the shard's index, in order; words of no passage are left out."""
        if not len(self._word_W):
            yield from (np.empty(0, np.int64) for _ in words)
            return
        numbers = np.fromiter(chain.from_iterable(words), np.int64)
        at = np.minimum(np.searchsorted(self._word_W, numbers), len(self._word_W) - 1)
        is_there = self._word_W[at] == numbers
        edges = np.concatenate([[0], np.cumsum([len(query_words) for query_words in words])])
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


class Bm25Config(Bm25IndexConfig):
    """BM25 over a corpus, for the queries of a split."""

    splits: tuple[str] = Field(("dev",), description="the split whose queries are ranked")
    depth: int = Field(1000, ge=1, le=100_001, description="passages ranked for each query, at most; those that match")
    titles: bool = Field(True, description="whether a passage is 'title text' instead of the text alone")
    judged: Literal["any", "relevant"] = Field(
        "any", description="queries with any judgement, or with a relevant passage"
    )
    max_queries: int | None = Field(
        None, ge=1, description="queries of a split, the first by a hash of their id; none: all"
    )


@dataclass(frozen=True)
class Bm25Search(UnitSearch):
    """A ranking's config and inputs, as plain data that can be sent to any node. Inputs: corpus; index, of it with the
    config's k1, b and titles.
    """

    config: Bm25Config
    inputs: Mapping[str, Artifact]
    out: Place

    def begin(self) -> int:
        """Selects the queries; returns the number of their blocks.

        Raises:
            UserError: for a split without judged queries.
        """
        config, corpus = self.config, self.inputs["corpus"]
        queries = read_table(corpus.place / "queries.parquet", ["query_id", "text"])
        select_queries(queries, corpus, self.split, self.out, judged=config.judged, limit=config.max_queries)
        return len(self.query_blocks)

    @property
    def split(self) -> str:
        return self.config.splits[0]

    @cached_property
    def query_blocks(self) -> list[Block]:
        return blocks_in([self.out / SELECTION])

    def shards(self, count: int) -> list[range]:
        """The index's shards cut into at most `count` contiguous ranges of nearly equal size."""
        return ranges(len((self.inputs["index"].place / "ids").names()), count)

    def open(self, shard: range) -> Bm25Index:
        return Bm25Index(self.inputs["index"].place, shard)

    def prepare(self, shard: Bm25Index, number: int) -> Callable[[], Neighbours]:
        texts = self.query_blocks[number].read(["text"])["text"].to_pylist()

        def search() -> Neighbours:
            scores_QK, rows_QK = shard.find(texts, self.config.depth)
            return scores_QK, np.where(rows_QK >= 0, shard.first + rows_QK, -1)

        return search

    def finish(self, shards: Sequence[range], searched: Iterable[int]) -> dict[str, Any]:
        """Counts, by split."""
        queries = sum(block.rows for block in self.query_blocks)
        place, rows = self.write_ranked(shards, searched)
        for name in ("partial", SELECTION):
            (self.out / name).delete()
        empty = queries - len(read_table(place, ["rank"], filters=[("rank", "==", 1)]))
        if empty:
            log.warning("%d of %d queries of %s match no passage", empty, queries, self.split)
        return {
            "passages": self.inputs["index"].result["passages"],
            "splits": {self.split: {"queries": queries, "without_results": empty, "ranked": rows}},
            "read": {"passages": {"titles": self.config.titles}},
        }

    @cached_property
    def doc_ids(self) -> pa.LargeStringArray:
        return read_ids(self.inputs["index"].place)


def rank_with_bm25(config: Bm25Config, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The one-process step: all shards in turn. Writes `ranked/SPLIT.parquet`.

    Raises:
        UserError: for a split without judged queries.
    """
    return search_alone(Bm25Search(config, inputs, out))
