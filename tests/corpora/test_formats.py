"""From each format of corpora, files and libraries, to measures worked out by hand; and back to files."""

import sys
from collections.abc import Callable, Iterator
from math import log2
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from midmask.corpora.config import CorpusConfig
from midmask.corpora.ir_datasets import split_ids, split_of
from midmask.corpora.reader import corpus_identity, judged_splits, open_corpus
from midmask.corpora.writer import export_beir
from midmask.errors import UserError
from midmask.evaluation.step import EvaluateConfig, evaluate_ranked
from midmask.retrieve.bm25.search import Bm25Config
from midmask.store.place import Place
from tests.support.corpora import layouts
from tests.support.corpora.collections import (
    contents,
    json_lines,
    prepared,
    quarantine,
    rows,
    save,
    write,
    write_beir,
    write_saved,
    write_saved_texts,
)
from tests.support.corpora.layouts import evaluated, read
from tests.support.corpora.registered import register, write_as_beir, write_msmarco
from tests.support.retrieve.collection import made, ranked_by_bm25


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


def test_arguana_through_bm25_does_not_retrieve_the_query(tmp_path: Path) -> None:
    layouts.write_arguana(tmp_path / "in")
    corpus = read(f"beir:{tmp_path}/in", tmp_path / "out")
    assert corpus.result["splits"] == {"test": {"queries": 10, "judgements": 10}}
    assert corpus.result["self_matches"]["rule"] == "id" and corpus.result["self_matches"]["pairs"] == 10
    bm25 = made(ranked_by_bm25, Bm25Config(splits=("test",), depth=11), {"corpus": corpus}, Place(f"{tmp_path}/bm25"))
    config = EvaluateConfig(split="test", depth=10, measures=("RR@10", "beir"))
    result = evaluate_ranked(config, {"corpus": corpus, "ranked": bm25}, Place(str(tmp_path / "values")))
    # Query n shares its rare words with passage n (itself) and with n - 2 and n + 2; the latter is relevant.
    assert result["self_matches"] == 10
    assert 0.5 <= result["measures"]["RR@10"] <= 1.0 and result["measures"]["R@100"] == 1.0
    # The same list, the query left in: rank 1 is lost in every query.
    (tmp_path / "out/self_matches.parquet").unlink()
    kept = evaluate_ranked(config, {"corpus": corpus, "ranked": bm25}, Place(str(tmp_path / "kept")))
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
    [(b"1\t0\t3\t2\n", 2), (b"1 0 3 2\n", 2), (b"1\t3\t2\n", 2), (b"1\t3\n", 1), (b"qid\tpid\n1\t3\n", 1)],
)
def test_ms_marcos_judgements_have_any_columns(tmp_path: Path, lines: bytes, grade: int) -> None:
    layouts.write_msmarco(tmp_path / "in")
    write(tmp_path / "in/qrels.train.tsv", lines)
    prepared(f"msmarco:{tmp_path}/in", tmp_path / "out")
    train = [row for row in rows(tmp_path / "out/qrels.parquet") if row["split"] == "train"]
    assert train == [{"split": "train", "query_id": "1", "doc_id": "3", "grade": grade}]


def test_tripclick_quarantines_broken_elements(tmp_path: Path) -> None:
    """One document has no number, one is cut off."""
    layouts.write_tripclick(tmp_path / "in")
    first = tmp_path / "in/benchmark/documents/docs_grp_0.txt"
    faults = b"<DOC>\n<TEXT>nobody's</TEXT>\n</DOC>\n<DOC>\n<DOCNO>F-1</DOCNO>\n<TEXT>cut off\n"
    marked = b"<doc>\n<docno> M-1 </docno> <TITLE>a &amp; <b>b</b></TITLE>\n<TEXT>x <i>y</i></TEXT>\n</doc>\n"
    first.write_bytes(faults + marked + first.read_bytes())
    prepared(f"tripclick:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=0.5)
    found = {row["doc_id"]: (row["title"], row["text"]) for row in rows(tmp_path / "out/docs")}
    assert found["M-1"] == ("a &  b", "x  y") and len(found) == layouts.COUNT + 1
    assert [(row["kind"], row["file"], row["line"]) for row in quarantine(tmp_path / "out")] == [
        ("malformed line", "benchmark/documents/docs_grp_0.txt", 1),
        ("malformed line", "benchmark/documents/docs_grp_0.txt", 4),
    ]


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


def table(*records: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(records))


def test_it_is_the_collection_that_beirs_layout_gives(tmp_path: Path) -> None:
    write_saved(tmp_path / "hub" / "set", passages=3_500)
    write_beir(tmp_path / "beir" / "set", passages=3_500)
    for kind, folder in (("hf", "hub"), ("beir", "beir")):
        corpus = layouts.read(f"{kind}:{tmp_path}/{folder}/set", tmp_path / "prepared" / kind)
        assert corpus.result["passages"] == 3_500 and set(corpus.result["splits"]) == {"train", "dev", "test"}
        export_beir(corpus.place, Place(str(tmp_path / "exported" / kind)))
    exported = [contents(tmp_path / "exported" / kind) for kind in ("hf", "beir")]
    assert exported[0] == exported[1] and len(exported[0]) == 5
    docs = rows(tmp_path / "prepared/hf/docs")
    for number in (0, 9, 3_499):
        wanted = {"doc_id": f"d{number}", "title": f"title {number}", "text": f"passage {number} of a small set"}
        assert wanted.items() <= docs[number].items()
    assert judged_splits(CorpusConfig(name=f"hf:{tmp_path}/hub/set", splits="official")) == ["dev", "test", "train"]


def test_one_dataset_is_texts_as_jsonl_files_are(tmp_path: Path) -> None:
    write_saved_texts(tmp_path / "saved" / "wiki")
    write(tmp_path / "lines/wiki/all.jsonl", json_lines([{"text": f"text number {n}"} for n in range(40)]))
    for kind, folder in (("hf", "saved"), ("texts", "lines")):
        assert layouts.read(f"{kind}:{tmp_path}/{folder}/wiki", tmp_path / kind).result["splits"] == {}
    assert rows(tmp_path / "hf/docs") == rows(tmp_path / "texts/docs")


def test_bad_rows_are_counted_and_quarantined_with_file_and_row(tmp_path: Path) -> None:
    write_saved(tmp_path / "in", passages=9)
    good = [{"_id": f"d{n}", "title": "", "text": f"passage {n}"} for n in range(2_500)]
    bad = {
        3: {"_id": None, "title": "", "text": "nobody's"}, 70: {"_id": "n7", "title": "", "text": None},
        1_500: {"_id": "n8", "title": " ", "text": ""}, 2_100: {"_id": "n9", "title": "", "text": "x" * 301},
        2_200: {"_id": "d2", "title": "", "text": "again"}, 2_300: {"_id": "two words", "title": "", "text": "spaced"},
    }  # fmt: skip
    for place, row in bad.items():
        good[place] = row  # type: ignore[assignment]
    save(tmp_path / "in/corpus", pa.Table.from_pylist(good))
    scores = [("q0", "d0", 1.0), ("q1", "d1", 0.5), ("q2", "d5", None), ("q3", "nowhere", 1.0), ("q0", "d0", 1.0)]
    scores += [(None, "d1", 1.0), ("q4", "d4", float("inf"))]
    judged = table(*({"query-id": q, "corpus-id": d, "score": s} for q, d, s in scores))
    save(tmp_path / "in/qrels/train", judged)
    result = prepared(f"hf:{tmp_path}/in", tmp_path / "out", bad_rows_threshold=1.0, max_characters=300)
    once = ("duplicate id", "malformed line", "oversized passage", "white space in an id")
    faults = {**dict.fromkeys(once, 1), "empty passage": 2}
    assert result["rows_by_kind"]["docs"] == {"kept": 2_494, "quarantined": faults, "left_out": 0}
    faults = {"duplicate judgement": 1, "grade that is no whole number": 1, "malformed line": 3}
    assert result["rows_by_kind"]["qrels"]["quarantined"] == faults
    assert result["missing_passages"] == {"passages": 1, "judgements": 1}
    found = quarantine(tmp_path / "out")
    names = {row["file"] for row in found}
    assert names == {"corpus/data-00000-of-00001.arrow", "qrels/train/data-00000-of-00001.arrow"}
    lines = {row["line"] for row in found if row["file"].startswith("corpus")}
    assert lines == {place + 1 for place in bad}


def _state(folder: Path, old: str, new: str) -> None:
    file = folder / "corpus/state.json"
    file.write_text(file.read_text().replace(old, new))


UNSCORED = {"query-id": "q", "corpus-id": "d"}
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no corpus": (lambda f: (f / "corpus").rename(f / "docs"), r"in: no dataset saved to disk in corpus/"),
    "no text": (lambda f: save(f / "corpus", table({"_id": "d", "body": "x"})), r"\.arrow has no column text .*body"),
    "no score": (lambda f: save(f / "qrels/test", table(UNSCORED)), r"qrels/test/.* has no column score"),
    "no state": (lambda f: (f / "corpus/state.json").write_text("{}"), r"state\.json: no list '_data_files' in it"),
    "a file elsewhere": (
        lambda f: _state(f, "data-00000", "../../secret/data-00000"),
        r"not beside it: '\.\./\.\./secret/data-00000-of-00003\.arrow'",
    ),
    "no Arrow": (
        lambda f: (f / "corpus/data-00000-of-00003.arrow").write_bytes(b"no Arrow at all"),
        r"data-00000-of-00003\.arrow: it cannot be read \(ArrowInvalid",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_collection_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    write_saved(tmp_path / "in")
    damage, said = REFUSED[case]
    damage(tmp_path / "in")
    with pytest.raises(UserError, match=said) as error:
        open_corpus(CorpusConfig(name=f"hf:{tmp_path}/in"))
    assert "\n" not in str(error.value)


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    write_saved(tmp_path / "in")
    file = tmp_path / "in/corpus/data-00001-of-00003.arrow"
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(UserError, match=r"data-00001-of-00003\.arrow: it cannot be read"):
        prepared(f"hf:{tmp_path}/in", tmp_path / "out")


def test_the_contents_of_files_are_the_identity_not_where_or_when_they_were_saved(tmp_path: Path) -> None:
    write_saved(tmp_path / "one" / "set")
    write_saved(tmp_path / "two" / "set")
    one, two = (CorpusConfig(name=f"hf:{tmp_path}/{parent}/set") for parent in ("one", "two"))
    state = tmp_path / "two/set/corpus/state.json"
    state.write_text(state.read_text().replace("b3f73a2ce25216f6", "0123456789abcdef"))
    assert corpus_identity(one) == corpus_identity(two) and len(corpus_identity(one)["files"]) == 3 + 1 + 3
    save(tmp_path / "two/set/queries/queries", table({"_id": "q0", "text": "another"}))
    assert corpus_identity(one) != corpus_identity(two)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package's home; it reads where that is when it is imported."""
    folder = tmp_path_factory.mktemp("irds")
    imported = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "ir_datasets"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR_DATASETS_HOME", str(folder / "home"))
        patch.setenv("IR_DATASETS_TMP", str(folder / "tmp"))
        patch.setenv("IR_DATASETS_SKIP_DISK_FREE", "true")
        yield folder / "home"
    for name in [name for name in sys.modules if name.partition(".")[0] == "ir_datasets"]:
        del sys.modules[name]
    sys.modules.update(imported)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that somebody asks for."""
    import requests

    asked: list[str] = []

    def get(url: str, **_: Any) -> None:
        asked.append(url)
        raise requests.exceptions.ConnectionError("there is no network in tests")

    monkeypatch.setattr(requests, "get", get)
    return asked


def tables(out: Path) -> dict[str, list[str]]:
    return {name: sorted(map(str, rows(out / name))) for name in ("docs", "queries.parquet", "qrels.parquet")}


def test_an_id_reads_as_the_same_collection_in_another_format(home: Path, tmp_path: Path) -> None:
    """Titles, grades from 0 to 3 and three splits, one of which the package calls valid."""
    register("ours/graded", tmp_path / "files")
    write_as_beir(tmp_path / "beir")
    result = prepared("ir_datasets:ours/graded", tmp_path / "one", splits="official", bad_rows_threshold=0.0)
    prepared(f"beir:{tmp_path}/beir", tmp_path / "two", splits="official")
    assert tables(tmp_path / "one") == tables(tmp_path / "two")
    assert result["name"] == "ours-graded" and result["rows_read"] == 12 + 8 + 8
    assert {split: own["queries"] for split, own in result["splits"].items()} == {"train": 3, "dev": 2, "test": 3}


def test_an_id_of_the_package_itself_is_read_from_what_it_has_cached(home, tmp_path, calls) -> None:
    write_msmarco(home)
    result = prepared("ir_datasets:msmarco-passage/dev/small", tmp_path / "out", splits="official")
    assert result["name"] == "msmarco-passage-dev-small" and result["passages"] == 12
    names = ("split", "query_id", "doc_id", "grade")
    judged = [tuple(row[name] for name in names) for row in rows(tmp_path / "out/qrels.parquet")]
    assert judged == [("dev", "300", "3", 1), ("dev", "400", "4", 1)]
    assert not calls


@pytest.mark.parametrize("part", ["collection.tsv", "dev/small/queries.tsv", "dev/small/qrels"])
def test_what_is_missing_is_named_and_not_fetched(home: Path, calls: list[str], part: str) -> None:
    write_msmarco(home, leave_out=part)
    with pytest.raises(UserError) as error:
        open_corpus(CorpusConfig(name="ir_datasets:msmarco-passage/dev/small"))
    line = str(error.value)
    kind = {"collection.tsv": "docs"}.get(part, part.rsplit("/", 1)[-1].removesuffix(".tsv"))
    assert f"ir_datasets:msmarco-passage/dev/small: its {kind} cannot be read: " in line and "\n" not in line
    assert line.endswith(f"type: ir_datasets export msmarco-passage/dev/small {kind} > /dev/null")
    assert not calls


def test_a_users_own_calls_of_the_package_fetch_as_ever(home: Path, calls: list[str]) -> None:
    import requests
    from ir_datasets.util import RequestsDownload

    with pytest.raises(UserError, match="would have been fetched"):
        open_corpus(CorpusConfig(name="ir_datasets:beir/scifact"))
    assert not calls
    with pytest.raises(requests.ConnectionError), RequestsDownload("https://host/x", tries=1).stream() as stream:
        stream.read()
    assert calls == ["https://host/x"]


def test_downloads_that_are_allowed_are_tried(home: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDMASK_ALLOW_DOWNLOAD", "1")
    with pytest.raises(UserError, match=r"its docs cannot be read: .*ConnectionError"):
        open_corpus(CorpusConfig(name="ir_datasets:beir/scifact"))
    assert calls and all(address.startswith("https://") for address in calls)


SPLITS = {
    "beir/arguana": {"test": "beir/arguana"},
    "mr-tydi/sw": {split: f"mr-tydi/sw/{split}" for split in ("dev", "test", "train")},
    "nyt/wksup": {"dev": "nyt/wksup/valid", "train": "nyt/wksup/train"},
    "msmarco-passage": {
        **{split: f"msmarco-passage/{split}" for split in ("dev", "train", "trec-dl-hard")},
        **{f"dl{year}": f"msmarco-passage/trec-dl-20{year}" for year in (19, 20)},
    },
}
OF_ONE_SPLIT = {
    "msmarco-passage/dev/small": "dev", "antique/train/split200-valid": "dev",
    "msmarco-passage/trec-dl-2019/judged": "dl19", "trec-robust04/fold1": "test", "train-of-thought/retrieval": "test",
}  # fmt: skip
REFUSED_IDS = {
    "beir/scifacts": r"unknown ir_datasets id 'beir/scifacts'; did you mean 'beir/scifact'\?",
    "beir": "beir has no documents of its own; name one of beir/arguana, beir/climate-fever",
    "msmarco-passage/eval": "has queries but no judgements",
    "": "the id is missing",
}


def test_splits_of_the_packages_own_ids(home: Path) -> None:
    assert {dataset_id: split_ids(dataset_id) for dataset_id in SPLITS} == SPLITS
    assert {dataset_id: split_of(dataset_id) for dataset_id in OF_ONE_SPLIT} == OF_ONE_SPLIT


@pytest.mark.parametrize("name", REFUSED_IDS)
def test_ids_that_will_not_do_are_refused(home: Path, name: str) -> None:
    with pytest.raises(UserError, match=REFUSED_IDS[name]):
        open_corpus(CorpusConfig(name=f"ir_datasets:{name}"))


def test_records_are_the_identity(home: Path, tmp_path: Path) -> None:
    register("ours/same", tmp_path / "one")
    config = CorpusConfig(name="ir_datasets:ours/same")
    before = corpus_identity(config)
    assert corpus_identity(config) == before and len(before["records"]) == 7
    changed = (tmp_path / "one" / "dev.qrels").read_text().replace("d3 3", "d3 2")
    (tmp_path / "one" / "dev.qrels").write_text(changed)
    after = corpus_identity(config)
    different = {file for file in before["records"] if before["records"][file] != after["records"][file]}
    assert different == {"ir_datasets:ours/same/valid (qrels)"}
