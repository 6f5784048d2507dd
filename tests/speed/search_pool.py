"""The search pool against one warm faiss index in this process with as many threads; and the memory of a large corpus.

    python -m tests.speed.search_pool [--passages 113000] [--width 256] [--queries 10000] [--cpu-time]
    python -m tests.speed.search_pool --memory-of 1000000

Vectors around one mean, as encoders give them. The pool's time is from its actors' having loaded and searched once to
the ranked list on disk, which faiss does not write: it returns positions and float32 scores in memory. With --cpu-time
(for a busy machine) both shards are searched in turn in this process by one thread, and processor time is counted.

--memory-of searches so many vectors of width 64 in a process of its own, and prints how far its resident memory rises
above that of the libraries, in all and without file pages that the system may drop (Linux).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from midmask.artifact import Artifact, Place
from midmask.retrieve.blocks import QUERY_BLOCK, SELECTION
from midmask.retrieve.search import Search, SearchConfig, SearchWorker
from midmask.retrieve.views import Views
from tests.speed.own_ray import start_ray

GOAL, ROWS, ACTORS = 1.05, 2048, 2
MEBIBYTE = 1 << 20


def write_vectors(root: Path, passages: int, queries: int, width: int) -> dict[str, Artifact]:
    """Encodings of made-up texts, block by block."""
    draw = np.random.default_rng(0)
    mean_D = draw.standard_normal(width).astype(np.float32)
    found = {}
    for name, count, rows in (("passages", passages, ROWS), ("queries", queries, QUERY_BLOCK)):
        place = Place(str(root / name))
        for number, at in enumerate(range(0, count, rows)):
            spread_ND = draw.standard_normal((min(rows, count - at), width)).astype(np.float32)
            Views(mean_D + 0.5 * spread_ND, None).write(place, f"{number:05d}")
        result = {"views": ["dense"], "model": "m", "tokens": "t", "rows": count, "split": "dev"}
        found[name] = Artifact(place, {"fingerprint": name, "result": result})
    (root / "tokens" / "passages").mkdir(parents=True)
    ids = pa.table({"doc_id": [f"{(row * 7919) % 9_999_991:07d}" for row in range(passages)]})
    pq.write_table(ids, root / "tokens" / "passages" / "00000.parquet", row_group_size=ROWS)
    names = pa.table({"query_id": [f"{row:06d}" for row in range(queries)]})
    pq.write_table(names, root / "queries" / SELECTION, row_group_size=QUERY_BLOCK)
    return {**found, "tokens": Artifact(Place(str(root / "tokens")), {"fingerprint": "t"})}


def faiss_search(inputs: dict[str, Artifact], depth: int, threads: int) -> Callable[[], object]:
    import faiss

    parts = {
        name: [np.load(file) for file in sorted(Path(inputs[name].place.uri, "dense").iterdir())]
        for name in ("passages", "queries")
    }
    queries_QD = np.concatenate(parts["queries"])
    index = faiss.IndexFlatIP(queries_QD.shape[1])
    for block in parts["passages"]:
        index.add(block)
    faiss.omp_set_num_threads(threads)
    index.search(queries_QD[:QUERY_BLOCK], depth)
    return lambda: index.search(queries_QD, depth)


def timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def in_turn(work: Search, clock: Callable[[], float]) -> float:
    shards = work.shards(ACTORS)
    workers = [SearchWorker(work, shard) for shard in shards]
    for worker in workers:
        worker.search(0)
    work.partial(shards[0], 0).delete()
    work.partial(shards[1], 0).delete()

    def searched() -> Iterator[int]:
        for block in range(work.begin()):
            for worker in workers:
                worker.search(block)
            yield block

    return timed(lambda: work.finish(shards, searched()), clock)


def pooled(work: Search) -> float:
    from midmask.backend.pool import actor_pool, deal, met_by_all

    shards, blocks = work.shards(ACTORS), work.begin()
    with actor_pool(SearchWorker, [(work, shard) for shard in shards], work.config.threads) as actors:
        methods = [actor.search for actor in actors]
        list(deal(methods, [deque([0]) for _ in shards]))
        work.partial(shards[0], 0).delete()
        work.partial(shards[1], 0).delete()

        def run() -> None:
            dealt = deal(methods, [deque(range(blocks)) for _ in shards])
            work.finish(shards, met_by_all(dealt, ACTORS))

        return timed(run, time.perf_counter)


def compare(options: argparse.Namespace, root: Path) -> None:
    inputs = write_vectors(root, options.passages, options.queries, options.width)
    work = Search(SearchConfig(depth=options.depth), inputs, Place(str(root / "out")))
    if options.cpu_time:
        ours, theirs = [], []
        alone = faiss_search(inputs, options.depth, 1)
        for _ in range(options.rounds):
            theirs.append(timed(alone, time.process_time))
            ours.append(in_turn(work, time.process_time))
    else:
        start_ray(ACTORS)
        ours, theirs = [], []
        alone = faiss_search(inputs, options.depth, ACTORS)
        for _ in range(options.rounds):
            theirs.append(timed(alone, time.perf_counter))
            ours.append(pooled(work))
        ray.shutdown()
    ratio = float(np.median(ours) / np.median(theirs))
    print(f"pool {np.median(ours):.2f} s, faiss {np.median(theirs):.2f} s: ratio {ratio:.2f} (goal {GOAL})")


def resident(mark: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{mark}:")) * 1024


def memory_in_this_process(root: Path) -> None:
    """The measured process's work: one shard, as `search` has it."""
    import faiss  # noqa: F401

    inputs = {
        name: Artifact(Place(str(root / name)), record)
        for name, record in json.loads((root / "all").read_text()).items()
    }
    Path("/proc/self/clear_refs").write_text("5")
    before, own = resident("VmRSS"), resident("RssAnon")
    highest: list[int] = []
    work = Search(SearchConfig(depth=100), inputs, Place(str(root / "out")))
    worker = SearchWorker(work, work.shards(1)[0])
    for block in range(work.begin()):
        worker.search(block)
        highest.append(resident("RssAnon") - own)
    print(json.dumps([resident("VmHWM") - before, max(highest)]))


def memory(passages: int, root: Path) -> None:
    inputs = write_vectors(root, passages, QUERY_BLOCK, 64)
    (root / "all").write_text(json.dumps({name: artifact.record for name, artifact in inputs.items()}))
    command = [sys.executable, "-m", "tests.speed.search_pool", "--measured", str(root)]
    peak, own = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    size = passages * 64 * 4
    print(
        f"{passages:,} vectors of width 64 are {size / MEBIBYTE:.0f} MiB; searching them takes at most "
        f"{peak / MEBIBYTE:.0f} MiB ({peak / size:.2f} times), {own / MEBIBYTE:.0f} MiB without file pages"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"passages": 113_000, "width": 256, "queries": 10_000, "depth": 200, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--memory-of", type=int, metavar="PASSAGES")
    parser.add_argument("--measured", metavar="FOLDER", help="used by the script itself: the process that is measured")
    options = parser.parse_args()
    if options.measured:
        memory_in_this_process(Path(options.measured))
        return
    with tempfile.TemporaryDirectory() as name:
        if options.memory_of:
            memory(options.memory_of, Path(name))
        else:
            compare(options, Path(name))


if __name__ == "__main__":
    main()
