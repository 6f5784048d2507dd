"""The collection that growth is measured on, and the table that it makes."""

import gzip
import json
from pathlib import Path

import pytest

from tests.scale.collection import QUERIES, write_collection
from tests.scale.growth import tables


def test_passages_are_repeated_under_ids_of_their_own_and_queries_begin_like_theirs(tmp_path: Path) -> None:
    rows = [{"_id": f"w{number}", "title": "", "text": f"the passage number {number} has words"} for number in range(7)]
    with gzip.open(tmp_path / "wiki.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    count = sum(QUERIES.values()) + 3
    assert write_collection(tmp_path / "made", count, tmp_path / "wiki.gz") == f"beir:{tmp_path / 'made'}"
    made = [json.loads(line) for line in (tmp_path / "made" / "corpus.jsonl").read_text().splitlines()]
    texts = {row["_id"]: row["text"] for row in made}
    assert len(texts) == count and texts["2-w3"] == rows[3]["text"]
    queries = [json.loads(line) for line in (tmp_path / "made" / "queries.jsonl").read_text().splitlines()]
    for split, wanted in QUERIES.items():
        _, *lines = (tmp_path / "made" / "qrels" / f"{split}.tsv").read_text().splitlines()
        relevant = dict(line.split("\t")[:2] for line in lines)
        own = [query for query in queries if query["_id"] in relevant]
        assert len(own) == wanted
        assert all(texts[relevant[query["_id"]]].startswith(query["text"]) for query in own)


def test_exponents_are_those_of_the_two_largest_sizes() -> None:
    measured = [
        {"passages": size, "steps": {"read": {"predicted": 2.0, "taken": taken, "driver": 2**20, "worker": 2**21}}}
        for size, taken in ((10, 1.0), (100, 4.0), (1000, 400.0))
    ]
    read, memory = (line for line in tables(measured).splitlines() if line.startswith("| read"))
    assert read.endswith("| 2.0 | 400.0 | 0.01 | 2.00 |") and memory == "| read | 1 | 2 | 1 | 2 | 1 | 2 |"


@pytest.mark.parametrize("taken", [0.4, 0.0])
def test_what_takes_under_a_second_has_no_exponent(taken: float) -> None:
    step = {"predicted": 0.1, "taken": taken, "driver": 0, "worker": 0}
    assert "| — |" in tables([{"passages": size, "steps": {"read": step}} for size in (10, 100)])
