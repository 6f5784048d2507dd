"""From a ranked list in Parquet to per-query values: midmask against ranx 0.3.21 after its warm-up, in one process.

    python -m tests.speed.evaluation [--queries 6980] [--depth 1000] [--rounds 3] [--ranx FOLDER]

ranx is no dependency of midmask. A folder of it, apart from the environment, is made by

    pip install --target FOLDER ranx==0.3.21

Both read the same two files, build what they need from them, and compute nDCG@10, RR@10, R@100 and R@1000 of every
query; their values are compared. ranx is timed twice: by its own route (pandas, `Run.from_df`, columns cast to the
types that it asks for), and given the dictionaries that midmask builds for ir-measures. Times are of the processor,
since a machine's other work does not count there; the median over rounds, the first of which is not counted.
"""

import argparse
import importlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.evaluation import measures
from midmask.retrieve import ranked

PASSAGES = 8_841_823
"""Of MS MARCO: their ids are what the strings look like."""

BLOCK = 256
"""Queries in a row group."""

NAMES = {"nDCG@10": "ndcg@10", "RR@10": "mrr@10", "R@100": "recall@100", "R@1000": "recall@1000"}


def write_files(folder: Path, queries: int, depth: int) -> Path:
    """ranked.parquet and qrels.parquet: one relevant passage a query, found by 19 of 20, more often near the top."""
    rng = np.random.default_rng(0)
    query_ids = np.sort(rng.choice(1_100_000, queries, replace=False).astype(str))
    score = np.linspace(20, 5, depth, dtype=np.float32)
    relevant: list[int] = []

    def blocks():
        for start in range(0, queries, BLOCK):
            names = query_ids[start : start + BLOCK]
            found = np.stack([rng.choice(PASSAGES, depth, replace=False) for _ in names])
            place = np.minimum(rng.exponential(depth / 16, len(names)).astype(int), depth - 1)
            hit = rng.random(len(names)) < 0.95
            relevant.extend(np.where(hit, found[np.arange(len(names)), place], rng.integers(PASSAGES, size=len(names))))
            columns = [np.repeat(names, depth), found.ravel().astype(str), np.tile(score, len(names))]
            rank = np.tile(np.arange(1, depth + 1, dtype=np.int32), len(names))
            yield pa.table([*map(pa.array, columns), rank], schema=ranked.SCHEMA)

    folder.mkdir()
    ranked.write(Place(str(folder / "ranked.parquet")), blocks())
    qrels = {"split": ["dev"] * queries, "query_id": query_ids, "doc_id": [str(doc) for doc in relevant]}
    pq.write_table(pa.table({**qrels, "grade": [1] * queries}), folder / "qrels.parquet")
    return folder


def midmask(folder: Path) -> dict[str, np.ndarray]:
    found = ranked.read(Place(str(folder / "ranked.parquet")))
    table = measures.evaluate(found, pq.read_table(folder / "qrels.parquet"), "dev", list(NAMES))
    values, names = table["value"].to_numpy(), table["measure"].to_numpy()
    return {name: values[names == name] for name in NAMES}


def ranx_routes() -> dict[str, Callable[[Path], dict[str, np.ndarray]]]:
    """Imported late: it compiles for seconds and is not always there."""
    pd, ranx = importlib.import_module("pandas"), importlib.import_module("ranx")
    Qrels, Run, evaluate = ranx.Qrels, ranx.Run, ranx.evaluate

    def values(qrels: Any, run: Any) -> dict[str, np.ndarray]:
        options = {"return_mean": False, "save_results_in_run": False, "make_comparable": True}
        found = evaluate(qrels, run, list(NAMES.values()), **options)
        order = np.argsort(np.array(list(run.keys())))
        return {name: found[theirs][order] for name, theirs in NAMES.items()}

    def own(folder: Path) -> dict[str, np.ndarray]:
        run = pd.read_parquet(folder / "ranked.parquet", columns=["query_id", "doc_id", "score"])
        qrels = pd.read_parquet(folder / "qrels.parquet")
        ids = {"query_id": object, "doc_id": object}
        return values(
            Qrels.from_df(qrels.astype(ids), q_id_col="query_id", score_col="grade"),
            Run.from_df(run.astype({**ids, "score": np.float64}), q_id_col="query_id"),
        )

    def given(folder: Path) -> dict[str, np.ndarray]:
        run = measures.run_of(ranked.read(Place(str(folder / "ranked.parquet"))))
        qrels = measures.judgements_of(pq.read_table(folder / "qrels.parquet"), "dev")
        return values(Qrels(qrels), Run(run))

    return {"ranx, its own route": own, "ranx, given dictionaries": given}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=6980)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranx", metavar="FOLDER", help="made by pip install --target FOLDER ranx==0.3.21")
    options = parser.parse_args()
    routes = {"midmask": midmask}
    if options.ranx:
        warnings.simplefilter("ignore")
        # Behind everything else, so that both use the environment's NumPy and pandas.
        sys.path.append(options.ranx)
        routes |= ranx_routes()
    taken: dict[str, list[float]] = {name: [] for name in routes}
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_files(Path(scratch) / "files", options.queries, options.depth)
        for turn in range(options.rounds + 1):
            for name, route in routes.items():
                start = time.process_time()
                found = route(folder)
                if turn:
                    taken[name].append(time.process_time() - start)
                elif name == "midmask":
                    expected = found
                else:
                    apart = max(np.abs(found[measure] - expected[measure]).max() for measure in NAMES)
                    print(f"{name}: largest difference of a value {apart:.1e}")
    base = median(taken["midmask"])
    for name, seconds in taken.items():
        print(f"{name:25} {median(seconds):7.2f} s of CPU, {median(seconds) / base:5.2f} x midmask's")


if __name__ == "__main__":
    main()
