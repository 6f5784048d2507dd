"""BM25 by shards: memory of the build against bm25s over the whole collection, and two workers against one.

    python -m tests.speed.bm25_shards                 memory at 20,000 passages of the wiki set and at all of it
    python -m tests.speed.bm25_shards --search [--copies 9] [--queries 2048] [--rounds 3]

Memory: each build runs in a process of its own, whose USS (memory that is nobody else's) is read every 20 ms; measured
is how far its peak rises above that of the libraries. Python lists of all words, given to bm25s, are the way without
shards.

Search: questions of SQuAD over the index of the wiki set, whose shards are there so many times (9: a million passages).
Actors are opened and have searched once before the clock runs, one and two of them in turn. On a busy machine the ratio
of the clock says little, so the same search is also done in this process, and its processor time counted: of all
shards, and of the slower half; neither with the merge of the lists.
"""

import argparse
import gzip
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Artifact, Place
from midmask.corpora import CorpusConfig, prepare
from midmask.retrieve.bm25 import Bm25Config, Bm25Search, Bm25Worker
from midmask.retrieve.bm25_index import BM25_INDEX, Bm25IndexConfig
from midmask.retrieve.bm25_words import BM25_WORDS, Bm25WordsConfig
from tests.speed.own_ray import start_ray
from tests.support.retrieve.bm25 import WholeBm25, bm25_index, passages_of

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SIZES = (20_000, 200_000)
"""The first passages; the wiki set has fewer than the larger number."""

GOAL = 1.7
MEBIBYTE = 1 << 20


def prepare_corpus(folder: Path, passages: int) -> int:
    """Reads the first passages of the wiki set; the number that are left without exact copies."""
    source = folder / "beir"
    source.mkdir(parents=True)
    with gzip.open(DATA / "wiki" / "corpus.jsonl.gz", "rb") as lines, open(source / "corpus.jsonl", "wb") as target:
        target.writelines(itertools.islice(lines, passages))
    found: int = prepare(CorpusConfig(name=f"beir:{source}"), {}, Place(str(folder / "corpus")))["passages"]
    return found


def build_in_this_process(folder: Path, way: str) -> None:
    """The measured process: prints a line when its libraries are there, and when the index is."""
    corpus = Artifact(Place(str(folder / "corpus")), {"fingerprint": "corpus", "result": {}})
    WholeBm25(["some words"])
    print("ready", flush=True)
    if way == "whole":
        WholeBm25(passages_of(corpus)[1])
    else:
        bm25_index(corpus, Place(str(folder)))
    print("done", flush=True)


def peak(folder: Path, way: str) -> int:
    """Bytes of USS that a build takes beside its libraries."""
    command = [sys.executable, "-m", "tests.speed.bm25_shards", "--build", way, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
        process = psutil.Process(run.pid)
        before = highest = process.memory_full_info().uss
        while run.poll() is None:
            try:
                highest = max(highest, process.memory_full_info().uss)
            except psutil.Error:
                break  # it has just ended
            time.sleep(0.02)
        if run.stdout.read() != "done\n":
            raise RuntimeError(f"the build of {folder} failed")
    return highest - before


def compare_memory(root: Path) -> None:
    counts, peaks = [], []
    for size in SIZES:
        folder = root / str(size)
        counts.append(prepare_corpus(folder, size))
        peaks.append({way: peak(folder, way) for way in ("whole", "shards")})
        told = ", ".join(f"{way} {found / MEBIBYTE:.0f} MiB" for way, found in peaks[-1].items())
        print(f"{counts[-1]:,} passages: {told}", flush=True)
    for way in ("whole", "shards"):
        more = (peaks[1][way] - peaks[0][way]) / (counts[1] - counts[0])
        print(f"{way}: {more:,.0f} bytes for each further passage")


def open_search(root: Path, copies: int, queries: int) -> Bm25Search:
    """Questions over an index whose shards are linked so many times; equal ids do not matter here."""
    prepare_corpus(root, SIZES[1])
    corpus = Artifact(Place(str(root / "corpus")), {"fingerprint": "corpus", "result": {}})
    words = BM25_WORDS(Bm25WordsConfig(), {"corpus": corpus}, Place(str(root / "words")))
    made = {"words": Artifact(Place(str(root / "words")), {"fingerprint": "words", "result": words})}
    place = Place(str(root / "index"))
    passages = BM25_INDEX(Bm25IndexConfig(), made, place)["passages"]
    names = (place / "ids").names()
    for copy, name in itertools.product(range(1, copies), names):
        again = f"{copy:02d}{name}"
        (place / "ids" / again).copy_from(place / "ids" / name)
        (place / "index" / again.replace(".parquet", ".arrow")).copy_from(
            place / "index" / name.replace(".parquet", ".arrow")
        )
    with gzip.open(DATA / "squad" / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, queries)]
    ids = [row["_id"] for row in rows]
    pq.write_table(pa.table({"query_id": ids, "text": [row["text"] for row in rows]}), root / "asked.parquet")
    asked = root / "asked"
    asked.mkdir()
    (root / "asked.parquet").rename(asked / "queries.parquet")
    judged = {
        "split": ["dev"] * len(ids),
        "query_id": ids,
        "doc_id": ids,
        "grade": pa.array([1] * len(ids), pa.int32()),
    }
    pq.write_table(pa.table(judged), asked / "qrels.parquet")
    index = Artifact(place, {"fingerprint": "index", "result": {"passages": passages * copies}})
    return Bm25Search(
        Bm25Config(depth=1000),
        {"corpus": Artifact(Place(str(asked)), {}), "index": index},
        Place(str(root / "out")),
    )


def timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def forget(work: Bm25Search, shards: Sequence[range], blocks: int) -> None:
    for some, block in itertools.product(shards, range(blocks)):
        work.partial(some, work.blocks[block]).delete()


def pooled(work: Bm25Search, actors: int) -> float:
    """Seconds by the clock, until the last block is searched by all actors."""
    from midmask.backend.pool import actor_pool, deal, met_by_all

    shards, blocks = work.shards(actors), work.begin()
    with actor_pool(Bm25Worker, [(work, some) for some in shards], 1, on_gpu=False) as pool:
        methods = [actor.search for actor in pool]
        list(deal(methods, [deque([0]) for _ in shards]))
        forget(work, shards, blocks)
        seconds = timed(
            lambda: list(met_by_all(deal(methods, [deque(range(blocks)) for _ in shards]), len(shards))),
            time.perf_counter,
        )
    forget(work, shards, blocks)
    return seconds


def processor_seconds(work: Bm25Search, some: range) -> float:
    """Of one worker, for all blocks."""
    worker, blocks = Bm25Worker(work, some), work.begin()
    worker.search(0)
    forget(work, [some], blocks)
    return timed(lambda: [worker.search(block) for block in range(blocks)], time.process_time)


def compare_search(options: argparse.Namespace, root: Path) -> None:
    work = open_search(root, options.copies, options.queries)
    passages = work.inputs["index"].result["passages"]
    print(f"{passages:,} passages, {options.queries:,} queries, {work.begin()} blocks", flush=True)
    start_ray(2)
    clock: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for actors, found in clock.items():
            found.append(pooled(work, actors))
    one, two = (float(np.median(found)) for found in clock.values())
    print(f"by the clock: one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} times (goal {GOAL})", flush=True)
    whole = processor_seconds(work, work.shards(1)[0])
    half = max(processor_seconds(work, some) for some in work.shards(2))
    pair = passages * options.queries
    print(
        f"by processor time: all shards {whole:.1f} s ({1e9 * whole / pair:.1f} ns for a passage and a query), "
        f"the slower half {half:.1f} s: {whole / half:.2f} times"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", action="store_true")
    for name, value in {"copies": 9, "queries": 2048, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--build", nargs=2, metavar=("WAY", "FOLDER"), help="used by the script itself")
    options = parser.parse_args()
    if options.build:
        build_in_this_process(Path(options.build[1]), options.build[0])
        return
    with tempfile.TemporaryDirectory(prefix="mm", dir="/tmp") as name:
        (compare_search if options.search else lambda _, root: compare_memory(root))(options, Path(name))


if __name__ == "__main__":
    main()
