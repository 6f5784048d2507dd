"""Scores as MTEB's result files through the Python API."""

import json
from pathlib import Path

import pytest

import midmask
from midmask import UserError
from midmask.exchange.mteb_files import read_result


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


def test_what_is_wrong_is_said(run: midmask.Run, tmp_path: Path) -> None:
    scores = midmask.evaluate("bm25", run, split="test")
    with pytest.raises(UserError, match="export_mteb: no scores"):
        midmask.export_mteb([], tmp_path)
    with pytest.raises(UserError, match=r"called 'bm25'; label them: export_mteb\("):
        midmask.export_mteb([scores, scores], tmp_path)
    with pytest.raises(UserError, match=r"'a b' and 'a:b' would both be written to a-b"):
        midmask.export_mteb({"a b": scores, "a:b": scores}, tmp_path)
    with pytest.raises(UserError, match=r"texts test and texts dev; give scores of one corpus"):
        midmask.export_mteb({"one": scores, "two": midmask.evaluate("bm25", run, split="dev")}, tmp_path)
    shallow = midmask.evaluate("bm25", run, split="test", measures=["R@10"])
    with pytest.raises(UserError, match=r"bm25: nDCG@10 is MTEB's main score"):
        midmask.export_mteb([shallow], tmp_path)
    assert not list(tmp_path.iterdir()), "nothing was written"
