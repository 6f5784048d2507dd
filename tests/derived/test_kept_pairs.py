"""The consistency filter keeps the pairs that a ranking by other means keeps, in whatever pieces it is made."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from midmask.artifact import Artifact, Place
from midmask.derived.kept_pairs import KEEP_PAIRS, PAIRS, KeepPairsConfig, ListPairsConfig, list_pairs
from midmask.derived.pseudo_queries import PseudoQueriesConfig
from midmask.errors import UserError
from midmask.identity import override
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.models import load_base_model
from midmask.retrieve.search import SearchConfig, search
from midmask.vocabulary import load_tokenizer
from tests.support.derived.judged import Inputs, Pairs, texts_of, write_pairs, write_tied_lists
from tests.support.retrieve.collection import made, write_all

MARGIN = 1e-4
"""Difference of scores below which float32 may order two passages in another way than float64."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    return write_all(Place(str(tmp_path_factory.mktemp("collection"))))


@pytest.fixture(scope="module")
def pairs(inputs, tmp_path_factory) -> tuple[Artifact, Pairs]:
    return write_pairs(inputs, tmp_path_factory.mktemp("pairs"))


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


def test_kept_pairs_equal_those_of_a_ranking_in_float64(inputs, pairs, tmp_path):
    artifact, all_pairs = pairs
    root = Place(str(tmp_path))
    config, sources = ListPairsConfig(max_length=12), {"pairs": artifact, "tokens": inputs["tokens"]}
    asked = made(list_pairs, config, sources, root / "a")
    sources = {"model": inputs["model"], "tokens": inputs["tokens"]}
    queries = EncodeConfig(side="queries", split=PAIRS)
    encoded = {
        "passages": made(encode, EncodeConfig(side="passages"), sources, root / "p"),
        "queries": made(encode, queries, {**sources, "asked": asked}, root / "q"),
        "tokens": inputs["tokens"],
    }
    lists = made(search, SearchConfig(depth=20), encoded, root / "s")
    _, found = kept({"pairs": artifact, "ranked": lists}, 20, tmp_path / "kept")

    model = load_base_model(inputs["model"].place.local() / "model").double()
    tokenizer = load_tokenizer(inputs["tokens"].place.local() / "tokenizer")

    def vector(text: str, length: int) -> np.ndarray:
        ids = tokenizer(text, truncation=True, max_length=length)["input_ids"]
        with torch.inference_mode():
            return np.asarray(model(input_ids=torch.tensor([ids])).last_hidden_state[0, 0].numpy())

    texts = texts_of(inputs["corpus"])
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
def test_equal_scores_are_ranked_by_id_and_an_empty_list_keeps_nothing(inputs, pairs, tmp_path, rank):
    artifact, all_pairs = pairs
    lists, ranks = write_tied_lists(all_pairs, list(texts_of(inputs["corpus"])), Place(str(tmp_path / "lists")))
    _, found = kept({"pairs": artifact, "ranked": lists}, rank, tmp_path / "kept")
    assert found == [pair for pair, own in zip(all_pairs, ranks, strict=True) if 1 <= own <= rank]


@pytest.mark.parametrize("changes", [{"keep_rank": 2}, {"judged_by": "bm25"}, {"judged_by": "bm25", "keep_rank": 0}])
def test_a_rank_needs_a_judge_and_a_judge_a_rank(changes):
    with pytest.raises(UserError, match=r"keep_rank"):
        override(PseudoQueriesConfig(), changes)
