"""Approximate search by words: Seismic's inverted index (Bruch et al. 2024, "Efficient inverted indexes for approximate
retrieval over learned sparse representations") proposes, float64 decides. The only importer of seismic.

Each word's list is cut into blocks of passages that are alike, and a block is passed over when its summary, an upper
envelope of its passages, cannot bring one of them among the best. So weights must not be negative. What it proposes is
scored again as in `lexical.py`: the score of a pair is the same in both.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from midmask.core.arrays import Doubles, Floats, Ints
from midmask.errors import UserError
from midmask.retrieve.best import in_order, places_of
from midmask.retrieve.sparse import SparseRows

SEISMIC = "Seismic"
"""What stands in place of a faiss factory string."""

NARROW = 65_535
"""Words that fit into the 16 bits of its smaller index."""

NAMES = {False: "passages", True: "passages.wide"}
"""Of the file, by whether words have 32 bits; the library adds `ENDING`."""

ENDING = ".index.seismic"

QUERY_CUT, HEAP_FACTOR = 10, 0.9
"""Of its authors' experiments: words of a query whose lists are searched, and how much a summary is trusted."""


def load_seismic() -> Any:
    """The module.

    Raises:
        UserError: if it is not installed.
    """
    try:
        import seismic
    except ImportError:
        raise UserError(
            f"index = {SEISMIC}: the library is not installed; pip install 'midmask[seismic]' on Python 3.11 (there "
            "are no wheels for later ones), or leave it at Flat"
        ) from None
    return seismic


def build_seismic_index(blocks: Sequence[SparseRows], folder: Path, threads: int) -> int:
    """Writes the index of all passages, whose names in it are their rows.

    Args:
        blocks: their lexical views, in row order.

    Returns:
        The number of passages.

    Raises:
        UserError: for a negative weight, or if the library is not installed.
    """
    library, width = load_seismic(), blocks[0].width
    is_wide = width > NARROW
    dataset = library.SeismicDatasetLV if is_wide else library.SeismicDataset
    rows, first = dataset(dim=width), 0
    for block in blocks:
        _refuse_negative(block, "a passage")
        names = [str(row) for row in range(first, first + len(block))]
        rows.add_documents_by_id(names, block.terms.astype(np.int64), block.weights, block.offsets)
        first += len(block)
    with _silent():
        _kind(is_wide).build_from_dataset(rows, num_threads=threads).save(str(folder / NAMES[is_wide]))
    return first


class SeismicIndex:
    """A finished index, and how far it is searched.

    Args:
        folder: where its file is. query_cut: heaviest words of a query whose lists are searched. heap_factor: as of the
            library; lower finds more.

    Raises:
        UserError: if the library is not installed.
    """

    def __init__(self, folder: Path, query_cut: int | None, heap_factor: float | None) -> None:
        is_wide = (folder / f"{NAMES[True]}{ENDING}").exists()
        self._text: Any = load_seismic().get_seismic_string()
        with _silent():
            self._index = _kind(is_wide).load(str(folder / f"{NAMES[is_wide]}{ENDING}"))
        self.passages = int(self._index.len)
        self._query_cut = query_cut or QUERY_CUT
        self._heap_factor = HEAP_FACTOR if heap_factor is None else heap_factor

    def proposals(self, queries: SparseRows, count: int, threads: int) -> Iterator[tuple[int, Ints]]:
        """Queries, each with at most `count` rows that are found for it; not those for which nothing is."""
        asked = np.flatnonzero(np.diff(queries.offsets)).tolist()
        views = [queries.row(query) for query in asked]
        found = self._index.batch_search(
            np.array(asked, dtype=self._text),
            [terms.astype(self._text) for terms, _ in views],
            [weights for _, weights in views],
            k=count,
            query_cut=self._query_cut,
            heap_factor=self._heap_factor,
            num_threads=threads,
        )
        for hits in filter(None, found):
            yield int(hits[0][0]), np.fromiter((int(row) for _, _, row in hits), np.int64, len(hits))


class SeismicShard:
    """All passages of a corpus, searchable by their lexical views through an index.

    Args:
        rows: the views, N rows.
        doc_ids: their ids, N strings; equal scores rank by them.
        rescore: candidates, for each passage that is ranked, that are scored again.
        threads: threads of a search; they change no number.

    Raises:
        UserError: if the index is of other passages.
    """

    def __init__(
        self, rows: SparseRows, doc_ids: pa.ChunkedArray, index: SeismicIndex, *, rescore: int = 1, threads: int = 1
    ) -> None:
        if index.passages != (worded := int(np.count_nonzero(np.diff(rows.offsets)))):
            raise UserError(
                f"an index of {index.passages} passages that have words, for {worded}; delete it and build it again"
            )
        self.doc_ids = doc_ids
        self._rows = rows
        self._index = index
        self._rescore = rescore
        self._threads = threads
        self._places_N = places_of(doc_ids)

    def search(self, queries: SparseRows, k: int) -> tuple[Floats, Ints]:
        """The best min(k, N) passages of each query: scores float32 and corpus rows int64, both [Q, min(k, N)].

        Ordered by score descending, then document id ascending. Where fewer are found, rows are -1 and scores -inf at
        the end.

        Raises:
            UserError: for a negative weight.
        """
        _refuse_negative(queries, "a query")
        k = min(k, len(self._rows))
        count = min(k * self._rescore, len(self._rows))
        rows_QN = np.full((len(queries), count), -1, dtype=np.int64)
        scores_QN = np.full((len(queries), count), -np.inf, dtype=np.float32)
        for query, found in self._index.proposals(queries, count, self._threads):
            rows_QN[query, : len(found)] = found
            scores_QN[query, : len(found)] = exact_scores(self._rows, found, *queries.row(query))
        return in_order(scores_QN, rows_QN, self._places_N, k)


def _kind(is_wide: bool) -> Any:
    library = load_seismic()
    return library.SeismicIndexLV if is_wide else library.SeismicIndex


def exact_scores(rows: SparseRows, places_N: Ints, terms: NDArray[np.int32], weights: Floats) -> Doubles:
    """Scores of some rows with one query, summed in float64 over terms, ascending."""
    query_V = np.zeros(rows.width)
    query_V[terms] = weights
    some = rows.take(places_N)
    row = np.repeat(np.arange(len(some)), np.diff(some.offsets))
    products = query_V[some.terms] * some.weights
    scores_N = np.bincount(row, products, len(some))
    return scores_N.astype(np.float64)  # of no entries at all it counts whole numbers


def _refuse_negative(rows: SparseRows, what: str) -> None:
    if len(rows.weights) and (least := float(rows.weights.min())) < 0:
        raise UserError(
            f"index = {SEISMIC}: a word of {what} weighs {least:.4g}, and its summaries need weights of 0 or more; "
            "leave it at Flat"
        )


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what the library prints, from Rust, to the process's standard output."""
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)
