"""Trainings, actor pools and reports on Ray: equal to what one process does, also when workers are killed."""

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
import ray
from ray.util.placement_group import placement_group

from midmask.backend import pool
from midmask.backend.channel import Channel
from midmask.backend.pool import run_sharded
from midmask.backend.worker_group import give_reservations_back, train_on_ray
from midmask.errors import UserError
from midmask.retrieve import encode as encoding
from midmask.retrieve import ranked
from midmask.retrieve.blocks import SELECTION, blocks_in, passage_blocks
from midmask.retrieve.bm25.index import BM25_INDEX, BM25_WORDS, Bm25IndexConfig, Bm25WordsConfig
from midmask.retrieve.bm25.search import Bm25Config, rank_with_bm25
from midmask.retrieve.encode import EncodeConfig
from midmask.retrieve.index import IndexConfig
from midmask.retrieve.search import SearchConfig, search
from midmask.retrieve.sparse import top_rows
from midmask.retrieve.views import Views
from midmask.store.artifact import RECORD, Artifact, load
from midmask.store.place import Place
from midmask.training.run import NonFiniteLoss
from tests.support.corpora.collections import contents
from tests.support.retrieve.collection import bm25_index, encoded, made, with_index, write_all
from tests.support.training.runs import assert_same_run, run_here, run_workers, setup_of, spec_of, spoil, trace_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("ray_local")


def ray_processes(name: str) -> Iterator[psutil.Process]:
    """The live processes below this one whose command line has the name; those that end meanwhile are left out."""
    for process in psutil.Process().children(recursive=True):
        try:
            if name in " ".join(process.cmdline()):
                yield process
        except psutil.Error:
            continue


def kill_one(actor: str, after: Path) -> None:
    """SIGKILL to one of this test's own Ray actors of that class, as soon as a file is there."""
    wait_until(after.exists)
    os.kill(next(ray_processes(actor)).pid, signal.SIGKILL)


def assert_reported_once(reports: list[int], steps: int, restarted: int) -> None:
    """Every step once; a death between the last checkpoint and its report leaves that step to the trace alone."""
    assert reports in ([*range(1, steps + 1)], [done for done in range(1, steps + 1) if done != restarted])


def test_a_killed_worker_is_replaced_and_the_run_is_the_same(tokens: Place, tmp_path: Path) -> None:
    """Two workers on two CPUs that Ray Data reads beside, dropout on, storage by URI; the oracle runs without Ray."""
    train = {"steps": 30, "checkpoint_every": 5}
    spec = spec_of(tokens, tmp_path / "alone", train=train)
    assert run_workers(spec, 2, tmp_path) == [0, 0]
    out, reports, helpers = tmp_path / "ray", [], set()
    second = out / "checkpoints" / "step-00000010" / "position.json"
    threading.Thread(target=kill_one, args=["RayTrainWorker", second], daemon=True).start()

    def log(done: int, values: dict[str, float]) -> None:
        reports.append(done)
        helpers.update(process.pid for process in ray_processes("PlacementGroupCleaner"))

    result = train_on_ray(setup_of(spec), Place(f"file://{out}"), workers=2, use_gpu=False, log=log)
    assert_same_run(trace := trace_of(out), trace_of(tmp_path / "alone"), within=1e-5)
    starts = [row["step"] for row in trace if row["first_after_start"]]
    assert len(starts) == 2 and starts[1] >= 10 and starts[1] % 5 == 0, "no worker was replaced"
    assert_reported_once(reports, 30, starts[1])
    assert not helpers, "without a dashboard, Ray Train's helper warns once a second"
    assert result["steps"] == 30 and result["workers"] == 2 and result["threads"] == 1
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint", "model", "trace.parquet"]


@pytest.mark.slow
def test_a_training_whose_controller_is_killed_goes_on(tokens: Place, tmp_path: Path) -> None:
    spec = spec_of(tokens, tmp_path / "alone", train={"steps": 40, "checkpoint_every": 5})
    assert run_workers(spec, 1, tmp_path) == [0]
    out, reports = tmp_path / "ray", []
    first = out / "checkpoints" / "step-00000005" / "position.json"
    threading.Thread(target=kill_one, args=["TrainController", first], daemon=True).start()

    def log(done: int, values: dict[str, float]) -> None:
        reports.append(done)

    train_on_ray(setup_of(spec), Place(str(out)), workers=1, use_gpu=False, log=log)
    trace = trace_of(out)
    assert_same_run(trace, trace_of(tmp_path / "alone"), within=1e-5)
    starts = [row["step"] for row in trace if row["first_after_start"]]
    assert len(starts) == 2, "the controller was killed too late"
    assert_reported_once(reports, 40, starts[1])


@ray.remote(num_cpus=0)
class Reserving:
    """What a controller does before its workers start."""

    def reserve(self) -> int:
        ray.get(placement_group([{"CPU": 1}]).ready())
        return os.getpid()


def test_what_a_dead_controller_has_reserved_is_given_back() -> None:
    """It dies before a worker can tell of the group: else the next workers' reading tasks wait for its CPUs forever."""
    free, actor = ray.available_resources()["CPU"], Reserving.remote()
    os.kill(ray.get(actor.reserve.remote()), signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.reserve.remote())
    give_reservations_back()
    wait_until(lambda: ray.available_resources().get("CPU") == free)


def test_a_loss_that_is_not_finite_is_not_tried_again(tokens: Place, tmp_path: Path) -> None:
    run_here(spec_of(tokens, tmp_path / "good", stop_after=3))
    spoil(tmp_path / "good" / "checkpoint")
    setup = replace(setup_of(spec_of(tokens, tmp_path)), resume=Place(str(tmp_path / "good")))
    with pytest.raises(NonFiniteLoss, match=r"^step 3: .* not finite"):
        train_on_ray(setup, Place(str(tmp_path / "out")), workers=1, use_gpu=False, log=lambda done, values: None)


def test_gpus_that_are_not_there_are_refused(tokens: Place, tmp_path: Path) -> None:
    setup = setup_of(spec_of(tokens, tmp_path))
    with pytest.raises(UserError, match=r"1 workers of a training .* need a GPU each, and the cluster has 0"):
        train_on_ray(setup, Place(str(tmp_path)), workers=1, use_gpu=True, log=lambda done, values: None)


@pytest.fixture
def mailboxes() -> Iterator[None]:
    yield
    psutil.wait_procs(ray_processes("ray::Mailbox"))  # the actor of a closed channel ends


@ray.remote(num_cpus=0)
def push_numbers(channel: Channel, source: str, numbers: range) -> None:
    for number in numbers:
        channel.push((source, number))


def test_every_event_is_delivered_in_order(mailboxes: None) -> None:
    seen: list[tuple[str, int]] = []
    with Channel.open() as channel:
        with channel.forwarding(seen.append, every_s=0.01):
            ray.get([push_numbers.remote(channel, name, range(200)) for name in "ab"])
            channel.push(("driver", 0))
        assert channel.drain() == []
    assert seen[-1] == ("driver", 0)
    for name in "ab":
        assert [number for source, number in seen if source == name] == list(range(200))


def test_the_death_of_the_actor_loses_what_it_holds_and_ends_nothing(mailboxes: None) -> None:
    with Channel.open() as channel:
        channel.push(("lost", 0))
        for process in list(ray_processes("ray::Mailbox")):
            process.kill()
            process.wait()
        ray.get(push_numbers.remote(channel, "a", range(50)))
        assert channel.drain() == [("a", number) for number in range(50)]


def test_a_push_to_a_closed_channel_is_one_warning_and_no_error(mailboxes: None, caplog) -> None:
    with Channel.open() as channel:
        pass
    for number in range(3):
        channel.push(number)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "the work goes on" in warning


def test_an_event_that_the_driver_cannot_take_is_left_out_alone(mailboxes: None, caplog) -> None:
    seen = []
    with Channel.open() as channel, channel.forwarding(lambda number: seen.append(1 / number), every_s=0.01):
        for number in (1, 0, 2):
            channel.push(number)
    assert seen == [1, 0.5]
    assert "a report is left out" in caplog.text


PASSAGES = EncodeConfig(side="passages")
CONFIG = SearchConfig(depth=25)
KINDS = {"dense": ("dense",), "hybrid": ("dense", "lexical")}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_all(Place(f"file://{tmp_path_factory.mktemp('collection')}"))


@pytest.fixture
def pooled(tmp_path: Path) -> Place:
    return Place(f"file://{tmp_path}/pooled")


def files(out: Place) -> dict[str, bytes]:
    return contents(Path(out.uri.removeprefix("file://")))


def untimed(result: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in result.items() if name not in ("seconds", "query_seconds")}


def test_actors_write_the_files_of_one_process(inputs, tmp_path: Path, pooled: Place):
    alone = Place(f"file://{tmp_path}/alone")
    vectors, same = encoded(inputs, alone), encoded(inputs, pooled, partial(pool.encode, actors=2))
    for name in ("passages", "queries"):
        assert files(same[name].place) == files(vectors[name].place)
        assert untimed(same[name].result) == untimed(vectors[name].result)
    expected = search(CONFIG, vectors, alone / "search")
    assert untimed(pool.search(CONFIG, vectors, pooled / "search", actors=2)) == untimed(expected)
    assert files(pooled / "search") == files(alone / "search")


def test_with_an_index_any_number_of_actors_finds_what_one_process_finds(inputs, tmp_path: Path):
    """More actors than one hold the same index and share the blocks of queries."""
    root = Place(f"file://{tmp_path}")
    config = SearchConfig(depth=25, index="IVF16,Flat", nprobe=2)
    vectors = with_index(encoded(inputs, root / "vectors"), root, IndexConfig(index="IVF16,Flat"), config)
    expected = search(config, vectors, root / "alone")
    assert untimed(pool.search(config, vectors, root / "pooled", actors=2)) == untimed(expected)
    assert files(root / "pooled") == files(root / "alone")


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
            words_NV = draw.integers(-1, 3, (block.rows, 30))
            lexical_NV = (words_NV * (draw.random((block.rows, 30)) < 0.2)).astype(np.float32)
            own = {"dense": dense_ND, "lexical": lexical_NV}
            rows = top_rows(lexical_NV, None) if "lexical" in KINDS[kind] else None
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
def test_one_and_two_actors_equal_brute_force_with_exact_ties(inputs, tmp_path: Path, kind: str):
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


def test_bm25_is_built_and_searched_by_the_cluster_as_by_one_process(inputs, tmp_path: Path):
    root = Place(f"file://{tmp_path}")
    alone = bm25_index(inputs["corpus"], root / "alone")
    spread = {"counts": partial(run_sharded, BM25_WORDS, actors=2), "index": partial(run_sharded, BM25_INDEX, actors=2)}
    words = made(spread["counts"], Bm25WordsConfig(), {"corpus": inputs["corpus"]}, root / "words")
    index = made(spread["index"], Bm25IndexConfig(), {"words": words}, root / "index")
    assert files(words.place) == files(root / "alone" / "words")
    assert (files(index.place), index.result) == (files(alone.place), alone.result)
    config, given = Bm25Config(splits=("train",), depth=25), {"corpus": inputs["corpus"], "index": index}
    expected = rank_with_bm25(config, given, root / "by one")
    assert pool.rank_with_bm25(config, given, root / "by two", actors=2) == expected
    assert files(root / "by two") == files(root / "by one")
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


def test_an_encoder_killed_in_the_middle_is_made_again_and_encodes_nothing_twice(inputs, tmp_path: Path):
    alone = Place(str(tmp_path / "alone"))
    encoding.encode(PASSAGES, inputs, alone)
    pooled, killer = run_with_a_kill(
        lambda out: pool.encode(PASSAGES, inputs, out, actors=2), "Encode", "dense/*.npy", tmp_path / "pooled"
    )
    assert files(pooled) == files(alone)
    assert {path: path.stat().st_mtime_ns for path in killer.files} == killer.files


def test_a_searcher_killed_in_the_middle_is_made_again_and_the_list_is_the_same(inputs, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(
        "midmask.retrieve.searched_queries.QUERY_BLOCK", 1
    )  # thirty query blocks, so that there is a middle
    vectors = encoded(inputs, Place(str(tmp_path)))
    search(CONFIG, vectors, Place(str(tmp_path / "alone")))
    pooled, _ = run_with_a_kill(
        lambda out: pool.search(CONFIG, vectors, out, actors=2), "SearchWorker", "partial/*", tmp_path / "pooled"
    )
    assert files(pooled) == files(Place(str(tmp_path / "alone")))


def test_a_pool_that_can_never_start_is_refused_with_the_sum(inputs, pooled: Place, tmp_path: Path):
    with pytest.raises(UserError, match=r"actors = 3, threads = 1: 3 x 1 = 3 CPUs .* cluster has 2 = 2"):
        pool.encode(PASSAGES, inputs, pooled, actors=3)
    vectors = encoded(inputs, Place(str(tmp_path)))
    with pytest.raises(UserError, match=r"1 x 3 = 3 CPUs .*room for 0 such actors"):
        pool.search(CONFIG.model_copy(update={"threads": 3}), vectors, pooled, actors=1)
    assert pooled.names() == []
