"""Which queries are passages of their own corpus: by id where ids mean the same things, by text, or none."""

from pathlib import Path

import pytest

from tests.support.corpora.collections import json_lines, prepared, rows, write


def write_set(folder: Path, docs: dict[str, str], queries: dict[str, str], qrels: list[tuple[str, str, int]]) -> str:
    write(
        folder / "corpus.jsonl", json_lines([{"_id": name, "title": "", "text": text} for name, text in docs.items()])
    )
    write(folder / "queries.jsonl", json_lines([{"_id": name, "text": text} for name, text in queries.items()]))
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
