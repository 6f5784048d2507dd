"""Exact lexical search against scipy's sparse product and bm25s-style scoring, over the passages of shared/data/wiki.

    OMP_NUM_THREADS=1 python -m tests.speed.lexical_search [--queries 400] [--k 1000 100] [--threads 1]

No trained lexical encoder is at hand, so rows like SPLADE's are made from the texts: a vocabulary of the 30,522 most
frequent stems; a text's own stems weigh log(1 + 2 tf / (tf + 1) max(idf - 0.6, 0) / 2), as SPLADE's are logarithmic and
spare frequent words; each stem brings the 24 stems that it stands with most, given how frequent both are, at 0.4 of its
weight; the heaviest 160 of a passage and 30 of a query stay. A query is 6 to 12 stems of a passage. Printed with the
result: postings that a query touches, a passage (Formal et al. 2021 report FLOPS of 1 to 4 for SPLADE on MS MARCO).

(a) is scipy's CSR product of 64 queries with all passages, float32, then argpartition and a sort of each row's entries.
(b) is bm25s without numba: the postings of the query's terms (here times their weights), joined and added up by
np.add.at, then bm25s's own top-k. For queries that are dense in V (DupMAE's), (a) is the product with 16 or 128 dense
queries, whichever is faster. Both choose among equal scores as it falls; ours orders them by document id and sums in
float64. Times are CPU seconds of all threads; with `--threads 1` all three use one.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from bm25s.selection import topk
from scipy import sparse

from midmask.retrieve.lexical import LexicalShard
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.stems import StemmedWords

WIKI = Path(__file__).resolve().parents[3] / "shared" / "data" / "wiki" / "corpus.jsonl.gz"
VOCABULARY, PASSAGE_TERMS, QUERY_TERMS, DENSE_TERMS = 30_522, 160, 30, 384
NEIGHBOURS, SAMPLE = 24, 20_000
"""Stems that a stem brings, and the passages that say which."""

Search = Callable[[], list[np.ndarray]]
"""Searches all queries; returns each one's scores, the best first."""


def counts(passages: int) -> sparse.csr_array:
    """How often each of the most frequent stems stands in each passage."""
    words = StemmedWords()
    with gzip.open(WIKI, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line) for line, _ in zip(lines, range(passages), strict=False)]
    rows = [words.ids(f"{text['title']} {text['text']}") for text in texts]
    offsets = np.cumsum([0, *map(len, rows)])
    table = sparse.csr_array((np.ones(offsets[-1], np.float32), np.concatenate(rows), offsets))
    table.sum_duplicates()
    frequent = np.argsort(-np.bincount(table.indices), kind="stable")[:VOCABULARY]
    return table.tocsc()[:, np.sort(frequent)].tocsr()


def heaviest(rows: sparse.csr_array, k: int) -> sparse.csr_array:
    kept = [slice(start, stop) for start, stop in zip(rows.indptr, rows.indptr[1:], strict=False)]
    chosen = [part.start + np.sort(np.argsort(-rows.data[part], kind="stable")[:k]) for part in kept]
    offsets, entries = np.cumsum([0, *map(len, chosen)]), np.concatenate(chosen)
    table = sparse.csr_array((rows.data[entries], rows.indices[entries], offsets), shape=rows.shape)
    table.sort_indices()
    return table


def collection(passages: int, queries: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Rows of passages and of queries."""
    tf = counts(passages)
    df = np.bincount(tf.indices, minlength=VOCABULARY).astype(np.float32)
    idf = np.log1p((len(tf.indptr) - df) / (df + 1))
    own = tf.copy()
    own.data = np.log1p(tf.data / (tf.data + 1) * np.maximum(idf[tf.indices] - 0.6, 0)).astype(np.float32)
    own.eliminate_zeros()
    seen = own[:SAMPLE].astype(bool).astype(np.float32)
    together = (seen.T @ seen).tocoo()
    apart = together.row != together.col
    row, col, times = together.row[apart], together.col[apart], together.data[apart]
    bound = times**0.9 / (df[row] ** 0.5 * df[col] ** 0.6 + 20)
    near = 0.4 * heaviest(sparse.csr_array((bound, (row, col)), shape=(VOCABULARY, VOCABULARY)), NEIGHBOURS)
    parts = [own[at : at + 8192] for at in range(0, passages, 8192)]
    full = sparse.vstack([heaviest(part + part @ near, PASSAGE_TERMS) for part in parts]).tocsr()
    draw = np.random.default_rng(0)
    asked = own[draw.choice(passages, queries, replace=False)]
    lengths = np.diff(asked.indptr)
    asked.data *= draw.random(len(asked.data)) < np.repeat(9 / np.maximum(lengths, 9), lengths)
    asked.eliminate_zeros()
    return full, heaviest(asked + asked @ near, QUERY_TERMS)


def dense_collection(passages: int, queries: int, df: np.ndarray) -> tuple[sparse.csr_array, np.ndarray]:
    """Passages of 384 terms, drawn as they are frequent to the power 0.7, with weights N(2, 1); queries N(-1, 1)."""
    draw = np.random.default_rng(1)
    edges_V = ((df + 1.0) ** 0.7).cumsum()
    chosen = []
    for _ in range(passages):
        terms = np.unique(np.searchsorted(edges_V, draw.random(900) * edges_V[-1], side="right"))
        chosen.append(np.sort(draw.permutation(terms)[:DENSE_TERMS]).astype(np.int32))
    offsets = np.cumsum([0, *map(len, chosen)])
    weights = draw.standard_normal(offsets[-1], dtype=np.float32) + np.float32(2)
    table = sparse.csr_array((weights, np.concatenate(chosen), offsets), shape=(passages, len(df)))
    return table, draw.standard_normal((queries, len(df)), dtype=np.float32) - np.float32(1)


def by_product(passages: sparse.csr_array, queries: sparse.csr_array, k: int) -> Search:
    lists = passages.T.tocsr()

    def search() -> list[np.ndarray]:
        found = []
        for at in range(0, queries.shape[0], 64):
            product = queries[at : at + 64] @ lists
            for start, stop in zip(product.indptr, product.indptr[1:], strict=False):
                found.append(best(product.data[start:stop], k)[0])
        return found

    return search


def by_dense_product(passages: sparse.csr_array, queries_QV: np.ndarray, k: int, tile: int) -> Search:
    def search() -> list[np.ndarray]:
        tiles = (queries_QV[at : at + tile] for at in range(0, len(queries_QV), tile))
        products = (passages @ np.ascontiguousarray(tile_BV.T) for tile_BV in tiles)
        return [best(scores_N, k)[0] for product_NB in products for scores_N in product_NB.T.copy()]

    return search


def best(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    k = min(k, len(scores))
    rows = np.argpartition(scores, len(scores) - k)[len(scores) - k :]
    rows = rows[np.argsort(-scores[rows])]
    return scores[rows], rows


def as_bm25s(passages: sparse.csr_array, queries: sparse.csr_array, k: int) -> Search:
    lists = passages.tocsc()
    lists.sort_indices()

    def search() -> list[np.ndarray]:
        return [topk(scored(part), k, backend="numpy")[0] for part in map(slice, queries.indptr, queries.indptr[1:])]

    def scored(query: slice) -> np.ndarray:
        edges = [slice(*lists.indptr[term : term + 2]) for term in queries.indices[query]]
        weighted = [lists.data[edge] * weight for edge, weight in zip(edges, queries.data[query], strict=True)]
        scores_N = np.zeros(passages.shape[0], dtype=np.float32)
        np.add.at(scores_N, np.concatenate([lists.indices[edge] for edge in edges]), np.concatenate(weighted))
        return scores_N

    return search


def as_rows(table: sparse.csr_array) -> SparseRows:
    return SparseRows(
        table.indptr.astype(np.int64), table.indices.astype(np.int32), table.data.astype(np.float32), table.shape[1]
    )


def compare(name: str, searches: dict[str, Search], queries: int, rounds: int) -> None:
    """Prints milliseconds a query, searches taken in turn; all must find the same scores."""
    times: dict[str, list[float]] = {search: [] for search in searches}
    for _ in range(rounds):
        results = []
        for search, run in searches.items():
            start = time.process_time()
            results.append(run())
            times[search].append((time.process_time() - start) / queries * 1e3)
    for other in results[1:]:
        for ours_K, theirs_K in zip(results[0], other, strict=True):
            np.testing.assert_allclose(ours_K[: len(theirs_K)], theirs_K, rtol=1e-4, atol=1e-3)
    taken = {search: median(values) for search, values in times.items()}
    ours = taken.pop("midmask")
    rivals = "  ".join(f"{search} {value:.2f}" for search, value in taken.items())
    print(
        f"{name}: midmask {ours:.2f} ms  {rivals}  better rival / midmask {min(taken.values()) / ours:.2f}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=113_234)
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--dense-queries", type=int, default=128)
    parser.add_argument("--k", type=int, nargs="+", default=[1000, 100])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    ids = pa.chunked_array([[f"w{row * 7919 % 1_000_003}" for row in range(asked.passages)]])
    passages, queries = collection(asked.passages, asked.queries)
    df = np.bincount(passages.indices, minlength=VOCABULARY)
    print(f"postings a query and passage: {df[queries.indices].sum() / asked.queries / asked.passages:.2f}", flush=True)
    shard, rows = LexicalShard(as_rows(passages), ids, threads=asked.threads), as_rows(queries)
    shard.search(rows.slice(0, 1), 1)
    for k in asked.k:
        searches = {
            "midmask": lambda k=k: list(shard.search(rows, k)[0]),
            "scipy": by_product(passages, queries, k),
            "bm25s": as_bm25s(passages, queries, k),
        }
        compare(f"sparse queries, k = {k}", searches, asked.queries, asked.rounds)
    del shard, passages
    heavy, dense_QV = dense_collection(asked.passages, asked.dense_queries, df)
    shard, rows = LexicalShard(as_rows(heavy), ids, threads=asked.threads), SparseRows.top(dense_QV, None)
    for k in asked.k:
        searches = {
            "midmask": lambda k=k: list(shard.search(rows, k)[0]),
            "scipy, 16 at once": by_dense_product(heavy, dense_QV, k, 16),
            "scipy, 128 at once": by_dense_product(heavy, dense_QV, k, 128),
        }
        compare(f"queries dense in V, k = {k}", searches, asked.dense_queries, asked.rounds)


if __name__ == "__main__":
    main()
