"""Files that others publish: MTEB's results, negatives and scores; every layout, and every way to be none."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.exchange import mteb_files
from midmask.exchange.hard_negatives_file import HardNegatives, line_of
from midmask.exchange.mteb_files import MtebResult, measure_name, read_result, score_name
from midmask.exchange.negatives_files import read_negatives_file
from midmask.exchange.score_files import LIST, read_scores_file
from midmask.mining.given_negatives import ReadNegativesConfig, read_negatives
from midmask.retrieve.lines import write_lines
from midmask.teacher.given_scores import ReadScoresConfig, read_scores
from tests.support.exchange.mteb_results import CACHE
from tests.support.retrieve.collection import write_parts


def passages(*ids: object) -> list[dict[str, Any]]:
    return [{"docid": one, "title": "a title", "text": f"text of {one}"} for one in ids]


NEGATIVES: dict[str, Any] = {
    "hard negatives": {"qid": 7, "pos": [1], "neg": {"bm25": [2, 3]}},
    "tevatron": {"query_id": "7", "positive_passages": passages("1"), "negative_passages": passages("2", "3")},
    "tevatron2": {"query_id": "7", "positive_document_ids": ["1"], "negative_document_ids": ["2", "3"]},
    "simlm": {
        "query_id": "7",
        "query": "a query",
        "positives": {"doc_id": ["1"], "score": [2.5]},
        "negatives": {"doc_id": ["2", "3"], "score": [0.5, -1.0]},
    },
}

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
ids = st.text("abcäß017-_:", min_size=1, max_size=6)


def saved(path: Path, text: str) -> Place:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return Place(str(path))


@settings(max_examples=40)
@given(st.lists(st.builds(HardNegatives, ids, st.lists(ids), st.dictionaries(texts, st.lists(ids)))), st.booleans())
def test_hard_negatives_come_back(tmp_path_factory, entries, zipped) -> None:
    place = Place(str(tmp_path_factory.mktemp("hard") / f"hard.jsonl{'.gz' if zipped else ''}"))
    with write_lines(place) as stream:
        stream.writelines(line_of(entry) for entry in entries)
    assert list(read_negatives_file(place)) == entries
    if zipped:
        assert place.read()[4:8] == b"\0\0\0\0", "the time of writing makes equal content unequal"


@pytest.mark.parametrize("layout", NEGATIVES)
def test_negatives_of_each_layout(layout: str, tmp_path: Path) -> None:
    place = saved(tmp_path / "x.jsonl.gz", json.dumps(NEGATIVES[layout]) + "\n")
    assert list(read_negatives_file(place)) == [
        ("7", ["1"], {"bm25" if layout == "hard negatives" else layout: ["2", "3"]})
    ]


@pytest.mark.parametrize("ending", ["tsv", "txt", "tsv.gz"])
def test_negatives_as_lists_of_ids(ending: str, tmp_path: Path) -> None:
    place = saved(tmp_path / f"train_negs.{ending}", "7\t2,3\n\n8\t1\n")
    assert list(read_negatives_file(place)) == [("7", [], {"lists": ["2", "3"]}), ("8", [], {"lists": ["1"]})]


BAD_NEGATIVES = [
    '{"qid": 1, "pos": "17", "neg": {}}',
    '{"qid": 1, "pos": [1], "neg": [2]}',
    '{"qid": 1, "pos": [true], "neg": {}}',
    '{"qid": null, "pos": [], "neg": {}}',
    "[]",
    '{"query": "a", "pos": ["text"], "neg": ["text"]}',
    '{"query_id": 1, "documents": []}',
    '{"query_id": 1, "positive_passages": [{"text": "x"}], "negative_passages": []}',
    '{"query_id": 1, "positives": {"doc_id": "12"}, "negatives": {"doc_id": []}}',
]


@pytest.mark.parametrize("line", BAD_NEGATIVES)
def test_a_line_of_negatives_that_cannot_be_read_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.jsonl, line 2: .*wanted is") as error:
        list(read_negatives_file(saved(tmp_path / "x.jsonl", f"\n{line}\n")))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", ["7 2,3", "7\t2,,3", "\t2", "7\t"])
def test_a_line_of_lists_that_cannot_be_read_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.tsv, line 2: wanted is a query's id, a tab"):
        list(read_negatives_file(saved(tmp_path / "x.tsv", f"8\t1\n{line}\n")))


EXPECTED = [("7", "1", 2.5), ("7", "2", 0.5), ("7", "3", -1.0)]
LISTS = {"query_id": "7", "corpus_id": ["1", "2", "3"], "score": [2.5, 0.5, -1]}


def write_scores(folder: Path, ending: str) -> Place:
    """The same three scores in each layout."""
    path = folder / f"scores.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist([LISTS], schema=LIST), path)
    elif ending == "pkl":
        path.write_bytes(pickle.dumps({7: {1: 2.5, 2: 0.5, 3: -1.0}}))
    elif ending == "simlm.jsonl.gz":
        return saved(path, json.dumps(NEGATIVES["simlm"]))
    elif ending == "jsonl":
        return saved(path, json.dumps(LISTS))
    else:
        return saved(path, "7\t1\t2.5\n7 2 [0.5]\n7\t3\t-1\n")
    return Place(str(path))


@pytest.mark.parametrize("ending", ["parquet", "pkl", "jsonl", "simlm.jsonl.gz", "tsv", "txt.gz"])
def test_scores_of_each_layout(ending: str, tmp_path: Path) -> None:
    assert list(read_scores_file(write_scores(tmp_path, ending))) == EXPECTED


BAD_SCORES = {
    "x.tsv": ("7 1", "line 2: wanted is a query, a passage and a score, found '7 1'"),
    "y.tsv": ("7 1 high", "line 2: wanted is a query, a passage and a score"),
    "z.tsv": ("7 1 nan", "nan is not a finite score"),
    "x.jsonl": ('{"query_id": 7, "corpus_id": [1, 2], "score": [1]}', "line 2: query 7 has not one score for each"),
    "y.jsonl": ('{"query_id": 7, "corpus_id": "12", "score": [1, 2]}', "its ids or scores are no list; wanted"),
    "z.jsonl": ('{"query_id": 7, "positives": {"doc_id": [1]}, "negatives": {}}', "line 2: "),
}


@pytest.mark.parametrize("name", BAD_SCORES)
def test_a_line_of_scores_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    line, message = BAD_SCORES[name]
    with pytest.raises(UserError) as error:
        list(read_scores_file(saved(tmp_path / name, f"\n{line}\n")))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_steps_read_them(tmp_path: Path) -> None:
    """Negatives by query and rank, scores by query and passage, of a corpus that holds their ids."""
    docs = [(str(number), "", f"text {number}") for number in range(1, 4)]
    corpus = write_parts(Place(str(tmp_path / "c")), docs=docs, queries=[("7", "a")], qrels=[("train", "7", "1", 1)])
    inputs: dict[str, Artifact] = {"corpus": corpus}
    file = saved(tmp_path / "x.jsonl", json.dumps(NEGATIVES["tevatron"]))
    out = Place(str(tmp_path / "n"))
    result = read_negatives(ReadNegativesConfig(file=str(tmp_path / "x.jsonl")), inputs, out)
    assert (result["systems"], result["candidates"], file.exists()) == (["tevatron"], 2, True)
    rows = pq.read_table(tmp_path / "n" / "lists" / "00000.parquet").select(["query_id", "doc_id", "rank"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("7", "2", 1), ("7", "3", 2)]
    write_scores(tmp_path, "tsv")
    config = ReadScoresConfig(file=str(tmp_path / "scores.tsv"))
    assert read_scores(config, inputs, Place(str(tmp_path / "s")))["pairs"] == 3


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
