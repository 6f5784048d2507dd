"""The round trip by an encoder, against sentence-transformers' vectors and ranks counted in float64."""

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from midmask.artifact import Artifact, Place
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.queries import encoder_trip
from midmask.queries.candidates import Candidate, collect
from midmask.queries.collection import CollectionFacts, draw_passages, read_as_searched
from midmask.queries.config import QueriesConfig
from midmask.queries.documents import split_passages
from midmask.queries.roles import Roles
from midmask.queries.round_trip import hiding_of, search_again
from midmask.queries.screening import screen
from midmask.queries.step import make_queries
from midmask.recipes import RECIPES
from tests.support.corpora.collections import json_lines, write
from tests.support.queries.articles import articles, rows_of

PASSAGES = articles(60)
CONFIG = QueriesConfig(sources={"sentences": 1.0, "spans": 1.0}, round_trip_depth=2, per_passage=1)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """The articles, and an encoder of random weights that reads them."""
    home = tmp_path_factory.mktemp("trip")
    rows = [{"_id": one.doc_id, "title": one.title, "text": one.text} for one in PASSAGES]
    write(home / "articles" / "corpus.jsonl", json_lines(rows))
    read = {"tokens.titles": True, "tokens.max_length": 64, "tokens.query_length": 64}
    changes = {
        "corpus.name": f"beir:{home / 'articles'}",
        "backbone.name": "tiny",
        "representation.dense": "mean",
        **read,
    }
    planned = plan(apply_changes(RECIPES["none"](), changes))
    steps = {"corpus": planned.corpus, "encoder": planned.untuned, "tokens": planned.tokens}
    runner = Runner(Place(str(home / "store")), LOCAL, Silent())
    return {name: runner.run(step) for name, step in steps.items()}


def searched_candidates(inputs: dict[str, Artifact], known: CollectionFacts, out: Path) -> list[Candidate]:
    """All that pass the screening, with BM25's ranks."""
    corpus, both = inputs["corpus"].place, Roles(CONFIG.sources, CONFIG.sources)
    pool = collect(CONFIG, corpus, known, both, split_passages(known, CONFIG)[0], None, Place(str(out)))
    screen(pool, known, CONFIG)
    left = [one for one in pool.candidates if one.is_in]
    search_again(left, corpus, pool.passages, known, CONFIG.round_trip_depth)
    return left


@pytest.mark.parametrize("others", [len(PASSAGES), 30])
def test_the_encoder_finds_what_its_vectors_rank_within_the_depth(others, inputs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(encoder_trip, "OTHERS", others)
    known = CollectionFacts(inputs["corpus"].place)
    candidates = searched_candidates(inputs, known, tmp_path)
    for one in candidates[::2]:
        one.rank = None  # as if BM25 had not found it
    encoder_trip.find_by_encoder(candidates, inputs, known, CONFIG.round_trip_depth, "fp32")

    lost = [one for one in candidates if one.rank is None]
    pool = {one.made.doc_id for one in lost} | draw_passages(known.doc_ids, 0, "round trip", others)
    texts = {
        one.doc_id: f"{one.title} {one.text}".strip()
        for one in read_as_searched(inputs["corpus"].place, hiding_of(candidates))
        if one.doc_id in pool
    }
    model = SentenceTransformer(str(inputs["encoder"].place.local() / "model"), local_files_only=True, device="cpu")
    passages_PD = model.encode(list(texts.values())).astype(np.float64)
    ids, allowed = list(texts), CONFIG.round_trip_depth * len(texts) // len(PASSAGES)
    found = []
    for one, query_D in zip(lost, model.encode([one.made.text for one in lost]).astype(np.float64), strict=True):
        scores_P = passages_PD @ query_D
        ahead_P = scores_P - scores_P[ids.index(one.made.doc_id)]
        if int((ahead_P > 1e-4).sum()) < allowed <= int((ahead_P > -1e-4).sum()) - 1:
            continue  # whether it is found depends on the last digits
        assert one.by_encoder == (int((ahead_P > 1e-4).sum()) < allowed)
        found.append(one.by_encoder)
    assert len(found) > 20 and any(found) and not all(found)
    assert not any(one.by_encoder for one in candidates if one not in lost), "it is asked for what BM25 does not find"


def test_a_query_that_either_finds_is_kept(inputs: dict[str, Artifact], tmp_path: Path) -> None:
    result = make_queries(CONFIG, inputs, Place(str(tmp_path / "either")))
    rows = rows_of(tmp_path / "either" / "queries.parquet")
    kept = [row for row in rows if row["kept"]]
    assert any((row["rank"] or 99) > CONFIG.round_trip_depth for row in kept)
    assert all(row["by_encoder"] or row["rank"] <= CONFIG.round_trip_depth for row in kept)
    alone = CONFIG.model_copy(update={"round_trip": "bm25"})
    assert make_queries(alone, inputs, Place(str(tmp_path / "bm25")))["kept"] < result["kept"]
    assert not any(row["by_encoder"] for row in rows_of(tmp_path / "bm25" / "queries.parquet"))
