"""The search step in one process: brute force, going on after a kill, and encodings that do not belong together."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.identity import fingerprint
from midmask.retrieve import encode as encoding
from midmask.retrieve import ranked
from midmask.retrieve.search import Search, SearchConfig, SearchWorker, search
from tests.support.retrieve.collection import encoded, made

CONFIG = SearchConfig(depth=25)


@pytest.fixture(scope="module")
def vectors(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return encoded(inputs, Place(str(tmp_path_factory.mktemp("encoded"))))


def digest(out: Place, split: str = "train") -> str:
    return hashlib.sha256((out / "ranked" / f"{split}.parquet").read()).hexdigest()


def test_the_ranking_is_by_the_encoders_inner_product(inputs, vectors, out):
    """Held against transformers one text at a time, in float64, and a plain sort."""
    import torch
    from transformers import AutoModel

    result = search(CONFIG, vectors, out)
    model = AutoModel.from_pretrained(inputs["model"].place.local() / "model").double().eval()

    def vector(row) -> np.ndarray:
        with torch.inference_mode():
            return model(input_ids=torch.tensor([row])).last_hidden_state[0, 0].numpy()

    tokens = inputs["tokens"].place
    passages = pa.concat_tables(
        [pq.read_table((tokens / "passages" / name).uri) for name in (tokens / "passages").names()]
    ).to_pylist()
    truth = {row["doc_id"]: vector(row["ids"]) for row in passages}
    queries = {row["query_id"]: row["ids"] for row in pq.read_table((tokens / "queries.parquet").uri).to_pylist()}
    found = ranked.read(out / "ranked" / "train.parquet").to_pylist()
    assert len(found) == 30 * 25 == result["splits"]["train"]["ranked"]
    for query_id in ("q1", "q38"):
        scores = {doc_id: float(vector(queries[query_id]) @ truth[doc_id]) for doc_id in truth}
        listed = [row for row in found if row["query_id"] == query_id]
        np.testing.assert_allclose(
            [row["score"] for row in listed], sorted(scores.values(), reverse=True)[:25], rtol=1e-5
        )
        np.testing.assert_allclose(
            [row["score"] for row in listed], [scores[row["doc_id"]] for row in listed], rtol=1e-5
        )
    assert result["splits"]["train"]["queries"] == 30 and result["source"] == "dense-encoder"


def test_depth_beyond_the_corpus_lists_every_passage_once(vectors, out):
    result = search(SearchConfig(depth=5000), vectors, out)
    found = ranked.read(out / "ranked" / "train.parquet")
    assert result["splits"]["train"]["ranked"] == len(found) == 30 * 300
    assert len(set(zip(found["query_id"].to_pylist(), found["doc_id"].to_pylist(), strict=True))) == 30 * 300


def test_a_killed_search_goes_on_from_the_blocks_it_has(
    inputs, vectors, out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(encoding, "QUERY_BLOCK", 10)
    small = encoded(inputs, Place(str(tmp_path / "small")))
    whole = Place(str(tmp_path / "whole"))
    search(CONFIG, small, whole)
    work = Search(CONFIG, small, out)
    (shard,) = work.shards(1)
    assert work.begin() == 3
    assert SearchWorker(work, shard).search(1) == 1 and SearchWorker(work, shard).search(1) == 0
    (target,) = (out.local() / "partial").iterdir()
    arrays = np.load(target)
    np.savez(target, **{**arrays, "scores": arrays["scores"] + np.float32(1)})
    search(CONFIG, small, out)
    both = [ranked.read(place / "ranked" / "train.parquet") for place in (whole, out)]
    gained = both[1]["score"].to_numpy() - both[0]["score"].to_numpy()
    assert np.array_equal(gained > 0.5, np.repeat([False, True, False], 250)), "the finished block was searched again"
    assert out.names() == ["ranked"], "partial results are not kept"


def test_encodings_that_do_not_belong_together_are_refused(inputs, vectors, out, tmp_path: Path):
    other = {**inputs, "model": Artifact(inputs["model"].place, {"fingerprint": "another"})}
    config = encoding.EncodeConfig(side="queries", split="dev")
    strange = made(encoding.encode, config, other, Place(str(tmp_path / "strange")))
    with pytest.raises(UserError, match=r"made by the encoder encoder, the queries .* by another; encode both"):
        search(CONFIG, {**vectors, "queries": strange}, out)
    tokens = Artifact(inputs["tokens"].place, {"fingerprint": "others"})
    with pytest.raises(UserError, match=r"was encoded from the tokens tokens, not from .* \(others\)"):
        search(CONFIG, {**vectors, "tokens": tokens}, out)
    assert out.names() == []


def test_only_runtime_fields_stay_out_of_the_fingerprint():
    assert fingerprint(CONFIG) == fingerprint(CONFIG.model_copy(update={"actors": 8, "threads": 4}))
    assert fingerprint(CONFIG) != fingerprint(CONFIG.model_copy(update={"depth": 7}))
