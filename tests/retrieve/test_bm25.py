import math
import re
from pathlib import Path

import ir_measures
import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
import Stemmer

from midmask.artifact import Artifact, Place
from midmask.retrieve import ranked
from midmask.retrieve.bm25 import Bm25Config, rank_with_bm25
from midmask.retrieve.bm25_search import Bm25Index
from tests.support.corpora.collections import prepared
from tests.support.retrieve.bm25 import bm25_index, ranked_by_bm25
from tests.support.retrieve.collection import write_parts

DOCS = [
    ("z", "Ray trains", "trains running trains of rays and rays"),
    ("b", "", "the copy of a train"),
    ("a", "", "the copy of a train"),
    ("y", "", "x y z"),
    ("ü", "Größe", "Die Größe der 3 Züge, train_car 42"),
]

QUERIES = [("q1", "a running train"), ("q2", "Größe; train copies"), ("q3", "nothing known"), ("q4", "train train ray")]


@pytest.fixture
def corpus(tmp_path: Path) -> Artifact:
    return write_parts(
        Place(str(tmp_path / "corpus")),
        docs=DOCS,
        queries=QUERIES,
        qrels=[("dev", "q1", "z", 1), ("dev", "q2", "ü", 1), ("dev", "q3", "a", 1), ("test", "q4", "z", 1)],
    )


def words(text: str) -> list[str]:
    stem = Stemmer.Stemmer("english")
    return [stem.stemWord(word) for word in re.findall(r"\w\w+", text.lower())]


def slow_bm25(query: str, k1: float, b: float, *, titles: bool) -> list[tuple[str, float]]:
    """Lucene's formula (Kamphuis et al. 2020, table 1, "accurate"), word by word in float64; best first, ties by id."""
    texts = {doc_id: words(f"{title} {text}" if titles else text) for doc_id, title, text in DOCS}
    average = sum(map(len, texts.values())) / len(texts)
    scores = {}
    for doc_id, text in texts.items():
        total = 0.0
        for word in words(query):
            holding = sum(word in other for other in texts.values())
            idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            often = text.count(word)
            total += idf * often / (often + k1 * (1 - b + b * len(text) / average))
        if total > 0:
            scores[doc_id] = total
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.parametrize(("k1", "b", "titles"), [(0.9, 0.4, True), (1.5, 0.75, False)])
def test_scores_are_lucenes_formula_and_ties_go_by_document_id(corpus, tmp_path, k1, b, titles):
    out = Place(str(tmp_path / "out"))
    config = Bm25Config(splits=("dev", "test"), k1=k1, b=b, titles=titles)
    result = ranked_by_bm25(config, {"corpus": corpus}, out)
    found = [ranked.read(out / "ranked" / f"{split}.parquet").to_pylist() for split in ("dev", "test")]
    for query_id, text in QUERIES:
        rows = found[query_id == "q4"]
        expected = slow_bm25(text, k1, b, titles=titles)
        mine = [row for row in rows if row["query_id"] == query_id]
        assert [row["doc_id"] for row in mine] == [doc_id for doc_id, _ in expected]
        np.testing.assert_allclose([row["score"] for row in mine], [score for _, score in expected], rtol=1e-5)
    assert result["splits"]["dev"] == {"queries": 3, "without_results": 1, "ranked": len(found[0])}


def test_the_index_is_mapped_and_a_finished_split_is_not_ranked_again(corpus, tmp_path: Path):
    out, made = Place(f"file://{tmp_path}/out"), bm25_index(corpus, Place(f"file://{tmp_path}"))
    inputs = {"corpus": corpus, "index": made}
    rank_with_bm25(Bm25Config(), inputs, out)
    index = Bm25Index(made.place)
    mapped = {Path(area.path).parent for area in psutil.Process().memory_maps()}
    assert (made.place / "index").local() in mapped and len(index.doc_ids) == len(DOCS)
    planted = ranked.read(out / "ranked" / "dev.parquet").slice(0, 1)
    ranked.write(out / "ranked" / "dev.parquet", [planted])
    result = rank_with_bm25(Bm25Config(splits=("dev", "test")), inputs, out)
    assert {split: found["ranked"] for split, found in result["splits"].items()} == {"dev": 1, "test": 3}
    assert out.names() == ["ranked"]


def test_cranfield_is_as_good_as_its_reference(cranfield: Path, tmp_path: Path):
    """The collection's own figure, by another BM25 with another stemmer, is 0.3394; ours is 0.3512."""
    facts = prepared(f"beir:{cranfield}", tmp_path / "corpus")
    corpus, out = Artifact(Place(str(tmp_path / "corpus")), {"fingerprint": "", "result": facts}), tmp_path / "out"
    ranked_by_bm25(Bm25Config(splits=("dev", "test", "train"), depth=100), {"corpus": corpus}, Place(str(out)))
    found = pq.read_table(out / "ranked", columns=["query_id", "doc_id", "rank"]).to_pylist()
    judged = pq.read_table(tmp_path / "corpus" / "qrels.parquet").to_pylist()
    run = [ir_measures.ScoredDoc(row["query_id"], row["doc_id"], -row["rank"]) for row in found]
    qrels = [ir_measures.Qrel(row["query_id"], row["doc_id"], row["grade"]) for row in judged]
    value = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]
    assert value == pytest.approx(0.3512, abs=0.0005)
