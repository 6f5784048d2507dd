"""Scores: other systems on the same queries, another tool's lists, and MTEB's files."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import midmask
from midmask import UserError
from midmask.exchange.mteb_files import read_result
from tests.support.api import toy


@pytest.fixture(scope="module")
def scores(run: midmask.Run) -> dict[str, midmask.Scores]:
    return {"run": midmask.evaluate(run, split="test"), "bm25": midmask.evaluate("bm25", run, split="test")}


def test_bm25_and_a_folder_meet_the_queries_of_the_run(run: midmask.Run, scores: dict[str, midmask.Scores]) -> None:
    own = scores["run"].per_query("nDCG@10")
    assert own.keys() == scores["bm25"].per_query("nDCG@10").keys()
    folder = midmask.evaluate(run.model, run, split="test")
    assert folder.system == "model"
    assert folder.per_query("nDCG@10") == own


def test_another_corpus_keeps_the_splits_of_its_files(run: midmask.Run) -> None:
    other = midmask.Corpus.from_texts(toy.texts()[:9], queries=toy.queries()[:9], relevant=range(9), name="other")
    found = midmask.evaluate(run, other)
    assert (found.corpus, found.split, len(found.per_query("RR@10"))) == ("other", "test", 9)
    with pytest.raises(UserError, match=r"unknown split of other 'dev'.*Known: test"):
        midmask.evaluate(run, other, split="dev")


def test_a_run_can_be_joined_with_bm25(run: midmask.Run, scores: dict[str, midmask.Scores]) -> None:
    both = midmask.evaluate(run, split="test", bm25_share=0.5)
    assert both.system == "retromae + bm25"
    assert both.per_query("RR@10").keys() == scores["run"].per_query("RR@10").keys()
    weakest, strongest = sorted(scores[name]["RR@10"] for name in ("run", "bm25"))
    assert weakest < both["RR@10"] != strongest
    with pytest.raises(UserError, match=r"bm25_share = 0\.5: BM25's list is joined with an encoder's"):
        midmask.evaluate("bm25", run, bm25_share=0.5)


def test_what_is_missing_is_said(run: midmask.Run, scores: dict[str, midmask.Scores], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown measure 'nDCG@20'.*measures=\['nDCG@20'\]"):
        scores["run"]["nDCG@20"]
    with pytest.raises(UserError, match="name the corpus too"):
        midmask.evaluate("bm25", storage=tmp_path)
    with pytest.raises(UserError, match="leave storage out"):
        midmask.evaluate(run, storage=tmp_path)
    with pytest.raises(UserError, match="unknown measure 'nDGC'; did you mean 'nDCG'"):
        midmask.evaluate(run, measures=["nDGC@10"])


def test_a_comparison_tests_the_same_queries_in_pairs(scores: dict[str, midmask.Scores]) -> None:
    table = midmask.compare([scores["run"], scores["bm25"]], measures=["RR@10"])
    (row,) = table.result.comparisons["RR@10"]
    values = [scores[name].per_query("RR@10") for name in ("run", "bm25")]
    paired = [[one[query] for query in sorted(values[0])] for one in values]
    assert row.p == pytest.approx(stats.ttest_rel(paired[0], paired[1]).pvalue)
    assert abs(row.difference) == pytest.approx(abs(np.mean(paired[0]) - np.mean(paired[1])))
    assert "paired t-test" in str(table) and "**1.0000**" in str(table)
    assert table._repr_html_().startswith("<table>") and "\\toprule" in table.latex()
    assert table.csv().splitlines()[0].startswith("system,column,mean")


def test_labels_seeds_and_refusals(scores: dict[str, midmask.Scores], run: midmask.Run) -> None:
    one, bm25 = scores["run"], scores["bm25"]
    table = midmask.compare({"seeds": [one, one], "bm25": bm25}, baseline="bm25")
    assert table.result.cells["seeds", "RR@10"].seeds == 2
    with pytest.raises(UserError, match="two systems are called 'retromae'"):
        midmask.compare([one, one])
    with pytest.raises(UserError, match="no scores"):
        midmask.compare([])
    with pytest.raises(UserError, match="of one corpus and split"):
        midmask.compare([one, midmask.evaluate("bm25", run, split="dev")])
    with pytest.raises(UserError, match="share no measure"):
        midmask.compare({"a": one, "b": midmask.evaluate(run, split="test", measures=["P@1"])})


def test_scores_are_written_as_results_of_mteb(run: midmask.Run, tmp_path: Path) -> None:
    own, bm25 = midmask.evaluate(run, split="test"), midmask.evaluate("bm25", run, split="test")
    files = midmask.export_mteb({"mine": [own, own], "bm25": bm25}, tmp_path, task="Texts")
    assert list(files) == ["mine", "bm25"]
    for label, scores in (("mine", own), ("bm25", bm25)):
        result = read_result(files[label])
        assert (result.model, result.task) == (label, "Texts")
        assert result.dataset_revision == scores.artifact.record["inputs"]["corpus"]
        assert result.measures["test", "default"] == pytest.approx(scores.measures, abs=1e-12)
    parts = [json.loads(file.read_text())["scores"]["test"][0] for file in files.values()]
    better = 0 if own["nDCG@10"] > bm25["nDCG@10"] else 1
    assert parts[better]["rank"] == 1 and [part["seeds"] for part in parts] == [2, 1]
    assert {"rank_best", "rank_worst"} <= parts[0].keys() and parts[0]["languages"] == ["eng-Latn"]


@pytest.fixture(scope="module")
def bm25(run: midmask.Run) -> midmask.Scores:
    return midmask.evaluate("bm25", run, split="test")


@pytest.fixture
def file(bm25: midmask.Scores, tmp_path: Path) -> Path:
    copy = tmp_path / "other.trec.gz"
    shutil.copy((bm25.artifact.place / "runs" / "texts.test.trec.gz").local(), copy)
    return copy


def test_a_run_file_has_scores_like_any_system(run: midmask.Run, bm25: midmask.Scores, file: Path) -> None:
    """On the queries that were drawn for the run's training."""
    other = midmask.evaluate_run(file, run, split="test")
    assert (other.system, other.corpus, other.split) == ("other", "texts", "test")
    assert other.measures == bm25.measures and other.table.equals(bm25.table)
    assert "other: a run file of" in str(other)
    (row,) = midmask.compare([other, bm25], measures=["RR@10"]).result.comparisons["RR@10"]
    assert row.difference == 0 and row.p == 1
    shallow = midmask.evaluate_run(file, run, split="test", name="first", depth=1, measures=["R@5"])
    assert shallow.system == "first" and shallow["R@5"] == pytest.approx(
        midmask.evaluate("bm25", run, split="test", measures=["R@1"])["R@1"]
    )
