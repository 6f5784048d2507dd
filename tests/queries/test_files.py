"""Queries of a file: what its lines are, and that BM25 answers them clearly."""

import gzip
import json
from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.queries.config import QueriesConfig
from midmask.queries.files import FileQueries, parse_query_line
from midmask.queries.round_trip import bm25_over
from midmask.queries.step import make_queries
from midmask.retrieve.bm25_search import Bm25Index
from tests.support.queries.articles import HandBm25, articles, corpus_of, rows_of

PASSAGES = articles(12)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Bm25Index:
    folder = tmp_path_factory.mktemp("index")
    return bm25_over(corpus_of(folder / "corpus", PASSAGES).place, {}, Place(str(folder / "index")))


def real_looking() -> list[str]:
    """Parts of passages, some of words that many passages have."""
    return [" ".join(one.text.split()[at : at + 4]) for one in PASSAGES for at in (2, 20)]


@pytest.mark.parametrize(
    ("line", "json_lines", "wanted"),
    [
        ("what is  a wing", False, "what is a wing"),
        ("17\twhat is a wing", False, "what is a wing"),
        (" ", False, None),
        ('{"text": "a wing"}', True, "a wing"),
        ('{"_id": "1", "query": " a wing "}', True, "a wing"),
        ('{"_id": "1"}', True, None),
        ('["a wing"]', True, None),
        ('{"text": "\\ud800 wing"}', True, None),
        ("a wing", True, None),
    ],
)
def test_lines(line: str, json_lines: bool, wanted: str | None) -> None:
    assert parse_query_line(line, json_lines=json_lines) == wanted


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.5])
def test_a_positive_is_the_first_passage_if_it_is_first_by_the_margin(
    tmp_path: Path, index: Bm25Index, margin: float
) -> None:
    texts = real_looking()
    (tmp_path / "q.txt").write_text("\n".join([*texts, texts[0], "", "unheard words"]))
    source = FileQueries(Place(str(tmp_path / "q.txt")), index, margin, 1_000, 0)
    found = {made.text: made.doc_id for made in source.queries(PASSAGES)}
    hand = HandBm25({one.doc_id: f"{one.title} {one.text}" for one in PASSAGES})
    wanted = {}
    for text in set(texts):
        scores = sorted(((score, doc_id) for doc_id, score in hand.scores(text).items()), reverse=True)
        if scores[0][0] >= (1 + margin) * scores[1][0]:
            wanted[text] = scores[0][1]
    assert found == wanted and 0 < len(found) < len(texts) + (margin == 0)
    assert source.facts["lines"] == len(texts) + 2 and source.facts["without_passage"] == 1
    assert source.facts["searched"] == len(found) + source.facts["without_margin"] + 1


def test_only_so_many_are_searched_as_are_wanted(tmp_path: Path, index: Bm25Index) -> None:
    rows = [{"query": text} for text in real_looking()]
    (tmp_path / "q.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    source = FileQueries(Place(str(tmp_path / "q.jsonl.gz")), index, 0.0, 7, 0)
    assert source.facts["searched"] == 7


def test_weak_labels_stay_out_of_the_values_of_bm25(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("\n".join(real_looking()))
    source = f"file:{tmp_path}/q.txt"
    config = QueriesConfig(sources={source: 1.0, "sentences": 1.0}, bm25_target=0.5, copies=1)
    corpus = corpus_of(tmp_path / "corpus", PASSAGES)
    result = make_queries(config, {"corpus": corpus}, Place(str(tmp_path / "out")))
    told = result["sources"][source]
    assert told["weak_labels"] and told["kept"] == result["weak_labels"] > 10 and told["bm25"]["RR@10"] > 0.9
    assert told["read"]["searched"] == told["made"] + told["read"]["without_margin"]
    rows = rows_of(tmp_path / "out" / "queries.parquet")
    others = sum(row["kept"] and row["split"] == "test" and row["source"] == "sentences" for row in rows)
    assert result["bm25"]["test"]["queries"] == others < result["splits"]["test"]
