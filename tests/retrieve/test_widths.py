"""Search by the first dimensions of dense vectors, against a plain sort of vectors that were cut by hand."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.encoders.representation import Representation
from midmask.retrieve import ranked
from midmask.retrieve.blocks import SELECTION, passage_blocks
from midmask.retrieve.coded_tokens import load_array
from midmask.retrieve.search import SearchConfig, search
from tests.support.retrieve.collection import encoded, write_bi_encoder

WIDTH = 24


def vectors_of(inputs: dict[str, Artifact], root: Path, representation: Representation) -> dict[str, Artifact]:
    model = write_bi_encoder(Place(str(root / "model")), inputs["tokens"], representation)
    return encoded({**inputs, "model": model}, Place(str(root / "encoded")))


def cut(encoding: Artifact, *, unit: bool) -> np.ndarray:
    names = sorted((encoding.place / "dense").names())
    first = np.concatenate([load_array(encoding.place / "dense" / name) for name in names])[:, :WIDTH].astype(float)
    return first / np.linalg.norm(first, axis=1, keepdims=True) if unit else first


@pytest.mark.parametrize("unit", [False, True])
def test_a_search_by_fewer_dimensions_is_a_sort_by_them(
    inputs: dict[str, Artifact], out: Place, tmp_path: Path, unit: bool
) -> None:
    vectors = vectors_of(inputs, tmp_path, Representation(dense="mean", normalise=unit))
    result = search(SearchConfig(depth=10, width=WIDTH), vectors, out)
    scores = cut(vectors["queries"], unit=unit) @ cut(vectors["passages"], unit=unit).T
    found = ranked.read(out / "ranked" / "train.parquet")
    listed = found["score"].to_numpy().reshape(-1, 10)
    np.testing.assert_allclose(listed, -np.sort(-scores, axis=1)[:, :10], rtol=1e-5, atol=1e-6)
    blocks = passage_blocks(inputs["tokens"].place)
    places = {name: n for n, name in enumerate(n for b in blocks for n in b.read(["doc_id"])["doc_id"].to_pylist())}
    names = pq.read_table((vectors["queries"].place / SELECTION).uri)["query_id"].to_pylist()
    rows = {name: n for n, name in enumerate(names)}
    pairs = zip(found["query_id"].to_pylist(), found["doc_id"].to_pylist(), strict=True)
    own = [scores[rows[query], places[passage]] for query, passage in pairs]
    np.testing.assert_allclose(found["score"].to_numpy(), own, rtol=1e-5, atol=1e-6)
    assert result["bytes_per_passage"] == 4 * WIDTH
