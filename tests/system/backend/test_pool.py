"""The actor pool against the one-process steps: same files, with any number of actors and through their deaths."""

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from midmask.artifact import RECORD, Artifact, Place, load
from midmask.backend import pool
from midmask.backend.shards import run_sharded
from midmask.errors import UserError
from midmask.retrieve import encode as encoding
from midmask.retrieve import ranked
from midmask.retrieve.blocks import SELECTION, blocks_in, passage_blocks
from midmask.retrieve.bm25 import Bm25Config, rank_with_bm25
from midmask.retrieve.bm25_index import BM25_INDEX, Bm25IndexConfig
from midmask.retrieve.bm25_words import BM25_WORDS, Bm25WordsConfig
from midmask.retrieve.encode import EncodeConfig
from midmask.retrieve.index import IndexConfig
from midmask.retrieve.search import SearchConfig, search
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views
from tests.support.cluster.processes import ray_processes
from tests.support.retrieve.bm25 import bm25_index
from tests.support.retrieve.collection import encoded, made, with_index, write_all

PASSAGES = EncodeConfig(side="passages")
CONFIG = SearchConfig(depth=25)
KINDS = {"dense": ("dense",), "hybrid": ("dense", "lexical")}


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


def test_actors_write_the_files_of_one_process(ray_local, inputs, tmp_path: Path, pooled: Place):
    alone = Place(f"file://{tmp_path}/alone")
    vectors, same = encoded(inputs, alone), encoded(inputs, pooled, partial(pool.encode, actors=2))
    for name in ("passages", "queries"):
        assert digests(same[name].place) == digests(vectors[name].place)
        assert untimed(same[name].result) == untimed(vectors[name].result)
    expected = search(CONFIG, vectors, alone / "search")
    assert untimed(pool.search(CONFIG, vectors, pooled / "search", actors=2)) == untimed(expected)
    assert digests(pooled / "search") == digests(alone / "search")


def test_with_an_index_any_number_of_actors_finds_what_one_process_finds(ray_local, inputs, tmp_path: Path):
    """More actors than one hold the same index and share the blocks of queries."""
    root = Place(f"file://{tmp_path}")
    config = SearchConfig(depth=25, index="IVF16,Flat", nprobe=2)
    vectors = with_index(encoded(inputs, root / "vectors"), root, IndexConfig(index="IVF16,Flat"), config)
    expected = search(config, vectors, root / "alone")
    assert untimed(pool.search(config, vectors, root / "pooled", actors=2)) == untimed(expected)
    assert digests(root / "pooled") == digests(root / "alone")


def planted(root: Path, kind: str, vectors: dict[str, Artifact]) -> np.ndarray:
    """Writes encodings of few whole numbers to `root`, as if a model had made them; returns the scores of all pairs."""
    draw = np.random.default_rng(0)
    all_views: dict[str, list[np.ndarray]] = {}
    for name in ("queries", "passages"):
        place, parts = Place(str(root / name)), []
        (root / name).mkdir(parents=True)
        if name == "queries":
            (root / name / SELECTION).write_bytes((vectors[name].place / SELECTION).read())
            blocks = blocks_in([place / SELECTION])
        else:
            blocks = passage_blocks(vectors["tokens"].place)
        for block in blocks:
            dense_ND = draw.integers(-1, 2, (block.rows, 5)).astype(np.float32)
            lexical_NV = (draw.integers(-1, 3, (block.rows, 30)) * (draw.random((block.rows, 30)) < 0.2)).astype(
                np.float32
            )
            own = {"dense": dense_ND, "lexical": lexical_NV}
            rows = SparseRows.top(lexical_NV, None) if "lexical" in KINDS[kind] else None
            Views(dense_ND if "dense" in KINDS[kind] else None, rows).write(place, block.name)
            parts.append(np.concatenate([own[view] for view in KINDS[kind]], axis=1))
        all_views[name] = np.concatenate(parts).astype(np.float64)
        result = {**vectors[name].result, "views": KINDS[kind]}
        (root / name / RECORD).write_text(json.dumps({**vectors[name].record, "result": result}))
    return all_views["queries"] @ all_views["passages"].T


def best_of(scores_QN: np.ndarray, query_ids: list[str], doc_ids: list[str]) -> list[tuple[str, str, float, int]]:
    """The ranked list by a plain sort."""
    found = []
    for query_id, scores in zip(query_ids, scores_QN.astype(np.float32).tolist(), strict=True):
        order = sorted(range(len(doc_ids)), key=lambda row: (-scores[row], doc_ids[row]))[: CONFIG.depth]
        found += [(query_id, doc_ids[row], scores[row], rank) for rank, row in enumerate(order, start=1)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_one_and_two_actors_equal_brute_force_with_exact_ties(ray_local, inputs, tmp_path: Path, kind: str):
    """In float64, with ties within and across shards."""
    vectors = encoded(inputs, Place(str(tmp_path / "encoded")))
    scores_QN = planted(tmp_path, kind, vectors)
    given = {name: load(Place(str(tmp_path / name))) for name in ("passages", "queries")}
    given["tokens"] = vectors["tokens"]
    found = []
    for actors in (1, 2):
        pool.search(CONFIG, given, out := Place(str(tmp_path / str(actors))), actors=actors)
        found.append(ranked.read(out / "ranked" / "train.parquet").to_pylist())
    blocks = passage_blocks(vectors["tokens"].place)
    doc_ids = [name for block in blocks for name in block.read(["doc_id"])["doc_id"].to_pylist()]
    query_ids = pq.read_table((vectors["queries"].place / SELECTION).uri)["query_id"].to_pylist()
    assert found[0] == found[1]
    assert [tuple(row.values()) for row in found[0]] == best_of(scores_QN, query_ids, doc_ids)
    assert len({(row["query_id"], row["score"]) for row in found[0]}) < len(found[0]) / 2, "too few ties"


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


def test_an_encoder_killed_in_the_middle_is_made_again_and_encodes_nothing_twice(ray_local, inputs, tmp_path: Path):
    alone = Place(str(tmp_path / "alone"))
    encoding.encode(PASSAGES, inputs, alone)
    pooled, killer = run_with_a_kill(
        lambda out: pool.encode(PASSAGES, inputs, out, actors=2), "EncodeWorker", "dense/*.npy", tmp_path / "pooled"
    )
    assert digests(pooled) == digests(alone)
    assert {path: path.stat().st_mtime_ns for path in killer.files} == killer.files


def test_a_searcher_killed_in_the_middle_is_made_again_and_the_list_is_the_same(
    ray_local, inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(encoding, "QUERY_BLOCK", 1)  # thirty query blocks, so that there is a middle
    vectors = encoded(inputs, Place(str(tmp_path)))
    search(CONFIG, vectors, Place(str(tmp_path / "alone")))
    pooled, _ = run_with_a_kill(
        lambda out: pool.search(CONFIG, vectors, out, actors=2), "SearchWorker", "partial/*", tmp_path / "pooled"
    )
    assert digests(pooled) == digests(Place(str(tmp_path / "alone")))


def test_a_pool_that_can_never_start_is_refused_with_the_sum(ray_local, inputs, pooled: Place, tmp_path: Path):
    with pytest.raises(UserError, match=r"actors = 3, threads = 1: 3 x 1 = 3 CPUs .* cluster has 2 = 2"):
        pool.encode(PASSAGES, inputs, pooled, actors=3)
    vectors = encoded(inputs, Place(str(tmp_path)))
    with pytest.raises(UserError, match=r"1 x 3 = 3 CPUs .*room for 0 such actors"):
        pool.search(CONFIG.model_copy(update={"threads": 3}), vectors, pooled, actors=1)
    assert pooled.names() == []
