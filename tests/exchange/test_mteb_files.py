"""MTEB's result files: those that mteb 2.26 itself wrote (`tests/support/exchange/mteb`), and every way to be none."""

import json
from pathlib import Path
from typing import Any

import pytest

from midmask.errors import UserError
from midmask.exchange import mteb_files
from midmask.exchange.mteb_files import MtebResult, measure_name, read_result, score_name
from tests.support.exchange.mteb_results import CACHE


def test_what_mteb_wrote_is_read() -> None:
    """The document that was asked for stands second of two: nDCG 1 / log2(3), as MTEB rounds it, and RR 1 / 2."""
    files = mteb_files.result_files([CACHE])
    names = ("MockMultilingualRetrievalTask", "MockRetrievalTask", "MockSTSTask")
    assert [file.name for file in files] == [f"{name}.json" for name in names]
    parts, whole, other = map(read_result, files)
    assert (whole.model, whole.task) == ("sentence-transformers/all-MiniLM-L6-v2", "MockRetrievalTask")
    assert whole.revision == "8b3219a92973c328a8e22fadcfa821b5dc75636a" and whole.mteb_version == "2.26.24"
    assert set(whole.measures) == {("val", "default"), ("test", "default")}
    own = whole.measures["test", "default"]
    assert [own[name] for name in ("nDCG@10", "RR@10", "AP@10", "R@1", "R@3", "P@3", "Success@3")] == [
        *(0.63093, 0.5, 0.5, 0.0, 1.0, 0.33333, 1.0)
    ]
    assert set(parts.measures) == {(split, language) for split in ("val", "test") for language in ("eng", "fra")}
    assert parts.corpus("fra") == "MockMultilingualRetrievalTask fra" and whole.corpus("default") == "MockRetrievalTask"
    assert other.measures == {}, "similarity of sentences is no retrieval"


def test_names_of_measures_go_both_ways() -> None:
    for name, own in mteb_files.NAMES.items():
        for cutoff in (1, 10, 1000):
            assert measure_name(f"{name}_at_{cutoff}") == f"{own}@{cutoff}"
            assert score_name(f"{own}@{cutoff}") == f"{name}_at_{cutoff}"
    others = ("nauc_ndcg_at_10_max", "main_score", "ndcg_at_", "ndcg_at_10_x", "recall", "cv_recall_at_1")
    assert [measure_name(name) for name in others] == [None] * 6
    assert [score_name(name) for name in ("R(rel=2)@100", "nDCG", "infAP")] == [None] * 3


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    measures = {("test", "default"): {"nDCG@10": 1 / 3, "R(rel=2)@100": 0.5, "R@100": 0.9}}
    written = MtebResult("mine/dupmae", "c0ffee", "SciFact", "0228b52", "", measures)
    file = mteb_files.write_result(written, {("test", "default"): {"languages": ["eng-Latn"], "rank": 2}}, tmp_path)
    assert file == tmp_path / "mine__dupmae" / "c0ffee" / "SciFact.json"
    (part,) = json.loads(file.read_text())["scores"]["test"]
    assert part == {
        **{"ndcg_at_10": 1 / 3, "recall_at_100": 0.9, "main_score": 1 / 3, "hf_subset": "default"},
        **{"languages": ["eng-Latn"], "rank": 2},
    }
    found = read_result(file)
    own = (found.model, found.revision, found.task, found.dataset_revision)
    assert own == ("mine/dupmae", "c0ffee", "SciFact", "0228b52")
    assert found.measures == {("test", "default"): {"nDCG@10": 1 / 3, "R@100": 0.9}}
    (file.parent / "model_meta.json").unlink()
    assert read_result(file).model == "mine/dupmae", "by the names of the folders"
    with pytest.raises(UserError, match=r"mine/dupmae: nDCG@10 is MTEB's main score"):
        none = MtebResult("mine/dupmae", "c0ffee", "SciFact", "0228b52", "", {("test", "default"): {"R@100": 0.9}})
        mteb_files.write_result(none, {("test", "default"): {"languages": []}}, tmp_path)


def content(**changes: Any) -> dict[str, Any]:
    part = {"ndcg_at_10": 0.5, "main_score": 0.5, "hf_subset": "default", "languages": ["eng-Latn"]}
    return {"task_name": "SciFact", "dataset_revision": "a", "scores": {"test": [{**part, **changes}]}}


DAMAGED = {
    "cut": ('{"task_name": "Sci', "no JSON"),
    "before 1.11": (json.dumps({"mteb_dataset_name": "SciFact", "test": {"ndcg_at_10": 0.5}}), r"to_disk\(FILE\)"),
    "splits without lists": (json.dumps({**content(), "scores": {"test": {"ndcg_at_10": 1}}}), "lists of subsets"),
    "a text": (json.dumps(content(ndcg_at_10="0.5")), "ndcg_at_10 is '0.5'; wanted is a number from 0 to 1"),
    "no number": (json.dumps(content(recall_at_5=float("nan"))), "recall_at_5 is nan"),
    "percent": (json.dumps(content(ndcg_at_10=63.1)), "ndcg_at_10 is 63.1"),
    "a truth value": (json.dumps(content(ndcg_at_10=True)), "ndcg_at_10 is True"),
}


@pytest.mark.parametrize(("text", "said"), DAMAGED.values(), ids=list(DAMAGED))
def test_damage_is_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "SciFact.json"
    file.write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        read_result(file)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)
