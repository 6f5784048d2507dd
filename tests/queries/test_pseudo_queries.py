"""Pseudo-queries from every source, a random T5 among them."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import chisquare

from midmask.queries.pseudo_queries import (
    PSEUDO_QUERIES,
    PseudoQueriesConfig,
)
from midmask.queries.query_model import Drawn, GenerateConfig, QueryGenerator
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.vocabulary import load_tokenizer
from tests.support.queries.documents import DOCUMENTS, text_of, titled
from tests.support.queries.small_models import write_t5


def queried(
    inputs: dict[str, Artifact], out: Path, source: str, **fields: Any
) -> tuple[dict[str, Any], list[list[str]]]:
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


def test_sentences_and_titles(inputs, tmp_path):
    _, queries = queried(inputs, tmp_path / "sentences", "sentences")
    for number, own in enumerate(queries):
        assert " ".join(own) == text_of(number) and all(sentence.endswith(".") for sentence in own)
    _, queries = queried(inputs, tmp_path / "titles", "titles")
    assert queries == [[titled(number)] if titled(number) else [] for number in range(DOCUMENTS)]


LINES = [
    json.dumps({"doc_id": "d3", "queries": ["first of three", " second "]}),
    json.dumps({"_id": "d40", "query": "one of forty"}), "d3\tthird of three", "", "d89\tthe last",
    json.dumps({"doc_id": "elsewhere", "queries": ["lost"]}), "nothing but words",
    json.dumps({"doc_id": "d4", "queries": "not a list"}), json.dumps({"doc_id": "d4"}),
    json.dumps({"doc_id": "d5", "queries": ["  "]}), '{"doc_id": "d4", "query": ',
]  # fmt: skip


@pytest.mark.parametrize(("zipped", "block"), [(False, 1 << 18), (True, 2)])
def test_a_file_in_any_layout_and_every_line_accounted_for(inputs, tmp_path, zipped, block, monkeypatch):
    monkeypatch.setattr("midmask.queries.given.BLOCK", block)
    data = "\n".join(LINES).encode()
    (tmp_path / "queries").write_bytes(gzip.compress(data) if zipped else data)
    result, queries = queried(inputs, tmp_path / "out", f"file:{tmp_path}/queries")
    wanted = {3: ["first of three", "second", "third of three"], 40: ["one of forty"], 89: ["the last"]}
    assert queries == [wanted.get(number, []) for number in range(DOCUMENTS)]
    assert result["given"] == {"lines": 10, "kept": 4, "unknown id": 1, "malformed line": 4, "no query": 1}
    quarantine = [json.loads(line) for line in (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()]
    kinds = ["unknown id", "malformed line", "malformed line", "malformed line", "no query", "malformed line"]
    assert [(row["line"], row["kind"]) for row in quarantine] == list(enumerate(kinds, start=6))


@pytest.fixture(scope="module")
def t5(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("t5")
    write_t5(folder)
    return folder


def test_queries_differ_and_more_of_them_leave_the_first_ones_as_they_are(t5):
    generator = QueryGenerator(t5, GenerateConfig(max_tokens=8))
    passages = [f"d{n}" for n in range(12)], [text_of(n).lower() for n in range(12)]
    whole = generator.queries(*passages, 3)
    assert len({tuple(own) for own in whole}) == 12 and all(len(own) == 3 and len(set(own)) > 1 for own in whole)
    assert [own[:2] for own in whole] == generator.queries(*passages, 2)


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (50, 0.6)])
def test_tokens_are_drawn_as_hugging_faces_samplers_would(top_k, top_p):
    """Against the chances that its own processors leave. A right sampler fails once in 10,000 choices of the seed."""
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    scores_1V = torch.randn(1, 30, generator=torch.Generator().manual_seed(4)) * 1.5
    ids = torch.zeros(1, 3, dtype=torch.int64)
    chances = TopPLogitsWarper(top_p)(ids, TopKLogitsWarper(top_k)(ids, scores_1V.clone())).softmax(-1)[0]
    draws = 20_000
    seeds_B = torch.arange(draws, dtype=torch.int32) * 7919
    drawn_BV = Drawn(seeds_B, top_k, top_p)(ids.expand(draws, 3), scores_1V.expand(draws, -1))
    assert torch.equal(drawn_BV.isfinite().sum(1), torch.ones(draws, dtype=torch.int64))
    counts = torch.bincount(drawn_BV.argmax(1), minlength=30)
    possible = chances > 0
    assert counts[~possible].sum() == 0 and possible.sum() > 1
    expected = (chances[possible].double() / chances[possible].double().sum() * draws).tolist()
    assert chisquare(counts[possible].tolist(), expected).pvalue > 1e-4


def test_draws_of_a_row_are_independent_over_positions():
    """Correlation of the draws at two positions, fair coins, 20,000 rows: within 4.5 standard errors (1 in 100,000)."""
    scores_BV = torch.zeros(20_000, 2)
    draw = Drawn(torch.arange(20_000, dtype=torch.int32), 2, 1.0)
    first, second = (draw(torch.zeros(1, at, dtype=torch.int64), scores_BV).argmax(1).double() for at in (1, 2))
    correlation = ((first - 0.5) * (second - 0.5)).mean() * 4
    assert abs(float(correlation)) < 4.5 / 20_000**0.5


def test_the_step_generates_for_every_passage(inputs, t5, tmp_path):
    generate = GenerateConfig(max_tokens=6, batch_size=64)
    config = PseudoQueriesConfig(source=f"model:{t5}", per_passage=2, generate=generate)
    assert PSEUDO_QUERIES.stays(config) and not PSEUDO_QUERIES.stays(PseudoQueriesConfig())
    result = PSEUDO_QUERIES(config, inputs, Place(str(tmp_path / "one")))
    assert result["passages"] == DOCUMENTS and result["queries_per_passage"] > 1.9
