"""Files of other tools (negatives, scores, MTEB's results) in every layout."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.corpora.opening import write_lines
from midmask.errors import UserError
from midmask.exchange.mteb_files import MtebResult, write_results
from midmask.exchange.negatives_files import HardNegatives, line_of, read_negatives_file
from midmask.exchange.score_files import LIST, read_scores_file
from midmask.store.place import Place


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

written_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
ids = st.text("abcäß017-_:", min_size=1, max_size=6)


def saved(path: Path, text: str) -> Place:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return Place(str(path))


@settings(max_examples=40)
@given(
    st.lists(st.builds(HardNegatives, ids, st.lists(ids), st.dictionaries(written_texts, st.lists(ids)))), st.booleans()
)
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
    system = "bm25" if layout == "hard negatives" else layout
    assert list(read_negatives_file(place)) == [("7", ["1"], {system: ["2", "3"]})]


@pytest.mark.parametrize("ending", ["tsv", "txt", "tsv.gz"])
def test_negatives_as_lists_of_ids(ending: str, tmp_path: Path) -> None:
    place = saved(tmp_path / f"train_negs.{ending}", "7\t2,3\n\n8\t1\n")
    assert list(read_negatives_file(place)) == [("7", [], {"lists": ["2", "3"]}), ("8", [], {"lists": ["1"]})]


BAD_NEGATIVES = [
    '{"qid": 1, "pos": "17", "neg": {}}', '{"qid": 1, "pos": [1], "neg": [2]}', '{"qid": 1, "pos": [true], "neg": {}}',
    '{"qid": null, "pos": [], "neg": {}}', "[]", '{"query": "a", "pos": ["text"], "neg": ["text"]}',
    '{"query_id": 1, "documents": []}',
    '{"query_id": 1, "positive_passages": [{"text": "x"}], "negative_passages": []}',
    '{"query_id": 1, "positives": {"doc_id": "12"}, "negatives": {"doc_id": []}}',
]  # fmt: skip


EXPECTED = [("7", "1", 2.5), ("7", "2", 0.5), ("7", "3", -1.0)]
LISTS = {"query_id": "7", "corpus_id": ["1", "2", "3"], "score": [2.5, 0.5, -1]}


def write_scores(folder: Path, ending: str) -> Place:
    """The same three scores in each layout."""
    path = folder / f"scores.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist([LISTS], schema=LIST), path)
    elif ending == "simlm.jsonl.gz":
        return saved(path, json.dumps(NEGATIVES["simlm"]))
    elif ending == "jsonl":
        return saved(path, json.dumps(LISTS))
    else:
        return saved(path, "7\t1\t2.5\n7 2 [0.5]\n7\t3\t-1\n")
    return Place(str(path))


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "simlm.jsonl.gz", "tsv", "txt.gz"])
def test_scores_of_each_layout(ending: str, tmp_path: Path) -> None:
    assert list(read_scores_file(write_scores(tmp_path, ending))) == EXPECTED


OTHER_FILES = {"x.pkl.gz": "Pickles are not read", "x.csv": r"\.parquet, \.jsonl"}
BAD_SCORES = {
    "x.tsv": ("7 1", "line 2: wanted is a query, a passage and a score, found '7 1'"),
    "y.tsv": ("7 1 high", "line 2: wanted is a query, a passage and a score"),
    "z.tsv": ("7 1 nan", "nan is not a finite score"),
    "x.jsonl": ('{"query_id": 7, "corpus_id": [1, 2], "score": [1]}', "line 2: query 7 has not one score for each"),
    "y.jsonl": ('{"query_id": 7, "corpus_id": "12", "score": [1, 2]}', "line 2: query 7 has not one score for each"),
    "z.jsonl": ('{"query_id": 7, "positives": {"doc_id": [1]}, "negatives": {}}', "line 2: "),
}


BAD_LINES: list[tuple[Callable[[Place], Any], str, str, str]] = [
    *((read_negatives_file, "x.jsonl", line, "line 2: .*wanted is") for line in BAD_NEGATIVES),
    *(
        (read_negatives_file, "x.tsv", line, "line 2: .*a query's id, a tab")
        for line in ("7 2,3", "7\t2,,3", "\t2", "7\t")
    ),
    *((read_scores_file, name, *case) for name, case in BAD_SCORES.items()),
    *((read_scores_file, name, "7\t1\t2.5", said) for name, said in OTHER_FILES.items()),
]


@pytest.mark.parametrize(("read", "name", "line", "message"), BAD_LINES)
def test_what_cannot_be_read_is_named(read: Any, name: str, line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as error:
        list(read(saved(tmp_path / name, f"\n{line}\n")))
    assert "\n" not in str(error.value) and name in str(error.value)


def test_a_result_has_mtebs_layout(tmp_path: Path) -> None:
    """That of files that mteb 2.26 writes: measures of trec_eval that it has no name for are left out."""
    measures = {"nDCG@10": 1 / 3, "R(rel=2)@100": 0.5, "R@100": 0.9, "AP@10": 0.25, "Success@3": 1.0}
    own = MtebResult("mine/dupmae", "c0ffee", "SciFact", "0228b52", "test", measures)
    (file,) = write_results([own], tmp_path).values()
    assert file == tmp_path / "mine__dupmae" / "c0ffee" / "SciFact.json"
    scores = {"ndcg_at_10": 1 / 3, "recall_at_100": 0.9, "map_at_10": 0.25, "hit_rate_at_3": 1.0, "main_score": 1 / 3}
    assert json.loads(file.read_text()) == {
        "task_name": "SciFact",
        "dataset_revision": "0228b52",
        "mteb_version": None,
        "scores": {"test": [{**scores, "hf_subset": "default", "languages": ["eng-Latn"], "seeds": 1}]},
        "evaluation_time": None,
        "kg_co2_emissions": None,
    }
    meta = json.loads((file.parent / "model_meta.json").read_text())
    assert meta == {"name": "mine/dupmae", "revision": "c0ffee"}


def test_results_without_the_main_score_or_of_one_folder_are_refused(tmp_path: Path) -> None:
    def result(system: str, measure: str = "nDCG@10") -> MtebResult:
        return MtebResult(system, "c0ffee", "SciFact", "0228b52", "test", {measure: 0.9})

    with pytest.raises(UserError, match=r"dupmae: nDCG@10 is MTEB's main score"):
        write_results([result("bm25"), result("dupmae", "R@100")], tmp_path)
    with pytest.raises(UserError, match=r"'a b' and 'a-b' would both be written to a-b"):
        write_results([result("a b"), result("a-b")], tmp_path)
    assert not list(tmp_path.iterdir())
