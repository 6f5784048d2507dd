from pathlib import Path

import pytest

from midmask.corpora import CorpusConfig, corpus_identity, open_corpus
from midmask.errors import UserError
from tests.support.corpora.collections import contents, json_lines, prepared, quarantine, rows, write, write_beir


def test_cranfield_has_the_counts_and_records_of_its_source(cranfield: Path, tmp_path: Path) -> None:
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


def test_cranfield_is_divided_here_and_says_so(cranfield: Path, tmp_path: Path) -> None:
    result = prepared(f"beir:{cranfield}", tmp_path)
    assert result["splits_made_here"] == ["dev", "test", "train"] and "60/20/20" in result["split_rule"]
    sizes = {split: part["queries"] for split, part in result["splits"].items()}
    assert sum(sizes.values()) == 225 and 110 < sizes["train"] < 160 and sizes["dev"] > 25 and sizes["test"] > 25
    splits: dict[str, set[str]] = {}
    for row in rows(tmp_path / "qrels.parquet"):
        splits.setdefault(row["query_id"], set()).add(row["split"])
    assert {len(found) for found in splits.values()} == {1}
    other = prepared(f"beir:{cranfield}", tmp_path / "other", split_seed=1)
    assert other["splits"] != result["splits"]


def test_integer_ids_pyserinis_names_and_titles_without_text_are_taken(tmp_path: Path) -> None:
    found = [
        {"id": 7, "contents": "seven words"},
        {"_id": 8, "text": "eight"},
        {"_id": "a", "title": "only", "text": ""},
    ]
    write(tmp_path / "in/corpus.jsonl", json_lines(found))
    prepared(f"beir:{tmp_path}/in", tmp_path / "out")
    assert rows(tmp_path / "out/docs") == [
        {"doc_id": "7", "title": "", "text": "seven words"},
        {"doc_id": "8", "title": "", "text": "eight"},
        {"doc_id": "a", "title": "", "text": "only"},
    ]


def test_a_missing_folder_and_a_strange_format_are_named() -> None:
    with pytest.raises(UserError, match=r"no folder /nowhere/cranfield.*corpus\.jsonl"):
        open_corpus(CorpusConfig(name="beir:/nowhere/cranfield"))
    with pytest.raises(UserError, match="'bier'; did you mean 'beir'"):
        CorpusConfig(name="bier:/data")
    with pytest.raises(UserError, match="the folder is missing; write beir:FOLDER"):
        CorpusConfig(name="beir:")


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
