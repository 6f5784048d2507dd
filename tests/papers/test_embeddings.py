"""The sample of vectors that a map of embeddings shows, on runs made by jobs' own code."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from midmask.errors import UserError
from midmask.leaderboard.artifacts import artifact_place
from midmask.leaderboard.rows import measured
from midmask.store.place import Place
from midmask.tracking.reading import read_runs
from midmask_papers.embeddings import draw_sample, encodings, map_embeddings


@pytest.fixture(scope="module")
def places(worked_store: tuple[Path, dict[str, str]]) -> dict[str, Place]:
    """Recipe -> the place of its evaluation."""
    home, fingerprints = worked_store
    runs = {run.tags["midmask.fingerprint"]: run for run in read_runs(f"sqlite:///{home}/mlflow.db") if measured(run)}
    found = {recipe: artifact_place(runs[fingerprint], "", "") for recipe, fingerprint in fingerprints.items()}
    return {recipe: place for recipe, place in found.items() if place}


def test_vectors_are_those_of_the_passages_that_are_named(places: dict[str, Place]) -> None:
    source = encodings(places["retromae"])
    sample = draw_sample(source, "dense", count=8, seed=3)
    assert sample.query_ids == tuple(sorted(sample.query_ids)) and len(set(sample.query_ids)) == 8
    assert [name.replace("q", "d") for name in sample.query_ids] == list(sample.doc_ids), "a query's own passage"
    ids = pq.read_table(f"{source.tokens.place.uri}/passages")["doc_id"].to_pylist()
    order = [line.split()[0] for line in ids]
    vectors = np.load(f"{source.passages.place.uri}/dense/00000.npy")
    for doc_id, vector in zip(sample.doc_ids, sample.passages_ND, strict=True):
        assert np.array_equal(vectors[order.index(doc_id)], vector)
    assert draw_sample(source, "dense", count=8, seed=3).query_ids == sample.query_ids
    assert draw_sample(source, "dense", count=8, seed=4).query_ids != sample.query_ids
    drawn = map_embeddings(draw_sample(source, "dense"), perplexity=5, seed=0)
    assert drawn.queries_N2.shape == drawn.passages_N2.shape == (12, 2), "dev has twelve queries"
    with pytest.raises(UserError, match="lexical"):
        draw_sample(source, "lexical")
    with pytest.raises(UserError, match="no encoder"):
        encodings(places["bm25"])
