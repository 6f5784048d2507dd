"""Pseudo-queries from every source: parallel to the passages, counted, the same in whatever pieces they are made."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.derived import given
from midmask.derived.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.errors import UserError
from midmask.identity import override
from midmask.vocabulary import load_tokenizer
from tests.support.derived.documents import DOCUMENTS, files, text_of, titled

Inputs = dict[str, Artifact]


def made(inputs: Inputs, out: Path, source: str, **fields: Any) -> tuple[dict[str, Any], list[list[str]]]:
    """The step's result, and the queries of passages d0, d1, …; ids and counts are checked on the way."""
    result = PSEUDO_QUERIES(PseudoQueriesConfig(source=source, **fields), inputs, Place(str(out)))
    tokens = Path(str(inputs["tokens"].place))
    for shard in sorted((tokens / "passages").iterdir()):
        ours = pq.read_table(out / "pseudo_queries" / shard.name, columns=["doc_id"])
        assert ours == pq.read_table(shard, columns=["doc_id"]), "a shard is not parallel to the tokens' shard"
    table = pq.read_table(out / "pseudo_queries")
    queries: list[list[str]] = table["queries"].to_pylist()
    tokenizer, length = load_tokenizer(tokens / "tokenizer"), fields.get("max_length", 64)
    for texts, ids in zip(queries, table["ids"].to_pylist(), strict=True):
        assert ids == [tokenizer(text, truncation=True, max_length=length)["input_ids"] for text in texts]
    counts = [len(own) for own in queries]
    assert np.load(out / "counts.npy").tolist() == counts and len(counts) == DOCUMENTS
    assert (result["queries"], result["passages_without"]) == (sum(counts), counts.count(0))
    return result, queries


def test_the_stand_in_is_the_passages_own_sentences(inputs, tmp_path):
    _, queries = made(inputs, tmp_path, "sentences")
    for number, own in enumerate(queries):
        assert " ".join(own) == text_of(number) and all(sentence.endswith(".") for sentence in own)


def test_titles_and_neighbours_of_the_same_title_and_shard(inputs, tmp_path):
    _, queries = made(inputs, tmp_path / "titles", "titles")
    assert queries == [[titled(number)] if titled(number) else [] for number in range(DOCUMENTS)]
    _, queries = made(inputs, tmp_path / "neighbours", "neighbours")
    for number, own in enumerate(queries):
        near = [other for other in (number - 1, number + 1) if titled(number) and titled(other) == titled(number)]
        assert own == [text_of(other) for other in near if other // 40 == number // 40 and other < DOCUMENTS], number


def test_judged_queries_of_the_train_split_alone(inputs, tmp_path):
    _, queries = made(inputs, tmp_path, "train")
    relevant = {number for number in range(30) if number % 3 and number != 1}
    assert queries == [[f"what is {n}"] if n in relevant else [] for n in range(DOCUMENTS)]


LINES = [
    json.dumps({"doc_id": "d3", "queries": ["first of three", " second "]}),
    json.dumps({"_id": "d50", "query": "one of fifty"}),
    "d3\tthird of three",
    "",
    "d89\tthe last",
    json.dumps({"doc_id": "elsewhere", "queries": ["lost"]}),
    "nothing but words",
    json.dumps({"doc_id": "d4", "queries": "not a list"}),
    json.dumps({"doc_id": "d4"}),
    json.dumps({"doc_id": "d5", "queries": ["  "]}),
    '{"doc_id": "d4", "query": ',
]


@pytest.mark.parametrize(("zipped", "block"), [(False, 1 << 18), (True, 2)])
def test_a_file_in_any_layout_and_every_line_accounted_for(inputs, tmp_path, zipped, block, monkeypatch):
    monkeypatch.setattr(given, "BLOCK", block)
    data = "\n".join(LINES).encode()
    (tmp_path / "queries").write_bytes(gzip.compress(data) if zipped else data)
    result, queries = made(inputs, tmp_path / "out", f"file:{tmp_path}/queries")
    wanted = {3: ["first of three", "second", "third of three"], 50: ["one of fifty"], 89: ["the last"]}
    assert queries == [wanted.get(number, []) for number in range(DOCUMENTS)]
    bad = {"unknown id": 1, "malformed line": 4, "no query": 1}
    assert result["given"] == {"lines": 10, "kept": 4, **bad}
    quarantine = [json.loads(line) for line in (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()]
    kinds = ["unknown id", "malformed line", "malformed line", "malformed line", "no query", "malformed line"]
    assert [(row["line"], row["kind"]) for row in quarantine] == list(enumerate(kinds, start=6))


def test_a_killed_step_goes_on_and_gives_the_same_bytes(inputs, tmp_path):
    (tmp_path / "q.tsv").write_text("".join(f"d{n}\tquery {n} {k}\n" for k in range(2) for n in range(DOCUMENTS)))
    source = f"file:{tmp_path}/q.tsv"
    _, queries = made(inputs, tmp_path / "whole", source)
    assert queries == [[f"query {n} 0", f"query {n} 1"] for n in range(DOCUMENTS)]
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    (tmp_path / "killed" / "given.json").unlink()
    (tmp_path / "killed" / "pseudo_queries" / "00002.parquet").unlink()
    made(inputs, tmp_path / "killed", source)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


@pytest.mark.parametrize("source", ["sentence", "file:", "model", "titles:x", "neighbours:2", ""])
def test_an_unknown_source_names_the_choices(source):
    with pytest.raises(UserError, match="choose sentences, titles, neighbours, train, file:PATH or model:FOLDER"):
        override(PseudoQueriesConfig(), {"source": source})
