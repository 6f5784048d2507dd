"""BM25 (bm25s, the Lucene variant of Kamphuis et al. 2020): the baseline of every trained encoder.

Words are lower-cased runs of two or more word characters, stemmed by Snowball English; no stop words are removed; a
passage is its title and its text. k1 = 0.9 and b = 0.4 as in Anserini. On SQuAD dev this gives RR@10 0.798 and nDCG@10
0.830 (its README, with another stemmer: 0.792 and 0.825), on Cranfield nDCG@10 0.351 (README: 0.339).
"""

import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.identity import Config
from midmask.retrieve import ranked
from midmask.retrieve.best import places_of
from midmask.retrieve.blocks import QUERY_BLOCK
from midmask.retrieve.selection import judged_queries

log = logging.getLogger(__name__)

WORD = r"(?u)\b\w\w+\b"


class Bm25Config(Config):
    """BM25 over a corpus, for the queries of some splits."""

    splits: tuple[str, ...] = Field(("dev",), min_length=1, description="splits whose queries are ranked")
    depth: int = Field(1000, ge=1, le=100_001, description="passages ranked for each query, at most; those that match")
    k1: float = Field(0.9, ge=0, le=10, description="how soon repeated words stop to count")
    b: float = Field(0.4, ge=0, le=1, description="how much long passages are held back")
    titles: bool = Field(True, description="whether a passage is 'title text' instead of the text alone")
    judged: Literal["any", "relevant"] = Field(
        "any", description="queries with any judgement, or with a relevant passage"
    )
    max_queries: int | None = Field(
        None, ge=1, description="queries of a split, the first by a hash of their id; none: all"
    )


def rank_with_bm25(config: Bm25Config, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; inputs: corpus; `asked`, judged queries that are not the collection's (`derived.kept_pairs`), if any.
    Writes `index/`, `doc_ids.parquet` and `ranked/SPLIT.parquet` for every split.

    Raises:
        UserError: for a split without judged queries, or a corpus without a single word.
    """
    corpus = inputs["corpus"]
    asked = inputs.get("asked", corpus)
    wanted = {
        split: judged_queries(asked, split, judged=config.judged, limit=config.max_queries) for split in config.splits
    }
    if not (out / "doc_ids.parquet").exists():
        build_index(config, corpus.place, out)
    index = Bm25Index(out)
    with (asked.place / "queries.parquet").reading() as stream:
        queries = pq.read_table(stream)
    result: dict[str, Any] = {}
    for split, names in wanted.items():
        place = out / "ranked" / f"{split}.parquet"
        if not place.exists():
            chosen = queries.filter(pc.is_in(queries["query_id"], value_set=pa.array(names, pa.string())))
            ranked.write(place, index.search_blocks(chosen.sort_by("query_id"), config.depth))
        found = ranked.read(place)
        empty = len(names) - pc.count_distinct(found["query_id"]).as_py()
        if empty:
            log.warning("%d of %d queries of %s match no passage", empty, len(names), split)
        result[split] = {"queries": len(names), "without_results": empty, "ranked": len(found)}
    return {"passages": len(index.doc_ids), "splits": result, "read": {"passages": {"titles": config.titles}}}


def build_index(config: Bm25Config, corpus: Place, out: Place) -> None:
    """Writes the index of a prepared corpus; texts are read as a stream."""
    index_texts(config, _read_passages(corpus, titles=config.titles), out, str(corpus))


def index_texts(config: Bm25Config, passages: Iterable[tuple[list[str], list[str]]], out: Place, name: str) -> None:
    """Writes `index/` (arrays that open as memory maps) and, last, `doc_ids.parquet`.

    Args:
        passages: ids and texts, titles included, some at a time. name: of the collection, for messages.

    Raises:
        UserError: if there is no word in them.
    """
    bm25s = import_bm25s()
    words = StemmedWords()
    names: list[str] = []
    rows: list[list[int]] = []
    for doc_ids, texts in passages:
        names.extend(doc_ids)
        rows.extend(words.ids(text, grow=True) for text in texts)
    if not words.known:
        raise UserError(f"{name}: no passage holds a word of two letters, so BM25 has nothing to index")
    index = bm25s.BM25(method="lucene", k1=config.k1, b=config.b)
    index.index((rows, words.known), create_empty_token=False, show_progress=False)
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder, show_progress=False)
        (out / "index").upload(Path(folder))
    with (out / "doc_ids.parquet").writing() as stream:
        pq.write_table(pa.table({"doc_id": pa.array(names, pa.string())}), stream, compression="zstd")


def _read_passages(corpus: Place, *, titles: bool) -> Iterator[tuple[list[str], list[str]]]:
    for shard in (corpus / "docs").names():
        with (corpus / "docs" / shard).reading() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(batch_size=2048):
                texts = batch["text"].to_pylist()
                if titles:
                    texts = [f"{title} {text}" for title, text in zip(batch["title"].to_pylist(), texts, strict=True)]
                yield batch["doc_id"].to_pylist(), texts


class StemmedWords:
    """Text to numbers of stemmed words. `known`: stem -> number."""

    def __init__(self, known: Mapping[str, int] | None = None) -> None:
        import re

        import Stemmer

        self.known = dict(known or {})
        self._split = re.compile(WORD).findall
        self._stem = Stemmer.Stemmer("english").stemWords

    def ids(self, text: str, *, grow: bool = False) -> list[int]:
        """One number per word; unknown words are learnt, or left out."""
        stems = self._stem(self._split(text.lower()))
        if grow:
            return [self.known.setdefault(stem, len(self.known)) for stem in stems]
        return [self.known[stem] for stem in stems if stem in self.known]


def import_bm25s() -> Any:
    """The library, imported where it is first needed and without its messages about each index it builds."""
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG itself
    return bm25s


class Bm25Index:
    """A saved index, its arrays memory-mapped. `doc_ids`: the passages' ids in row order."""

    def __init__(self, place: Place) -> None:
        bm25s = import_bm25s()
        with (place / "doc_ids.parquet").reading() as stream:
            self.doc_ids = pq.read_table(stream)["doc_id"].combine_chunks()
        self._index = bm25s.BM25.load((place / "index").local(), mmap=True, show_progress=False)
        self._words = StemmedWords(self._index.vocab_dict)
        self._places_N = places_of(self.doc_ids)

    def search(self, query_ids: Sequence[str], texts: Sequence[str], k: int) -> pa.Table:
        """The ranked list of some queries: the best k of the passages that share a word with the query."""
        found = [self._search(text, k) for text in texts]
        query = np.repeat(np.arange(len(found)), [len(rows) for rows, _ in found])
        return ranked.order(
            pa.table(
                {
                    "query_id": pa.array(query_ids, pa.string()).take(pa.array(query)),
                    "doc_id": self.doc_ids.take(pa.array(_concatenate([rows for rows, _ in found], np.int64))),
                    "score": pa.array(_concatenate([scores for _, scores in found], np.float32)),
                }
            )
        )

    def search_blocks(self, queries: pa.Table, k: int) -> Iterator[pa.Table]:
        """Ranked lists of a table (query_id, text) sorted by query id, a block of queries at a time."""
        for at in range(0, len(queries), QUERY_BLOCK):
            block = queries.slice(at, QUERY_BLOCK)
            yield self.search(block["query_id"].to_pylist(), block["text"].to_pylist(), k)

    def _search(self, text: str, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows and scores of the best k; at the cut, of equal scores the smaller document ids stay."""
        words = self._words.ids(text)
        if not words:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        scores_N = self._index.get_scores_from_ids(words)
        rows = np.flatnonzero(scores_N > 0)
        if len(rows) > k:
            least = np.partition(scores_N[rows], -k)[-k]
            rows = rows[scores_N[rows] >= least]
            rows = rows[np.lexsort((self._places_N[rows], -scores_N[rows]))[:k]]
        return rows, scores_N[rows]


def _concatenate(arrays: Iterable[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *arrays])
