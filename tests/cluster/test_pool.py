"""The actor pool against the one-process step: same files, with any number of actors and through their deaths."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.cluster import pool
from midmask.errors import UserError
from midmask.retrieve import mine as one_process
from midmask.retrieve import ranked
from midmask.retrieve import search as units
from midmask.retrieve.mine import MineConfig, search_of
from tests.retrieve.collection import write_all

CONFIG = MineConfig(depth=25, per_query=6)
FILES = ("ranked.parquet", "negatives.parquet", "negatives.jsonl.gz")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_all(Place(f"file://{tmp_path_factory.mktemp('collection')}"))


def digests(out: Place) -> list[str]:
    return [hashlib.sha256((out / name).read()).hexdigest() for name in FILES]


def plant(config: MineConfig, inputs: dict[str, Artifact], out: Place) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of few whole numbers in place of the encoder's, so that exact ties lie within and across shards."""
    search = search_of(config, inputs, out)
    draw = np.random.default_rng(0)
    passages, queries = [], []
    for block in search.blocks:
        passages.append(draw.integers(-1, 2, (block.rows, 5)).astype(np.float32))
        _save(out / "embeddings" / block.file, passages[-1])
    for block in range(search.select()):
        queries.append(draw.integers(-1, 2, (len(search.selected(block)), 5)).astype(np.float32))
        _save(search.query_vectors(block), queries[-1])
    return np.concatenate(queries), np.concatenate(passages)


def _save(place: Place, vectors: np.ndarray) -> None:
    with place.writing() as stream:
        np.save(stream, vectors)


@pytest.mark.parametrize("actors", [1, 2])
def test_actors_that_encode_write_the_files_of_one_process(ray_local, inputs, tmp_path: Path, actors: int):
    alone, pooled = (Place(f"file://{tmp_path}/{name}") for name in ("alone", "pooled"))
    expected = one_process.mine(CONFIG, inputs, alone)
    assert pool.mine(CONFIG, inputs, pooled, actors=actors) == expected
    assert digests(pooled) == digests(alone)
    for name in (alone / "embeddings").names():
        assert (pooled / "embeddings" / name).read() == (alone / "embeddings" / name).read()


def test_one_two_and_five_shards_equal_brute_force_with_exact_ties(inputs, tmp_path: Path):
    names = [
        doc_id
        for name in (inputs["tokens"].place / "passages").names()
        for doc_id in pq.read_table(inputs["tokens"].place.local() / "passages" / name)["doc_id"].to_pylist()
    ]
    found = []
    for count in (1, 2, 5):
        out = Place(str(tmp_path / f"{count}"))
        queries_QD, passages_ND = plant(CONFIG, inputs, out)
        search = search_of(CONFIG, inputs, out)
        blocks, shards = search.select(), search.shards(count)
        for shard in shards:
            worker = units.ShardWorker(search, shard)
            for block in range(blocks):
                worker.search(block)
        ranked.write(out / "ranked.parquet", search.merged(shards, blocks))
        found.append((out / "ranked.parquet").read())
    assert found[0] == found[1] == found[2]
    scores_QN = queries_QD.astype(np.float64) @ passages_ND.astype(np.float64).T
    expected = []
    for query_id, scores in zip(search.selected(0)["query_id"].to_pylist(), scores_QN.tolist(), strict=True):
        best = sorted(range(len(names)), key=lambda row: (-scores[row], names[row]))[:25]
        expected += [(query_id, names[row], scores[row], rank) for rank, row in enumerate(best, start=1)]
    rows = ranked.read(out / "ranked.parquet").to_pylist()
    assert [tuple(row.values()) for row in rows] == expected
    assert len({(row["query_id"], row["score"]) for row in rows}) < len(rows) / 3, "too few ties to show anything"


def actor_processes() -> Iterator[psutil.Process]:
    """The live pool actors below this test's own Ray."""
    for process in psutil.Process().children(recursive=True):
        try:
            if "ShardWorker" in " ".join(process.cmdline()):
                yield process
        except psutil.Error:
            continue


class Killer(threading.Thread):
    """Kills one actor with SIGKILL as soon as a file matches `pattern`; notes which vectors were there before."""

    def __init__(self, out: Path, pattern: str) -> None:
        super().__init__(daemon=True)
        self._out, self._pattern = out, pattern
        self.killed: int | None = None
        self.vectors: dict[Path, int] = {}
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.002):
            if any(self._out.glob(self._pattern)):
                for process in actor_processes():
                    self.vectors = {path: path.stat().st_mtime_ns for path in self._out.glob("embeddings/*.npy")}
                    process.kill()
                    self.killed = process.pid
                    return


@pytest.mark.parametrize("pattern", ["embeddings/*.npy", "partial/*.parquet"])
def test_an_actor_killed_in_the_middle_is_made_again_and_encodes_nothing_twice(
    ray_local, inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
):
    monkeypatch.setattr(units, "QUERY_BLOCK", 1)  # thirty query blocks, so that there is a middle
    alone, out = Place(str(tmp_path / "alone")), Place(f"file://{tmp_path}/pooled")
    expected = one_process.mine(CONFIG, inputs, alone)
    killer = Killer(tmp_path / "pooled", pattern)
    killer.start()
    try:
        result = pool.mine(CONFIG, inputs, out, actors=2)
    finally:
        killer.stopped.set()
        killer.join()
    assert killer.killed and killer.vectors, "no actor was killed, so this test shows nothing"
    assert result == expected and digests(out) == digests(alone)
    assert {path: path.stat().st_mtime_ns for path in killer.vectors} == killer.vectors


def test_a_pool_that_can_never_start_is_refused_with_the_sum(ray_local, inputs, tmp_path: Path):
    out = Place(str(tmp_path))
    with pytest.raises(UserError, match=r"actors = 3, threads = 1: 3 x 1 = 3 CPUs .* cluster has 2 = 2"):
        pool.mine(CONFIG, inputs, out, actors=3)
    with pytest.raises(UserError, match=r"1 x 3 = 3 CPUs .*room for 0 such actors"):
        pool.mine(CONFIG.model_copy(update={"threads": 3}), inputs, out, actors=1)
    assert out.names() == []


def test_a_users_mistake_inside_an_actor_stays_one_line(ray_local, inputs, tmp_path: Path):
    from safetensors.numpy import load_file, save_file

    broken = tmp_path / "encoder"
    (broken / "model").mkdir(parents=True)
    source = inputs["model"].place / "model"
    for name in source.names():
        (broken / "model" / name).write_bytes((source / name).read())
    weights = load_file(broken / "model" / "model.safetensors")
    weights["embeddings.word_embeddings.weight"] = weights["embeddings.word_embeddings.weight"] * np.float32("nan")
    save_file(weights, broken / "model" / "model.safetensors", metadata={"format": "pt"})
    model = Artifact(Place(str(broken)), {"fingerprint": "broken"})
    with pytest.raises(UserError, match="not finite for 40 passages") as caught:
        pool.mine(CONFIG, {**inputs, "model": model}, Place(str(tmp_path / "out")), actors=2)
    assert "\n" not in str(caught.value) and type(caught.value) is UserError
