"""What it changes which search has to find a made query's passage again: BM25, the encoder, or either.

    python -m tests.speed.round_trips --corpus beir:../shared/data/squad --max-passages 5000

nDCG@10 of BM25, of minilm and of both joined by scores, on the made queries of each source that a search keeps, and on
people's queries. The passages lack what all candidates hide. Nothing is trained.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sentence_transformers import SentenceTransformer

from midmask.artifact import Place
from midmask.benchmark.design import BM25_SHARE
from midmask.corpora import CorpusConfig, prepare
from midmask.evaluation import measures
from midmask.pretrained import found_folder
from midmask.queries.candidates import Candidate, collect
from midmask.queries.collection import CollectionFacts, read_as_searched
from midmask.queries.config import PLAIN, QueriesConfig
from midmask.queries.documents import split_passages
from midmask.queries.made import MadeQuery
from midmask.queries.roles import Roles
from midmask.queries.round_trip import bm25_over, hiding_of, relevant_of
from midmask.queries.screening import screen
from midmask.retrieve import ranked
from midmask.retrieve.fusion import fuse

DEPTH = 101
WITHIN = 20
EACH = 800
"""Queries of a source, the first by their places."""

MEASURE = "nDCG@10"
SEARCHES = ("BM25", "minilm", "both")
KEPT = ("none", "bm25", "minilm", "either")


@dataclass(frozen=True)
class Asked:
    """Queries by id, and their relevant passages with grades."""

    texts: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]


def search(
    asked: Asked, corpus: Place, hiding: Mapping[str, Sequence[MadeQuery]], encode: Callable[[list[str]], np.ndarray]
) -> dict[str, pa.Table]:
    """Search -> its ranked list."""
    names = sorted(asked.texts)
    with tempfile.TemporaryDirectory() as folder:
        index = bm25_over(corpus, hiding, Place(folder))
        words = index.search(names, [asked.texts[name] for name in names], DEPTH)
        del index
    passages = list(read_as_searched(corpus, hiding))
    vectors_PD = encode([f"{one.title} {one.text}".strip() for one in passages])
    rows = []
    for name, query_D in zip(names, encode([asked.texts[name] for name in names]), strict=True):
        scores_P = vectors_PD @ query_D
        best = np.argpartition(-scores_P, min(DEPTH, len(scores_P) - 1))[:DEPTH]
        rows += [(name, passages[at].doc_id, float(scores_P[at])) for at in best.tolist()]
    columns = dict(zip(("query_id", "doc_id", "score"), map(list, zip(*rows, strict=True)), strict=True))
    dense = ranked.order(pa.table(columns), DEPTH)
    return {"BM25": words, "minilm": dense, "both": fuse(dense, words, BM25_SHARE, DEPTH, "convex")}


def per_query(found: pa.Table, asked: Asked) -> dict[str, float]:
    judged = [(query, doc, grade) for query, own in asked.relevant.items() for doc, grade in own.items()]
    queries, docs, grades = (list(column) for column in zip(*judged, strict=True))
    qrels = pa.table({"split": ["test"] * len(judged), "query_id": queries, "doc_id": docs, "grade": grades})
    rows = measures.evaluate(found, qrels, "test", (MEASURE,)).to_pylist()
    return {row["query_id"]: row["value"] for row in rows}


def finds(found: pa.Table, asked: Asked) -> set[str]:
    """Queries with a relevant passage within the first ranks."""
    rows = zip(*(found[name].to_pylist() for name in ("query_id", "doc_id", "rank")), strict=True)
    return {query for query, doc, rank in rows if rank <= WITHIN and doc in asked.relevant[query]}


def people(corpus: Path, split: str) -> Asked:
    qrels = pq.read_table(corpus / "qrels.parquet")
    qrels = qrels.filter(pc.and_(pc.equal(qrels["split"], split), pc.greater_equal(qrels["grade"], 1)))
    relevant: dict[str, dict[str, int]] = {}
    for row in qrels.to_pylist():
        relevant.setdefault(row["query_id"], {})[row["doc_id"]] = row["grade"]
    texts = dict(zip(*(column.to_pylist() for column in pq.read_table(corpus / "queries.parquet")), strict=True))
    return Asked({name: texts[name] for name in relevant}, relevant)


def candidates(corpus: Place, known: CollectionFacts, folder: Path) -> list[Candidate]:
    config = QueriesConfig(sources=dict.fromkeys(PLAIN, 1.0))
    both = Roles(config.sources, config.sources)
    pool = collect(config, corpus, known, both, split_passages(known, config)[0], None, Place(str(folder)))
    screen(pool, known, config)
    left = sorted((one for one in pool.candidates if one.is_in), key=lambda one: one.place)
    return [one for source in PLAIN for one in [one for one in left if one.source == source][:EACH]]


def row(name: str, kept: str, share: float, values: Mapping[str, Sequence[float]]) -> None:
    means = {search: float(np.mean(own)) for search, own in values.items()}
    gains = [means[search] - means["minilm"] for search in ("BM25", "both")]
    cells = [name, kept, f"{share:.2f}", *(f"{one:.3f}" for one in means.values()), *(f"{one:+.3f}" for one in gains)]
    print(f"| {' | '.join(cells)} |")


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--corpus", default="pydocs")
    flags.add_argument("--max-passages", type=int)
    flags.add_argument("--split", default="test")
    wanted = flags.parse_args()
    model = SentenceTransformer(str(found_folder("minilm")), local_files_only=True, device="cpu")
    model.max_seq_length = 128

    def encode(texts: list[str]) -> np.ndarray:
        return np.asarray(model.encode(texts, batch_size=64), dtype=np.float64)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(
            CorpusConfig(name=wanted.corpus, max_passages=wanted.max_passages, splits="official"),
            {},
            Place(str(folder / "corpus")),
        )
        corpus = Place(str(folder / "corpus"))
        head = ["queries of", "found by", "share", *SEARCHES, "gain of BM25", "of both"]
        print(f"| {' | '.join(head)} |\n| :-- | :-- |{' --: |' * (len(head) - 2)}")
        asked = people(folder / "corpus", wanted.split)
        lists = search(asked, corpus, {}, encode)
        row("people", "", 1.0, {name: list(per_query(found, asked).values()) for name, found in lists.items()})
        known = CollectionFacts(corpus)
        some = candidates(corpus, known, folder / "out")
        relevant = {query: dict.fromkeys(own, 1) for query, own in relevant_of(some, known).items()}
        made = Asked({one.query_id: one.made.text for one in some}, relevant)
        lists = search(made, corpus, hiding_of(some), encode)
        values = {name: per_query(found, made) for name, found in lists.items()}
        found = {"bm25": finds(lists["BM25"], made), "minilm": finds(lists["minilm"], made), "none": set(made.texts)}
        found["either"] = found["bm25"] | found["minilm"]
        for source in PLAIN:
            own = [one.query_id for one in some if one.source == source]
            for kept in KEPT:
                names = [query for query in own if query in found[kept]]
                if len(names) >= 30:
                    row(source, kept, len(names) / len(own), {s: [values[s][q] for q in names] for s in SEARCHES})


if __name__ == "__main__":
    main()
