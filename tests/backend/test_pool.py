"""The actor pool against the one-process steps: same files, with any number of actors and through their deaths."""

import hashlib
import shutil
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from midmask.artifact import Artifact, Place
from midmask.backend import pool
from midmask.backend.shards import run_sharded
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.retrieve import encode as encoding
from midmask.retrieve.bm25 import Bm25Config, rank_with_bm25
from midmask.retrieve.bm25_index import BM25_INDEX, Bm25IndexConfig
from midmask.retrieve.bm25_words import BM25_WORDS, Bm25WordsConfig
from midmask.retrieve.encode import EncodeConfig
from midmask.retrieve.index import IndexConfig
from midmask.retrieve.search import SearchConfig, search
from tests.support.cluster.processes import ray_processes
from tests.support.retrieve.bm25 import bm25_index, ranked_by_bm25
from tests.support.retrieve.collection import encoded, made, with_index, write_all, write_bi_encoder

PASSAGES = EncodeConfig(side="passages")
CONFIG = SearchConfig(depth=25)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_all(Place(f"file://{tmp_path_factory.mktemp('collection')}"))


@pytest.fixture
def pooled(tmp_path: Path) -> Place:
    return Place(f"file://{tmp_path}/pooled")


def digests(out: Place) -> dict[str, str]:
    """Of all files below a folder on this machine."""
    root = Path(out.uri.removeprefix("file://"))
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def untimed(result: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in result.items() if name not in ("seconds", "query_seconds")}


@pytest.mark.parametrize("actors", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_actors_write_the_files_of_one_process(ray_local, inputs, tmp_path: Path, pooled: Place, actors: int):
    alone = Place(f"file://{tmp_path}/alone")
    vectors, same = encoded(inputs, alone), encoded(inputs, pooled, partial(pool.encode, actors=actors))
    for name in ("passages", "queries"):
        assert digests(same[name].place) == digests(vectors[name].place)
        assert untimed(same[name].result) == untimed(vectors[name].result)
    expected = search(CONFIG, vectors, alone / "search")
    assert untimed(pool.search(CONFIG, vectors, pooled / "search", actors=actors)) == untimed(expected)
    assert digests(pooled / "search") == digests(alone / "search")


def test_with_an_index_any_number_of_actors_finds_what_one_process_finds(ray_local, inputs, tmp_path: Path):
    """More actors than one hold the same index and share the blocks of queries."""
    root = Place(f"file://{tmp_path}")
    config = SearchConfig(depth=25, index="IVF16,Flat", nprobe=2)
    vectors = with_index(encoded(inputs, root / "vectors"), root, IndexConfig(index="IVF16,Flat"), config)
    expected = search(config, vectors, root / "alone")
    assert untimed(pool.search(config, vectors, root / "pooled", actors=2)) == untimed(expected)
    assert digests(root / "pooled") == digests(root / "alone")


@pytest.mark.slow
def test_actors_score_the_candidates_that_one_process_scores(ray_local, inputs, tmp_path: Path):
    """Token vectors: each actor scores those of a query's candidates that lie in its shard."""
    root = Place(f"file://{tmp_path}")
    model = write_bi_encoder(Place(str(tmp_path / "model")), inputs["tokens"], Representation(dense=None, tokens=16))
    given = {**inputs, "model": model}
    vectors, same = encoded(given, root / "one"), encoded(given, root / "two", partial(pool.encode, actors=2))
    for name in ("passages", "queries"):
        assert digests(same[name].place) == digests(vectors[name].place)
    words = Bm25Config(splits=("train",), depth=60, judged="relevant")
    vectors["candidates"] = made(ranked_by_bm25, words, inputs, root / "bm25")
    expected = search(CONFIG, vectors, root / "alone")
    assert untimed(pool.search(CONFIG, vectors, root / "pooled", actors=2)) == untimed(expected)
    assert digests(root / "pooled") == digests(root / "alone")


def test_bm25_is_built_and_searched_by_the_cluster_as_by_one_process(ray_local, inputs, tmp_path: Path):
    root = Place(f"file://{tmp_path}")
    alone = bm25_index(inputs["corpus"], root / "alone")
    spread = {"counts": partial(run_sharded, BM25_WORDS, actors=2), "index": partial(run_sharded, BM25_INDEX, actors=2)}
    words = made(spread["counts"], Bm25WordsConfig(), {"corpus": inputs["corpus"]}, root / "words")
    index = made(spread["index"], Bm25IndexConfig(), {"words": words}, root / "index")
    assert digests(words.place) == digests(root / "alone" / "words")
    assert (digests(index.place), index.result) == (digests(alone.place), alone.result)
    config, given = Bm25Config(splits=("dev", "train"), depth=25), {"corpus": inputs["corpus"], "index": index}
    expected = rank_with_bm25(config, given, root / "by one")
    assert pool.rank_with_bm25(config, given, root / "by two", actors=2) == expected
    assert digests(root / "by two") == digests(root / "by one")
    with pytest.raises(UserError, match=r"actors = 3, threads = 1: .* cluster has 2"):
        pool.rank_with_bm25(config, given, root / "by three", actors=9)  # there are three shards


class Killer(threading.Thread):
    """Kills one actor with SIGKILL as soon as a file matches `pattern`; notes which files were there before."""

    def __init__(self, actor: str, out: Path, pattern: str) -> None:
        super().__init__(daemon=True)
        self._actor, self._out, self._pattern = actor, out, pattern
        self.killed: int | None = None
        self.files: dict[Path, int] = {}
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.002):
            if any(self._out.glob(self._pattern)):
                for process in ray_processes(self._actor):
                    self.files = {path: path.stat().st_mtime_ns for path in self._out.glob(self._pattern)}
                    process.kill()
                    self.killed = process.pid
                    return

    def __enter__(self) -> "Killer":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        self.join()


def run_with_a_kill(run: Callable[[Place], object], worker: str, pattern: str, folder: Path) -> tuple[Place, Killer]:
    """Runs into fresh folders until an actor was killed in the middle: a run may end before its actors are found."""
    for number in range(10):
        with Killer(worker, folder / str(number), pattern) as killer:
            run(out := Place(f"file://{folder}/{number}"))
        if killer.killed and killer.files:
            return out, killer
    pytest.fail("no actor was killed in ten runs")


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "QUERY_BLOCK", 1)  # thirty query blocks, so that there is a middle


def test_an_encoder_killed_in_the_middle_is_made_again_and_encodes_nothing_twice(ray_local, inputs, tmp_path: Path):
    alone = Place(str(tmp_path / "alone"))
    encoding.encode(PASSAGES, inputs, alone)
    pooled, killer = run_with_a_kill(
        lambda out: pool.encode(PASSAGES, inputs, out, actors=2), "EncodeWorker", "dense/*.npy", tmp_path / "pooled"
    )
    assert digests(pooled) == digests(alone)
    assert {path: path.stat().st_mtime_ns for path in killer.files} == killer.files


def test_a_searcher_killed_in_the_middle_is_made_again_and_the_list_is_the_same(
    ray_local, inputs, tmp_path: Path, short_blocks
):
    vectors = encoded(inputs, Place(str(tmp_path)))
    search(CONFIG, vectors, Place(str(tmp_path / "alone")))
    pooled, _ = run_with_a_kill(
        lambda out: pool.search(CONFIG, vectors, out, actors=2), "SearchWorker", "partial/*", tmp_path / "pooled"
    )
    assert digests(pooled) == digests(Place(str(tmp_path / "alone")))


def test_a_searcher_of_words_killed_in_the_middle_is_made_again_and_the_list_is_the_same(
    ray_local, inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("midmask.retrieve.bm25.QUERY_BLOCK", 1)
    config = Bm25Config(splits=("train",), depth=25, judged="relevant")
    given = {"corpus": inputs["corpus"], "index": bm25_index(inputs["corpus"], Place(f"file://{tmp_path}"))}
    rank_with_bm25(config, given, Place(str(tmp_path / "alone")))
    pooled, _ = run_with_a_kill(
        lambda out: pool.rank_with_bm25(config, given, out, actors=2),
        "Bm25Worker",
        "partial/*/*",
        tmp_path / "pooled",
    )
    assert digests(pooled) == digests(Place(str(tmp_path / "alone")))


def test_a_pool_that_can_never_start_is_refused_with_the_sum(ray_local, inputs, pooled: Place, tmp_path: Path):
    with pytest.raises(UserError, match=r"actors = 3, threads = 1: 3 x 1 = 3 CPUs .* cluster has 2 = 2"):
        pool.encode(PASSAGES, inputs, pooled, actors=3)
    vectors = encoded(inputs, Place(str(tmp_path)))
    with pytest.raises(UserError, match=r"1 x 3 = 3 CPUs .*room for 0 such actors"):
        pool.search(CONFIG.model_copy(update={"threads": 3}), vectors, pooled, actors=1)
    assert pooled.names() == []


def test_a_users_mistake_inside_an_actor_stays_one_line(ray_local, inputs, tmp_path: Path, pooled: Place):
    from safetensors.numpy import load_file, save_file

    shutil.copytree(inputs["model"].place.uri.removeprefix("file://") + "/model", tmp_path / "broken")
    weights = load_file(tmp_path / "broken" / "model.safetensors")
    weights["embeddings.word_embeddings.weight"] = weights["embeddings.word_embeddings.weight"] * np.float32("nan")
    save_file(weights, tmp_path / "broken" / "model.safetensors", metadata={"format": "pt"})
    model = Artifact(Place(str(tmp_path / "broken")), {"fingerprint": "broken"})
    with pytest.raises(UserError, match="not finite") as caught:
        pool.encode(PASSAGES, {**inputs, "model": model}, pooled, actors=2)
    assert "\n" not in str(caught.value) and type(caught.value) is UserError
