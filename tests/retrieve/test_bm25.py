"""BM25 against its formula, and by shards against bm25s over the whole collection."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from midmask.core.config import Config
from midmask.retrieve import ranked
from midmask.retrieve.bm25.index import BM25_INDEX, BM25_WORDS, Bm25IndexConfig, Bm25WordsConfig
from midmask.retrieve.bm25.search import Bm25Config, Bm25Index, Bm25Search, rank_with_bm25
from midmask.retrieve.units import SearchWorker
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.sharded import Inputs, Sharded
from tests.support.corpora.collections import contents
from tests.support.queries.articles import HandBm25
from tests.support.retrieve.collection import WholeBm25, bm25_index, ranked_by_bm25, texts_of, write_corpus, write_parts

DOCS = [
    ("z", "Ray trains", "trains running trains of rays and rays"), ("b", "", "the copy of a train"),
    ("a", "", "the copy of a train"), ("y", "", "x y z"), ("ü", "Größe", "Die Größe der 3 Züge, train_car 42"),
]  # fmt: skip

QUERIES = [("q1", "a running train"), ("q2", "Größe; train copies"), ("q3", "nothing known"), ("q4", "train train ray")]


@pytest.fixture
def corpus(tmp_path: Path) -> Artifact:
    return write_parts(
        Place(str(tmp_path / "corpus")),
        docs=DOCS,
        queries=QUERIES,
        qrels=[("dev", "q1", "z", 1), ("dev", "q2", "ü", 1), ("dev", "q3", "a", 1), ("test", "q4", "z", 1)],
    )


@pytest.mark.parametrize(("k1", "b", "titles"), [(0.9, 0.4, True), (1.5, 0.75, False)])
def test_scores_are_lucenes_formula_and_ties_go_by_document_id(corpus, tmp_path, k1, b, titles):
    """Kamphuis et al. 2020, table 1, "accurate", word by word in float64."""
    out = Place(str(tmp_path / "out"))
    result, found = {}, []
    for split in ("dev", "test"):
        config = Bm25Config(splits=(split,), k1=k1, b=b, titles=titles)
        result |= ranked_by_bm25(config, {"corpus": corpus}, out / split)["splits"]
        found.append(ranked.read(out / split / "ranked" / f"{split}.parquet").to_pylist())
    hand = HandBm25({doc_id: f"{title} {text}" if titles else text for doc_id, title, text in DOCS}, k1, b)
    for query_id, text in QUERIES:
        rows = found[query_id == "q4"]
        scores = [pair for pair in hand.scores(text).items() if pair[1] > 0]
        expected = sorted(scores, key=lambda pair: (-pair[1], pair[0]))
        mine = [row for row in rows if row["query_id"] == query_id]
        assert [row["doc_id"] for row in mine] == [doc_id for doc_id, _ in expected]
        np.testing.assert_allclose([row["score"] for row in mine], [score for _, score in expected], rtol=1e-5)
    assert result["dev"] == {"queries": 3, "without_results": 1, "ranked": len(found[0])}


def test_the_index_is_mapped(corpus, tmp_path: Path):
    out, made = Place(f"file://{tmp_path}/out"), bm25_index(corpus, Place(f"file://{tmp_path}"))
    inputs = {"corpus": corpus, "index": made}
    rank_with_bm25(Bm25Config(), inputs, out)
    index = Bm25Index(made.place)
    mapped = {Path(area.path).parent for area in psutil.Process().memory_maps()}
    assert (made.place / "index").local() in mapped and len(index.doc_ids) == len(DOCS)
    assert out.names() == ["ranked"]


def cut(corpus: Artifact, place: Place, rows: int) -> Artifact:
    """The same collection in shards of so many passages."""
    docs = pq.read_table((corpus.place / "docs").local())
    for number, first in enumerate(range(0, len(docs), rows)):
        with (place / "docs" / f"{number:05d}.parquet").writing() as stream:
            pq.write_table(docs.slice(first, rows), stream)
    for name in ("queries.parquet", "qrels.parquet"):
        (place / name).copy_from(corpus.place / name)
    return Artifact(place, corpus.record)


@pytest.fixture
def whole(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Passages of words as frequent as those of a language, some with one word that all others lack, in one shard."""
    draw = np.random.default_rng(3)
    words = np.array(["".join(draw.choice(list("abcdefghijklmnop"), draw.integers(2, 8))) for _ in range(2000)])

    def text(least: int, most: int) -> str:
        return " ".join(words[np.minimum(draw.zipf(1.3, draw.integers(least, most)) - 1, 1999)])

    names = [f"d{row:04d}" for row in draw.permutation(1000)]
    docs = [(name, text(0, 4), text(1, 60) + f" only{row}" * (row % 3 == 0)) for row, name in enumerate(names)]
    queries = [(f"q{row:03d}", f"{text(1, 9)} only{row}") for row in range(150)]
    place = Place(str(tmp_path_factory.mktemp("whole")))
    qrels = [("dev" if row % 3 else "test", name, names[row], 1) for row, (name, _) in enumerate(queries)]
    corpus = write_parts(place / "parts", docs=docs, queries=queries, qrels=qrels)
    return cut(corpus, place / "one shard", 1000)


def texts_of_queries(corpus: Artifact) -> list[str]:
    return pq.read_table((corpus.place / "queries.parquet").local())["text"].to_pylist()


CUTS = [(67, 0.9, 0.4, True), (700, 1.7, 0.75, False), (1000, 0, 1, True)]


@pytest.mark.parametrize(("rows", "k1", "b", "titles"), CUTS)
def test_every_score_has_the_bits_of_bm25s_over_the_whole_collection(whole, tmp_path, monkeypatch, rows, k1, b, titles):
    monkeypatch.setattr("midmask.retrieve.bm25.index.MERGED_AT_ONCE", 4)  # several times, of 15 shards
    corpus = cut(whole, Place(str(tmp_path / "corpus")), rows)
    index = Bm25Index(bm25_index(corpus, Place(str(tmp_path)), Bm25Config(k1=k1, b=b, titles=titles)).place)
    texts = texts_of(whole, titles=titles)
    ids, reference = [*texts], WholeBm25([*texts.values()], k1, b)
    assert index.doc_ids.to_pylist() == ids
    queries = texts_of_queries(whole)
    scores_QN, rows_QN = index.find([*queries, f"{queries[0]} {queries[0]}", "zzz"], len(ids))
    for query, scores_K, rows_K in zip(queries, scores_QN, rows_QN, strict=False):
        expected = reference.scores(query)
        found = np.zeros(len(ids), np.float32)
        found[rows_K[rows_K >= 0]] = scores_K[rows_K >= 0]
        assert found.tobytes() == expected.tobytes()
    assert (scores_QN[-2] >= scores_QN[0]).all(), "a word that is asked twice counts twice"
    assert (rows_QN[-1] == -1).all()


def of_docs(place: Place, docs: list[tuple[str, str, str]], rows: int) -> Artifact:
    """These passages in shards of so many, and one query."""
    corpus = write_parts(place / "whole", docs=docs, queries=[("q", "same")], qrels=[("dev", "q", docs[0][0], 1)])
    return cut(corpus, place / "cut", rows)


def test_passages_and_shards_without_words_and_words_of_one_shard(tmp_path: Path) -> None:
    docs = [("c", "", "- x"), ("b", "", "rare words"), ("a", "", ""), ("d", "", "words of all words")]
    reference = WholeBm25([text for _, _, text in docs])
    for rows in (1, 2, 3, 4):
        place = Place(str(tmp_path / str(rows)))
        index = Bm25Index(bm25_index(of_docs(place, docs, rows), place).place)
        for query in ("words", "rare", "of rare words words", "all x"):
            found = index.search(["q"], [query], 10)
            scores = reference.scores(query)
            expected = [docs[row][0] for row in np.lexsort((np.arange(4), -scores)) if scores[row] > 0]
            assert found["doc_id"].to_pylist() == expected
            assert found["score"].to_pylist() == [score for score in np.sort(scores)[::-1].tolist() if score > 0]


def by_ranges(work: Bm25Search, count: int) -> None:
    """As many workers in one process, each with some shards."""
    shards, blocks = work.shards(count), work.begin()
    workers = [SearchWorker(work, some) for some in shards]

    def search_blocks() -> Iterator[int]:
        for block in range(blocks):
            for worker in reversed(workers):
                worker.search(block)
            yield block

    work.finish(shards, search_blocks())


def test_the_ranked_lists_have_the_same_bytes_however_shards_are_cut_and_dealt_out(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("midmask.retrieve.searched_queries.QUERY_BLOCK", 40)  # several blocks
    config = Bm25Config(depth=50)
    alone = Place(str(tmp_path / "alone"))
    inputs = {"corpus": whole, "index": bm25_index(whole, Place(str(tmp_path)))}
    assert rank_with_bm25(config, inputs, alone)["splits"]["dev"]["queries"] == 100
    for rows, count in ((170, 4), (700, 5)):
        root = Place(str(tmp_path / str(rows)))
        corpus = cut(whole, root / "corpus", rows)
        by_ranges(Bm25Search(config, {"corpus": corpus, "index": bm25_index(corpus, root)}, root / "ranked"), count)
        assert contents(tmp_path / str(rows) / "ranked") == contents(tmp_path / "alone")


def test_equal_scores_at_the_cut_are_decided_by_ids_of_all_shards(tmp_path: Path) -> None:
    docs, place = [(f"d{(row * 37) % 100:02d}", "", "same words") for row in range(100)], Place(str(tmp_path))
    shards = of_docs(place, docs, 9)
    work = Bm25Search(Bm25Config(depth=13), {"corpus": shards, "index": bm25_index(shards, place)}, place / "out")
    by_ranges(work, 4)
    rows = ranked.read(work.out / "ranked" / "dev.parquet")
    assert rows["doc_id"].to_pylist() == [f"d{row:02d}" for row in range(13)]


def killed(step: Sharded, config: Config, inputs: Inputs, out: Place) -> dict[Path, int]:
    """Files, and when they were written, that a pass leaves which ends before its third shard."""
    written: list[str] = []

    def worker(*given: Any) -> Callable[[str], None]:
        make = step.worker(*given)

        def write(name: str) -> None:
            if len(written) == 2:
                raise KeyboardInterrupt
            make(name)
            written.append(name)

        return write

    with pytest.raises(KeyboardInterrupt):
        replace(step, worker=worker)(config, inputs, out)
    return {path: path.stat().st_mtime_ns for path in Path(out.uri).rglob("*") if path.is_file()}


def test_a_build_that_was_killed_between_shards_goes_on(tmp_path: Path) -> None:
    root = Place(str(tmp_path))
    corpus = cut(write_corpus(root / "whole"), root / "corpus", 70)
    expected = bm25_index(corpus, root / "alone")
    left = killed(BM25_WORDS, Bm25WordsConfig(), {"corpus": corpus}, root / "words")
    assert sorted(path.parent.name for path in left) == ["counted", "counted", "passages", "passages"]
    (tmp_path / "words" / "counted" / "00003.parquet.1234.draft").write_bytes(b"cut off")
    result = BM25_WORDS(Bm25WordsConfig(), {"corpus": corpus}, root / "words")
    assert contents(tmp_path / "words") == contents(tmp_path / "alone" / "words")
    words = Artifact(root / "words", {"fingerprint": "w", "result": result})
    left |= killed(BM25_INDEX, Bm25IndexConfig(), {"words": words}, root / "index")
    assert len(left) == 4 + 5, "two shards with their ids, and the collection's words"
    assert BM25_INDEX(Bm25IndexConfig(), {"words": words}, root / "index") == expected.result
    assert contents(tmp_path / "index") == contents(tmp_path / "alone" / "index")
    assert {path: path.stat().st_mtime_ns for path in left} == left
