"""Seismic's index against the exact lexical search, over passages of shared/data/wiki with rows like SPLADE's.

    OMP_NUM_THREADS=1 python -m tests.speed.seismic_search [--passages 113234] [--queries 400]

The collection is that of `tests.speed.lexical_search`. Both search with one thread, in turn, in one process; times are
processor seconds and include the scores in float64 of what the index proposes. Prints a table: recall against the exact
ranking, milliseconds a query, and how many times as fast as the exact search.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from midmask.retrieve.lexical import LexicalShard
from midmask.retrieve.seismic import SeismicIndex, SeismicShard, build_seismic_index
from tests.speed.lexical_search import as_rows, collection

DEPTH, ROUNDS = 100, 3
POINTS = [(3, 0.9), (5, 0.9), (10, 1.0), (10, 0.9), (10, 0.7), (20, 0.7)]
"""query_cut and heap_factor."""

Search = Callable[[], np.ndarray]


def milliseconds(searches: list[Search], queries: int) -> list[float]:
    """Of a query, by each search, taken in turn."""
    times: list[list[float]] = [[] for _ in searches]
    for _ in range(ROUNDS):
        for taken, search in zip(times, searches, strict=True):
            began = time.process_time()
            search()
            taken.append((time.process_time() - began) / queries * 1e3)
    return [median(taken) for taken in times]


def recall(found_QK: np.ndarray, exact_QK: np.ndarray, k: int) -> float:
    pairs = zip(found_QK[:, :k], exact_QK[:, :k], strict=True)
    return float(np.mean([len(np.intersect1d(found, exact)) / k for found, exact in pairs]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=113_234)
    parser.add_argument("--queries", type=int, default=400)
    asked = parser.parse_args()
    passages, queries = map(as_rows, collection(asked.passages, asked.queries))
    ids = pa.chunked_array([[f"w{row * 7919 % 1_000_003}" for row in range(asked.passages)]])
    exact = LexicalShard(passages, ids)
    exact_QK = exact.search(queries, DEPTH)[1]
    with tempfile.TemporaryDirectory() as name:
        began = time.process_time()
        build_seismic_index([passages], Path(name), threads=1)
        built = time.process_time() - began
        size = sum(file.stat().st_size for file in Path(name).iterdir())
        entries = len(passages.terms)
        print(
            f"{entries / asked.passages:.0f} words a passage; index: {built:.0f} s, {size / entries:.1f} bytes a word"
        )
        print("| query_cut | heap_factor | recall@10 | recall@100 | ms a query | exact, ms | times as fast |")
        print("| --: | --: | --: | --: | --: | --: | --: |")
        for cut, factor in POINTS:
            own = SeismicShard(passages, ids, SeismicIndex(Path(name), cut, factor))
            found_QK = own.search(queries, DEPTH)[1]
            ours, theirs = milliseconds(
                [lambda own=own: own.search(queries, DEPTH)[1], lambda: exact.search(queries, DEPTH)[1]],
                asked.queries,
            )
            shares = " | ".join(f"{recall(found_QK, exact_QK, k):.4f}" for k in (10, 100))
            print(f"| {cut} | {factor} | {shares} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.1f} |", flush=True)


if __name__ == "__main__":
    main()
