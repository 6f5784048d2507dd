"""From each layout to measures, against values worked out by hand; and back to files."""

from math import log2
from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.corpora.export import export_beir
from midmask.evaluation.retriever import EvaluateConfig, evaluate_retriever
from midmask.retrieve.bm25 import Bm25Config
from tests.support.corpora import layouts
from tests.support.corpora.collections import contents, prepared, quarantine, rows, write
from tests.support.corpora.layouts import evaluated, read
from tests.support.retrieve.bm25 import ranked_by_bm25
from tests.support.retrieve.collection import made


def test_ms_marco_dev_small_by_the_papers_measures(tmp_path: Path) -> None:
    layouts.write_msmarco(tmp_path / "in")
    corpus = read(f"msmarco:{tmp_path}/in", tmp_path / "out")
    result = corpus.result
    assert result["splits"] == {"dev": {"queries": 4, "judgements": 5}, "train": {"queries": 10, "judgements": 10}}
    # dev.small lies within dev, eval.small within eval: 4 + 2 rows are there twice, and no bad rows.
    assert result["rows_left_out"] == {"the same query in two files": 6} and result["rows_quarantined"] == {}
    assert result["rows_read"] == 50 + 29 + 15 == result["rows_kept"] + 6
    assert (result["titled"], result["queries"]) == (0, 23)
    assert rows(tmp_path / "out/docs")[0]["text"] == layouts.passage(0), "the carriage return is no part of the text"
    lists = {"200": ["5", "0", "1"], "201": ["2"], "203": ["9", "8", "7"], "204": ["1"]}
    found = evaluated(corpus, "dev", lists, ["msmarco", "R@2"])
    # 200: 1/2 and both of two; 201: 1; 202 has no result, 203 nothing relevant: both 0, as trec_eval -c has it.
    assert found["measures"] == {"RR@10": 1.5 / 4, "R@50": 2 / 4, "R@1000": 2 / 4, "R@2": 1.5 / 4}
    assert (found["queries"], found["without_results"]) == (4, 1)


def test_trec_deep_learning_is_a_split_of_ms_marco_with_grades(tmp_path: Path) -> None:
    layouts.write_msmarco(tmp_path / "in")
    layouts.write_deep_learning(tmp_path / "in")
    corpus = read(f"msmarco:{tmp_path}/in", tmp_path / "out", splits="complete")
    splits = corpus.result["splits"]
    # The test split is drawn from dev, but never from TREC's queries.
    assert splits["dl19"] == {"queries": 2, "judgements": 5} and splits["dl20"] == {"queries": 1, "judgements": 1}
    assert splits["dev"]["queries"] + splits["test"]["queries"] == 4 and "half of dev" in corpus.result["split_rule"]
    lists = {"300": ["12", "11", "10"], "301": ["20"], "302": ["1", "2"]}
    found = evaluated(corpus, "dl19", lists, ["trec-dl"])["measures"]
    gained, best = 1 + 2 / log2(3) + 3 / log2(4), 3 + 2 / log2(3) + 1 / log2(4)
    assert found["nDCG@10"] == pytest.approx((gained / best + 1) / 2)
    # Grade 1 is not relevant where relevance is binary: 301 has nothing to find, and counts 0. 302 is not judged.
    assert found["RR(rel=2)@10"] == pytest.approx((1 / 2 + 0) / 2)
    assert found["AP(rel=2)@1000"] == pytest.approx(((1 / 2 + 2 / 3) / 2 + 0) / 2)
    assert found["R(rel=2)@100"] == found["R(rel=2)@1000"] == 0.5


def test_rocketqas_titles_are_found_beside_the_passages(tmp_path: Path) -> None:
    layouts.write_rocketqa(tmp_path / "in")
    corpus = read(f"msmarco:{tmp_path}/in", tmp_path / "out")
    docs = {row["doc_id"]: row for row in rows(tmp_path / "out/docs")}
    wanted = {str(n): "" if n % 5 == 0 or n % 7 == 3 else f"Title {n}" for n in range(50)}
    assert {name: row["title"] for name, row in docs.items()} == wanted
    assert corpus.result["titled"] == sum(title != "" for title in wanted.values())
    assert set(corpus.result["splits"]) == {"train", "dev"}
    found = evaluated(corpus, "dev", {str(n): [str(n)] for n in range(5, 9)}, ["msmarco"])
    assert found["measures"]["RR@10"] == 1.0


def test_arguana_through_bm25_does_not_retrieve_the_query(tmp_path: Path) -> None:
    layouts.write_arguana(tmp_path / "in")
    corpus = read(f"beir:{tmp_path}/in", tmp_path / "out")
    assert corpus.result["splits"] == {"test": {"queries": 10, "judgements": 10}}
    assert corpus.result["self_matches"]["rule"] == "id" and corpus.result["self_matches"]["pairs"] == 10
    bm25 = made(ranked_by_bm25, Bm25Config(splits=("test",), depth=11), {"corpus": corpus}, Place(f"{tmp_path}/bm25"))
    config = EvaluateConfig(split="test", depth=10, measures=("RR@10", "beir"))
    result = evaluate_retriever(config, {"corpus": corpus, "ranked": bm25}, Place(str(tmp_path / "values")))
    # Query n shares its rare words with passage n (itself) and with n - 2 and n + 2; the latter is relevant.
    assert result["self_matches"] == 10
    assert 0.5 <= result["measures"]["RR@10"] <= 1.0 and result["measures"]["R@100"] == 1.0
    # The same list, the query left in: rank 1 is lost in every query.
    (tmp_path / "out/self_matches.parquet").unlink()
    kept = evaluate_retriever(config, {"corpus": corpus, "ranked": bm25}, Place(str(tmp_path / "kept")))
    assert kept["self_matches"] == 0 and kept["measures"]["RR@10"] <= 0.5


@pytest.mark.parametrize("form", ["csv", "json"])
def test_nq_is_judged_by_answer_strings(tmp_path: Path, form: str) -> None:
    layouts.write_nq(tmp_path / "in", form=form)
    corpus = read(f"nq:{tmp_path}/in", tmp_path / "out")
    assert corpus.result["splits"]["test"] == {"queries": 4, "judgements": 0, "answered": 4}
    docs = rows(tmp_path / "out/docs")
    assert docs[0] == {"doc_id": "1", "title": "Title 0", "text": 'the "Big" Apple is New York City'}
    answers = {row["query_id"]: row["answers"] for row in rows(tmp_path / "out/answers.parquet")}
    assert answers["test-0"] == ["New York", "the city that doesn't sleep"]
    assert set(answers) == {*(f"test-{n}" for n in range(4)), "dev-0"}
    lists = {"test-0": ["5", "1"], "test-1": ["7", "8", "2"], "test-2": ["3"]}
    found = evaluated(corpus, "test", lists, ["Success@1", "Success@2", "Success@5"])
    # "July 20" is no token sequence of "July 20th", but the second answer is; nothing was retrieved for test-3.
    assert found["measures"] == {"Success@1": 1 / 4, "Success@2": 2 / 4, "Success@5": 3 / 4}
    assert (found["queries"], found["without_results"]) == (4, 1)


def test_nq_is_trained_on_dprs_first_positives(tmp_path: Path) -> None:
    layouts.write_nq(tmp_path / "in")
    layouts.write_dpr_training(tmp_path / "in")
    result = read(f"nq:{tmp_path}/in", tmp_path / "out", splits="complete").result
    assert result["splits"]["train"] == {"queries": 6, "judgements": 6, "answered": 6}
    assert set(result["splits"]) == {"train", "dev", "test"} and not result["splits_made_here"]
    judged = [(row["query_id"], row["doc_id"]) for row in rows(tmp_path / "out/qrels.parquet")]
    assert judged == [(f"train-{n}", str(n + 11)) for n in range(6)]
    # In a sample, queries with answer strings can still be judged, whatever became of their positives.
    few = read(f"nq:{tmp_path}/in", tmp_path / "few", splits="complete", max_passages=10).result
    assert (few["passages"], few["splits"]["test"]["answered"]) == (10, 4) and few["splits"]["train"]["judgements"] < 6
    queries = {row["query_id"]: row["text"] for row in rows(tmp_path / "out/queries.parquet")}
    assert queries["train-5"] == "which is word15" and "not read" not in queries.values()


def test_tripclick_by_slice_and_by_both_kinds_of_judgements(tmp_path: Path) -> None:
    layouts.write_tripclick(tmp_path / "in")
    corpus = read(f"tripclick:{tmp_path}/in", tmp_path / "out")
    splits = corpus.result["splits"]
    wanted = {"test": 4, "test.head": 2, "test.head-dctr": 2, "test.tail": 1, "test.torso": 1}
    assert {name: part["queries"] for name, part in splits.items() if name.startswith("test")} == wanted
    assert {"train", "dev", "dev.head-dctr"} <= set(splits) and corpus.result["rows_read"] == 50 + 12 + 54
    first = {"doc_id": "0", "title": "Study 0", "text": layouts.passage(0) + ", p < 0.05"}
    assert rows(tmp_path / "out/docs")[0] == first
    lists = {"300": ["2", "1"], "301": ["3", "1"], "310": ["1", "2"]}
    found = evaluated(corpus, "test", lists, ["nDCG@10"])
    both, graded = 1 + 1 / log2(3), 3 + 1 / log2(3)
    raw = {"300": 1.0, "301": (1 / log2(3)) / both, "310": 1.0, "320": 0.0}
    dctr = {"300": (1 + 3 / log2(3)) / graded, "301": (3 / log2(3)) / graded}
    assert found["measures"]["nDCG@10"] == pytest.approx(sum(raw.values()) / 4)
    slices = {name: (own["queries"], own["measures"]["nDCG@10"]) for name, own in found["slices"].items()}
    assert slices["test.head"] == (2, pytest.approx((raw["300"] + raw["301"]) / 2))
    assert slices["test.head-dctr"] == (2, pytest.approx(sum(dctr.values()) / 2))
    assert slices["test.torso"] == (1, pytest.approx(1.0)) and slices["test.tail"] == (1, 0.0)
    sampled = evaluated(corpus, "test", lists, ["nDCG@10"], max_queries=2)
    assert sampled["queries"] == 2
    assert sum(own["queries"] for name, own in sampled["slices"].items() if "-" not in name) == 2


@pytest.mark.parametrize(
    ("lines", "grade"),
    [(b"1\t0\t3\t2\n", 2), (b"1 0 3 2\n", 2), (b"1\t3\t2\n", 2), (b"1\t3\n", 1), (b"pid\tqid\n3\t1\n", 1)],
)
def test_ms_marcos_judgements_have_any_columns(tmp_path: Path, lines: bytes, grade: int) -> None:
    layouts.write_msmarco(tmp_path / "in")
    write(tmp_path / "in/qrels.train.tsv", lines)
    prepared(f"msmarco:{tmp_path}/in", tmp_path / "out")
    train = [row for row in rows(tmp_path / "out/qrels.parquet") if row["split"] == "train"]
    assert train == [{"split": "train", "query_id": "1", "doc_id": "3", "grade": grade}]


def test_trec_has_elements_columns_and_json_side_by_side(tmp_path: Path) -> None:
    """One document has no number, one is cut off."""
    layouts.write_trec(tmp_path / "in")
    faults = b"<DOC>\n<TEXT>nobody's</TEXT>\n</DOC>\n<DOC>\n<DOCNO>FT-3</DOCNO>\n<TEXT>cut off\n"
    write(tmp_path / "in/docs/a.gz", layouts.TREC_DOCS.replace(b"<DOC>\n<DOCNO>FT-4", faults + b"<DOC>\n<DOCNO>FT-4"))
    result = prepared(f"trec:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=0.5)
    assert rows(tmp_path / "out/docs") == [
        {"doc_id": "FT-1", "title": "Wings & tails", "text": "A wing in a  slipstream ."},
        {"doc_id": "FT-2", "title": "", "text": "1993 \nno text field, but words"},
        {"doc_id": "FT-4", "title": "", "text": "after the cut"},
        {"doc_id": "T-1", "title": "", "text": "tab and text"},
        {"doc_id": "J-1", "title": "j", "text": "json text"},
    ]
    assert rows(tmp_path / "out/queries.parquet") == [
        {"query_id": "403", "text": "osteoporosis"},
        {"query_id": "401", "text": "foreign minorities, Germany"},
        {"query_id": "402", "text": "behavioral genetics"},
    ]
    assert [(row["kind"], row["file"], row["line"]) for row in quarantine(tmp_path / "out")] == [
        ("malformed line", "docs/a.gz", 14),
        ("malformed line", "docs/a.gz", 17),
    ]
    assert result["rows_read"] == 7 + 3 + 3 and result["splits_made_here"]


def test_what_is_written_is_read_again_as_it_was(tmp_path: Path) -> None:
    """TripClick has titles, grades and slices; and a second export of what was read has the same bytes."""
    layouts.write_tripclick(tmp_path / "in")
    corpus = read(f"tripclick:{tmp_path}/in", tmp_path / "one")
    export_beir(corpus.place, Place(str(tmp_path / "beir")))
    judgements = (tmp_path / "beir/qrels/test.head-dctr.tsv").read_text()
    assert judgements.startswith("query-id\tcorpus-id\tscore\n300\t1\t3\n")
    again = read(f"beir:{tmp_path}/beir", tmp_path / "two")
    for name in ("docs", "queries.parquet"):
        assert rows(tmp_path / "one" / name) == rows(tmp_path / "two" / name)
    judged = [sorted(map(str, rows(tmp_path / place / "qrels.parquet"))) for place in ("one", "two")]
    assert judged[0] == judged[1] and len(judged[0]) == 54 + 36
    export_beir(again.place, Place(str(tmp_path / "beir2")))
    assert contents(tmp_path / "beir") == contents(tmp_path / "beir2")
