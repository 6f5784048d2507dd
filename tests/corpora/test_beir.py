"""Collections in BEIR's layout and folders of texts, their queries that are passages, and collections read together."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig, JoinConfig, corpus_identity, join, writer
from midmask.errors import UserError
from tests.support.corpora.collections import contents, json_lines, prepared, quarantine, rows, write, write_beir


def test_cranfield_has_the_records_of_its_source_and_is_divided_here(cranfield: Path, tmp_path: Path) -> None:
    result = prepared(f"beir:{cranfield}", tmp_path)
    assert (result["name"], result["passages"], result["queries"]) == ("cranfield", 1398, 225)
    assert result["rows_read"] == result["rows_kept"] == 1398 + 225 + 1836
    assert sum(split["judgements"] for split in result["splits"].values()) == 1836
    docs, queries, qrels = (rows(tmp_path / name) for name in ("docs", "queries.parquet", "qrels.parquet"))
    assert [docs[n]["doc_id"] for n in (0, 9, -1)] == ["1", "10", "1400"]
    assert docs[0]["title"].startswith("experimental investigation of the aerodynamics of a wing")
    assert (queries[0]["query_id"], queries[9]["query_id"], queries[-1]["query_id"]) == ("1", "10", "225")
    assert queries[0]["text"].startswith("what similarity laws must be obeyed")
    assert (qrels[0]["query_id"], qrels[0]["doc_id"], qrels[0]["grade"]) == ("1", "184", 3)
    assert result["splits_made_here"] == ["dev", "test", "train"] and "60/20/20" in result["split_rule"]
    sizes = {split: part["queries"] for split, part in result["splits"].items()}
    assert sum(sizes.values()) == 225 and 110 < sizes["train"] < 160 and sizes["dev"] > 25 and sizes["test"] > 25
    splits: dict[str, set[str]] = {}
    for row in qrels:
        splits.setdefault(row["query_id"], set()).add(row["split"])
    assert {len(found) for found in splits.values()} == {1}
    other = prepared(f"beir:{cranfield}", tmp_path / "other", split_seed=1)
    assert other["splits"] != result["splits"]


def test_integer_ids_pyserinis_names_and_titles_without_text_are_taken(tmp_path: Path) -> None:
    found = [{"id": 7, "contents": "seven"}, {"_id": 8, "text": "eight"}, {"_id": "a", "title": "only", "text": ""}]
    write(tmp_path / "in/corpus.jsonl", json_lines(found))
    prepared(f"beir:{tmp_path}/in", tmp_path / "out")
    read = [tuple(row.values()) for row in rows(tmp_path / "out/docs")]
    assert read == [("7", "", "seven"), ("8", "", "eight"), ("a", "", "only")]


def test_identity_is_contents_and_short_name_not_the_path(tmp_path: Path) -> None:
    for parent in ("one", "two"):
        write_beir(tmp_path / parent / "set")
    one, two = (corpus_identity(CorpusConfig(name=f"beir:{tmp_path}/{parent}/set")) for parent in ("one", "two"))
    assert one == two
    assert one != corpus_identity(CorpusConfig(name=f"beir:{tmp_path}/one/set", split_seed=1))
    queries = tmp_path / "two/set/queries.jsonl"
    queries.write_bytes(queries.read_bytes().replace(b"passage 3", b"passage 4"))
    assert one != corpus_identity(CorpusConfig(name=f"beir:{tmp_path}/two/set"))


def test_a_sample_keeps_the_queries_that_it_can_answer(tmp_path: Path) -> None:
    write_beir(tmp_path / "in", passages=200, queries=200)
    result = prepared(f"beir:{tmp_path}/in", tmp_path / "out", max_passages=50)
    docs = {row["doc_id"] for row in rows(tmp_path / "out/docs")}
    assert result["passages"] == len(docs) == 50
    assert {row["query_id"] for row in rows(tmp_path / "out/queries.parquet")} == {f"q{doc[1:]}" for doc in docs}
    assert {row["doc_id"] for row in rows(tmp_path / "out/qrels.parquet")} == docs
    assert result["rows_left_out"] == {"max_passages": 450}
    assert result["rows_read"] == 600 == result["rows_kept"] + 450
    assert not quarantine(tmp_path / "out")


def test_preparing_again_after_a_crash_gives_the_same_bytes(tmp_path: Path) -> None:
    write_beir(tmp_path / "in")
    prepared(f"beir:{tmp_path}/in", tmp_path / "out")
    wanted = contents(tmp_path / "out")
    # What a kill leaves behind: a draft, a shard of a longer run, a half-written file.
    (tmp_path / "out/docs/00000.parquet.1234abcd.draft").write_bytes(b"half")
    (tmp_path / "out/docs/00007.parquet").write_bytes(b"stale")
    (tmp_path / "out/qrels.parquet").unlink()
    prepared(f"beir:{tmp_path}/in", tmp_path / "out")
    assert contents(tmp_path / "out") == wanted


def test_texts_of_all_files_are_passages_and_copies_are_counted(tmp_path: Path) -> None:
    texts = [{"text": f"text number {number}"} for number in range(200)]
    write(tmp_path / "in/b.jsonl", json_lines([*texts[:120], {"_id": "own", "title": "t", "text": "with an id"}]))
    (tmp_path / "in/a.jsonl.gz").write_bytes(gzip.compress(json_lines([*texts[120:], texts[0]])))
    write(tmp_path / "in/notes.txt", b"not read")
    result = prepared(f"texts:{tmp_path}/in", tmp_path / "out")
    found = {row["doc_id"]: row["text"] for row in rows(tmp_path / "out/docs")}
    assert result["passages"] == len(found) == 201 and result["rows_read"] == 202
    assert set(found.values()) == {row["text"] for row in texts} | {"with an id"} and found["own"] == "with an id"
    prepared(f"texts:{tmp_path}/in", tmp_path / "again")
    assert rows(tmp_path / "again/docs") == rows(tmp_path / "out/docs")


def write_set(folder: Path, docs: dict[str, str], queries: dict[str, str], qrels: list[tuple[str, str, int]]) -> str:
    for file, texts in (("corpus.jsonl", docs), ("queries.jsonl", queries)):
        write(folder / file, json_lines([{"_id": name, "text": text} for name, text in texts.items()]))
    write(folder / "qrels/test.tsv", "".join(f"{query}\t{doc}\t{grade}\n" for query, doc, grade in qrels).encode())
    return f"beir:{folder}"


def pairs(out: Path) -> set[tuple[str, str]]:
    path = out / "self_matches.parquet"
    return {(row["query_id"], row["doc_id"]) for row in rows(path)} if path.exists() else set()


QUORA = {"1": "how to fly", "2": "how to fly?", "3": "why is it so", "4": "how to fly"}


def test_quoras_queries_are_the_passages_of_their_ids_only(tmp_path: Path) -> None:
    """Passage 4 has the text of query 1, but is another question; it stays, as in BEIR's own evaluation."""
    name = write_set(tmp_path / "in", QUORA, {"1": "how to fly", "3": " why is it so "}, [("1", "2", 1), ("3", "2", 1)])
    facts = prepared(name, tmp_path / "out")["self_matches"]
    assert facts == {"rule": "id", "pairs": 2, "same_id": 2, "same_text": 2, "same_id_and_text": 2}
    assert pairs(tmp_path / "out") == {("1", "1"), ("3", "3")}


def test_numbers_that_agree_by_chance_are_no_self_matches(tmp_path: Path) -> None:
    """MS MARCO: query 1 is not passage 1. One query in three that is a passage by chance changes nothing."""
    queries = {"1": "what is this", "2": "what is that", "9": "why is it so"}
    name = write_set(tmp_path / "in", QUORA, queries, [("1", "1", 1), ("2", "2", 1), ("9", "4", 1)])
    facts = prepared(name, tmp_path / "out")["self_matches"]
    assert facts == {"rule": "none", "pairs": 0, "same_id": 2, "same_text": 1, "same_id_and_text": 0}
    assert pairs(tmp_path / "out") == set()


def test_without_common_ids_the_text_tells_and_the_relevant_passage_stays(tmp_path: Path) -> None:
    queries = {"q1": "how to fly", "q3": "why is it so"}
    name = write_set(tmp_path / "in", QUORA, queries, [("q1", "4", 1), ("q3", "2", 1), ("q3", "3", 0)])
    assert prepared(name, tmp_path / "out")["self_matches"]["rule"] == "text"
    # q1 is passages 1 and 4 by text, but 4 is judged relevant; grade 0 is no reason to stay.
    assert pairs(tmp_path / "out") == {("q1", "1"), ("q3", "3")}


@pytest.mark.parametrize(("rule", "wanted"), [("none", set()), ("text", {("1", "4"), ("1", "1"), ("3", "3")})])
def test_the_rule_can_be_given(tmp_path: Path, rule: str, wanted: set[tuple[str, str]]) -> None:
    name = write_set(tmp_path / "in", QUORA, {"1": "how to fly", "3": "why is it so"}, [("1", "2", 1)])
    facts = prepared(name, tmp_path / "out", self_matches=rule)["self_matches"]
    assert (facts["rule"], facts["pairs"]) == (rule, len(wanted)) and pairs(tmp_path / "out") == wanted


NAMES = ("one", "two", "plain")


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Artifact]:
    """Three prepared collections of 40, 23 and 5 passages; the ids of two are the same; shards hold 24 rows."""
    monkeypatch.setattr(writer, "GROUP_ROWS", 8)
    monkeypatch.setattr(writer, "SHARD_GROUPS", 3)
    write_beir(tmp_path / "in/one", passages=40)
    write_beir(tmp_path / "in/two", passages=23, queries=6, packed=True)
    texts = [{"id": f"t{number}", "text": f"a text é {number}"} for number in range(5)]
    write(tmp_path / "in/plain/a.jsonl", json_lines(texts))
    found = {}
    for number, (kind, name) in enumerate((("beir", "one"), ("beir", "two"), ("texts", "plain"))):
        result = prepared(f"{kind}:{tmp_path}/in/{name}", tmp_path / name)
        found[f"corpus{number}"] = Artifact(Place(str(tmp_path / name)), {"fingerprint": name, "result": result})
    return found


def joined(corpora: dict[str, Artifact], out: Path, names: tuple[str, ...] = NAMES) -> dict[str, Any]:
    return join(JoinConfig(names=names), corpora, Place(str(out)))


def read_apart(folder: Path) -> list[tuple[str, str, str]]:
    """(id, title, text) straight from the sources, with the collection's name before the id."""
    found = []
    for name in NAMES:
        for path in sorted((folder / name).glob("*.jsonl*")):
            if "queries" in path.name:
                continue
            text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
            for line in map(json.loads, text.splitlines()):
                found.append((f"{name}/{line.get('_id', line.get('id'))}", line.get("title", ""), line["text"]))
    return found


def test_all_passages_of_each_in_order_and_nothing_else(corpora: dict[str, Artifact], tmp_path: Path) -> None:
    result = joined(corpora, tmp_path / "out")
    found = [(row["doc_id"], row["title"], row["text"]) for row in rows(tmp_path / "out/docs")]
    assert found == read_apart(tmp_path / "in")
    assert len({doc_id for doc_id, _, _ in found}) == 68
    sizes = [pq.read_metadata(path).num_rows for path in sorted((tmp_path / "out/docs").iterdir())]
    assert sizes == [24, 24, 20], "shards do not end where collections do"
    assert rows(tmp_path / "out/queries.parquet") == rows(tmp_path / "out/qrels.parquet") == []
    assert (result["passages"], result["queries"]) == (68, 0)
    assert [tuple(row.values()) for row in result["collections"]] == [("one", 40), ("two", 23), ("plain", 5)]


def test_an_interrupted_call_leaves_no_trace(corpora: dict[str, Artifact], tmp_path: Path) -> None:
    """A shard of the second collection is cut off after some shards were written; the next call finds it whole."""
    joined(corpora, tmp_path / "whole")
    shard = tmp_path / "two/docs/00000.parquet"
    good = shard.read_bytes()
    shard.write_bytes(good[:-200])
    with pytest.raises(Exception, match="Parquet"):
        joined(corpora, tmp_path / "out")
    assert (tmp_path / "out/docs/00000.parquet").exists()
    (tmp_path / "out/docs/00007.parquet.0a1b2c3d.draft").write_bytes(b"half a shard")
    shard.write_bytes(good)
    joined(corpora, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_two_collections_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match=r"two collections are named 'wiki', .*rename the folder of one"):
        JoinConfig(names=("wiki", "squad", "wiki"))
