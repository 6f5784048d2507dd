"""How made queries resemble real ones: BM25's values, lengths and overlaps, by source, on collections that have both.

python -m tests.speed.made_queries --corpus beir:../shared/data/squad --max-passages 5000
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig, prepare
from midmask.errors import UserError
from midmask.evaluation import measures
from midmask.queries.collection import CollectionFacts, read_passages
from midmask.queries.config import PLAIN, QueriesConfig
from midmask.queries.round_trip import bm25_over
from midmask.queries.step import make_queries

MEASURES = ("RR@10", "nDCG@10")
COLUMNS = ("queries", *MEASURES, "ranked first", "in 20", "words", "overlap")


def real(corpus: Place, folder: Path, split: str) -> dict[str, float]:
    """The real queries of a split. overlap: with the relevant passage that has most of the query."""
    queries = dict(
        zip(*(column.to_pylist() for column in pq.read_table(folder / "corpus/queries.parquet")), strict=True)
    )
    qrels = pq.read_table(folder / "corpus/qrels.parquet")
    qrels = qrels.filter(pc.and_(pc.equal(qrels["split"], split), pc.greater_equal(qrels["grade"], 1)))
    known = CollectionFacts(corpus)
    index = bm25_over(corpus, {}, Place(str(folder / "bm25")))
    names = sorted(set(qrels["query_id"].to_pylist()))
    ranked = index.search(names, [queries[name] for name in names], 20)
    passages = {one.doc_id: f"{one.title} {one.text}" for some in read_passages(corpus) for one in some}
    overlaps: dict[str, float] = {}
    relevant: dict[str, set[str]] = {}
    for query_id, doc_id in zip(qrels["query_id"].to_pylist(), qrels["doc_id"].to_pylist(), strict=True):
        found = known.weights.overlap(queries[query_id], passages[doc_id])
        overlaps[query_id] = max(found, overlaps.get(query_id, 0.0))
        relevant.setdefault(query_id, set()).add(doc_id)
    rows = ranked.to_pylist()
    first = {row["query_id"] for row in rows if row["rank"] == 1 and row["doc_id"] in relevant[row["query_id"]]}
    found20 = {row["query_id"] for row in rows if row["doc_id"] in relevant[row["query_id"]]}
    means = measures.aggregate(measures.evaluate(ranked, qrels, split, MEASURES))
    return {
        "queries": len(names),
        **means,
        "ranked first": len(first) / len(names),
        "in 20": len(found20) / len(names),
        "words": float(np.mean([len(queries[name].split()) for name in names])),
        "overlap": float(np.mean(list(overlaps.values()))),
    }


def made(corpus: Artifact, folder: Path, **fields: Any) -> dict[str, float]:
    result = make_queries(QueriesConfig(**fields), {"corpus": corpus}, Place(str(folder)))
    rows = pq.read_table(folder / "queries.parquet").to_pylist()
    kept = [row for row in rows if row["kept"]]
    searched = [row for row in rows if row["rank"] is not None]
    lost = sum(row["reason"] == "its passage is not found again" for row in rows)
    gains = [1 / row["rank"] if row["rank"] and row["rank"] <= 10 else 0.0 for row in kept]
    discounted = [1 / np.log2(1 + row["rank"]) if row["rank"] and row["rank"] <= 10 else 0.0 for row in kept]
    return {
        "queries": result["kept"],
        "RR@10": float(np.mean(gains)),
        "nDCG@10": float(np.mean(discounted)),
        "ranked first": float(np.mean([row["rank"] == 1 for row in kept])),
        "in 20": len(searched) / (len(searched) + lost),
        "words": float(np.mean([len(row["text"].split()) for row in kept])),
        "overlap": float(np.mean([row["overlap"] for row in kept])),
    }


def cell(column: str, values: dict[str, float]) -> str:
    """A number as the table shows it; a dash where a source gave too few queries."""
    if column not in values:
        return "\u2014"
    return f"{values[column]:,.0f}" if column == "queries" else f"{values[column]:.3f}"


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--corpus", default="pydocs")
    flags.add_argument("--max-passages", type=int)
    flags.add_argument("--split", default="test")
    flags.add_argument("--targets", type=float, nargs="*", default=[])
    asked = flags.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = CorpusConfig(name=asked.corpus, max_passages=asked.max_passages, splits="official")
        record = {"result": prepare(config, {}, Place(str(folder / "corpus"))), "config": config.model_dump()}
        corpus = Artifact(Place(str(folder / "corpus")), record)
        print(f"| {asked.corpus} | {' | '.join(COLUMNS)} |")
        print(f"| :--- |{' ---: |' * len(COLUMNS)}")
        rows = {"real": real(corpus.place, folder, asked.split)}
        for source in PLAIN:
            try:
                rows[source] = made(corpus, folder / source, sources={source: 1.0})
            except UserError:
                rows[source] = {}
        rows["default"] = made(corpus, folder / "default", judged_by=("all",))
        for target in asked.targets:
            rows[f"default, bm25_target {target}"] = made(
                corpus, folder / f"{target}", bm25_target=target, judged_by=("all",)
            )
        for system, values in rows.items():
            cells = [cell(column, values) for column in COLUMNS]
            print(f"| {system} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
