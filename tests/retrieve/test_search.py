"""The search step in one process: brute force, going on after a kill, and encodings that do not belong together."""

from pathlib import Path

import numpy as np
import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.retrieve import encode as encoding
from midmask.retrieve import ranked
from midmask.retrieve.search import Search, SearchConfig, SearchWorker, search
from tests.support.retrieve.collection import encoded, made

CONFIG = SearchConfig(depth=25)


@pytest.fixture(scope="module")
def vectors(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return encoded(inputs, Place(str(tmp_path_factory.mktemp("encoded"))))


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
