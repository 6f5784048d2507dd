"""Pseudo-queries from every source, a random T5 among them, and the consistency filter that keeps some of the pairs."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import chisquare

from midmask.core.config import override
from midmask.errors import UserError
from midmask.queries.pseudo_queries import (
    KEEP_PAIRS,
    PAIRS,
    PSEUDO_QUERIES,
    KeepPairsConfig,
    ListPairsConfig,
    PseudoQueriesConfig,
    list_pairs,
)
from midmask.queries.query_model import Drawn, GenerateConfig, QueryGenerator
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.search import SearchConfig, search
from midmask.retrieve.text_encoder import load_base_model
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.vocabulary import load_tokenizer
from tests.support.queries.documents import DOCUMENTS, Inputs, Pairs, text_of, titled, write_pairs, write_tied_lists
from tests.support.queries.small_models import write_t5
from tests.support.retrieve.collection import made, texts_of, write_all


def queried(inputs: Inputs, out: Path, source: str, **fields: Any) -> tuple[dict[str, Any], list[list[str]]]:
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


def test_sentences_titles_neighbours_of_one_title_and_shard_and_judged_queries_of_train(inputs, tmp_path):
    _, queries = queried(inputs, tmp_path / "sentences", "sentences")
    for number, own in enumerate(queries):
        assert " ".join(own) == text_of(number) and all(sentence.endswith(".") for sentence in own)
    _, queries = queried(inputs, tmp_path / "titles", "titles")
    assert queries == [[titled(number)] if titled(number) else [] for number in range(DOCUMENTS)]
    _, queries = queried(inputs, tmp_path / "neighbours", "neighbours")
    for number, own in enumerate(queries):
        near = [other for other in (number - 1, number + 1) if titled(number) and titled(other) == titled(number)]
        assert own == [text_of(other) for other in near if other // 40 == number // 40 and other < DOCUMENTS], number
    _, queries = queried(inputs, tmp_path / "train", "train")
    relevant = {number for number in range(30) if number % 3 and number != 1}
    assert queries == [[f"what is {n}"] if n in relevant else [] for n in range(DOCUMENTS)]


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


MARGIN = 1e-4
"""Difference of scores below which float32 may order two passages in another way than float64."""


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> Inputs:
    return write_all(Place(str(tmp_path_factory.mktemp("collection"))))


@pytest.fixture(scope="module")
def pairs(collection, tmp_path_factory) -> tuple[Artifact, Pairs]:
    return write_pairs(collection, tmp_path_factory.mktemp("pairs"))


def kept(inputs: Inputs, rank: int, out: Path) -> tuple[dict[str, Any], Pairs]:
    """The step's result and its pairs; layout and counts are checked on the way."""
    result = KEEP_PAIRS(KeepPairsConfig(rank=rank), inputs, Place(str(out)))
    before = Path(inputs["pairs"].place.local()) / "pseudo_queries"
    names = sorted(file.name for file in before.iterdir())
    assert sorted(file.name for file in (out / "pseudo_queries").iterdir()) == names
    found: Pairs = []
    for name in names:
        was, table = pq.read_table(before / name), pq.read_table(out / "pseudo_queries" / name)
        assert table["doc_id"] == was["doc_id"] and table.schema == was.schema
        for old, new in zip(was.to_pylist(), table.to_pylist(), strict=True):
            ids = dict(zip(old["queries"], old["ids"], strict=True))
            assert [ids[query] for query in new["queries"]] == new["ids"]
            found += [(new["doc_id"], query) for query in new["queries"]]
    counts = np.load(out / "counts.npy")
    assert counts.sum() == result["queries"] == len(found) and (counts == 0).sum() == result["passages_without"]
    assert result["queries"] + result["dropped"] == result["judged"] == inputs["pairs"].result["queries"]
    return result, found


def test_kept_pairs_equal_those_of_a_ranking_in_float64(collection, pairs, tmp_path):
    artifact, all_pairs = pairs
    root = Place(str(tmp_path))
    config, sources = ListPairsConfig(max_length=12), {"pairs": artifact, "tokens": collection["tokens"]}
    asked = made(list_pairs, config, sources, root / "a")
    sources = {"model": collection["model"], "tokens": collection["tokens"]}
    encoded = {
        "passages": made(encode, EncodeConfig(side="passages"), sources, root / "p"),
        "queries": made(encode, EncodeConfig(side="queries", split=PAIRS), {**sources, "asked": asked}, root / "q"),
        "tokens": collection["tokens"],
    }
    lists = made(search, SearchConfig(depth=20), encoded, root / "s")
    _, found = kept({"pairs": artifact, "ranked": lists}, 20, tmp_path / "kept")

    model = load_base_model(collection["model"].place.local() / "model").double()
    tokenizer = load_tokenizer(collection["tokens"].place.local() / "tokenizer")

    def vector(text: str, length: int) -> np.ndarray:
        ids = tokenizer(text, truncation=True, max_length=length)["input_ids"]
        with torch.inference_mode():
            return np.asarray(model(input_ids=torch.tensor([ids])).last_hidden_state[0, 0].numpy())

    texts = texts_of(collection["corpus"])
    passages_ND, places = np.stack([vector(text, 32) for text in texts.values()]), {d: n for n, d in enumerate(texts)}
    decided = 0
    for doc_id, query in all_pairs:
        scores_N = passages_ND @ vector(query, 12)
        own = scores_N[places[doc_id]]
        others_N = np.delete(scores_N, places[doc_id])
        if (better := (others_N > own + MARGIN).sum()) == (others_N > own - MARGIN).sum():
            decided += 1
            assert ((doc_id, query) in found) == (better < 20), (doc_id, query)
    assert decided > 0.9 * len(all_pairs) and 0.1 < len(found) / len(all_pairs) < 0.9


@pytest.mark.parametrize("rank", [1, 7])
def test_equal_scores_are_ranked_by_id_and_an_empty_list_keeps_nothing(collection, pairs, tmp_path, rank):
    artifact, all_pairs = pairs
    lists, ranks = write_tied_lists(all_pairs, list(texts_of(collection["corpus"])), Place(str(tmp_path / "lists")))
    _, found = kept({"pairs": artifact, "ranked": lists}, rank, tmp_path / "kept")
    assert found == [pair for pair, own in zip(all_pairs, ranks, strict=True) if 1 <= own <= rank]


@pytest.mark.parametrize("changes", [{"keep_rank": 2}, {"judged_by": "bm25"}, {"judged_by": "bm25", "keep_rank": 0}])
def test_a_rank_needs_a_judge_and_a_judge_a_rank(changes):
    with pytest.raises(UserError, match=r"keep_rank"):
        override(PseudoQueriesConfig(), changes)
