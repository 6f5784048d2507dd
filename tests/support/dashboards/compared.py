"""A benchmark as jobs track it: four systems, three seeds, per-query values, costs. One pair of systems is a tie."""

import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midmask.leaderboard.board import Board, View, board_of
from midmask.leaderboard.entries import Entry, entries, marks_of
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, rows
from midmask.tracking.names import collection_key, metric_key, queries_key
from midmask.tracking.reading import TrackedRow
from midmask.tracking.runs import Tracker

QUERIES = [f"q{number:02d}" for number in range(60)]
SEEDS = (0, 1, 2)
LEVELS = {"dupmae": 0.62, "retromae": 0.61, "none": 0.45, "bm25": 0.30}
"""Mean of a system's values; queries differ by far more than the first two do, yet alike for all systems."""

HOURS = {"dupmae": 4.0, "retromae": 2.0, "none": 0.5, "bm25": 0.0}
MEASURES = ("nDCG@10", "RR@10")
COLLECTION = "c0ffee123456"
CELLS = [(system, seed) for system in LEVELS for seed in SEEDS if system != "bm25" or not seed]


def values(system: str, seed: int, measure: str) -> dict[str, float]:
    """query -> value, the same whenever it is asked for."""
    own = np.random.default_rng([sorted(LEVELS).index(system), seed, MEASURES.index(measure)])
    spread = np.linspace(-0.25, 0.25, len(QUERIES))
    return dict(zip(QUERIES, LEVELS[system] + spread + own.normal(0, 0.05, len(QUERIES)), strict=True))


def tags(system: str, seed: int, split: str = "dev") -> dict[str, str]:
    found = {
        **{"job": "benchmark_middle_training", "step": "evaluate", "recipe": system, "corpus": "squad"},
        **{"objective": "none" if system in ("none", "bm25") else system, "backbone": "tiny", "protocol": "in_batch"},
        **{"representation": "bm25" if system == "bm25" else "dense", "pretrain_on": "corpus", "seed": str(seed)},
        "fingerprint": f"{system}-{seed}",
    }
    evaluated = {collection_key("squad"): COLLECTION, queries_key("squad", split): str(len(QUERIES))}
    return {f"midmask.{name}": value for name, value in found.items()} | evaluated


def benchmark(tracker: Tracker, split: str = "dev") -> dict[tuple[str, int], str]:
    """(system, seed) -> the id of its run."""
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for system, seed in CELLS:
            run = tracker.run(f"evaluate-{system}-{seed}", tags=tags(system, seed, split), params=settings(seed))
            own = {measure: values(system, seed, measure) for measure in MEASURES}
            run.log({metric_key("squad", split, name): np.mean([*v.values()]) for name, v in own.items()}, 0)
            run.log({f"cost/{name}": value for name, value in costs(system).items()}, 0)
            path = Path(folder) / f"{system}.{seed}" / f"squad.{split}.parquet"
            path.parent.mkdir()
            pq.write_table(per_query(own), path)
            run.log_file(path, "per_query")
            run.finish()
            made[system, seed] = run.id
        tracker.find("none", step="none")  # waits until all is sent: the files go when this returns
    return made


def costs(system: str) -> dict[str, float]:
    found = {"train_seconds": 3600 * HOURS[system], "cpu_hours": 2 * HOURS[system], "gpu_hours": 0.0}
    return found | {"search_ms_per_query": 1.25} | ({} if system == "bm25" else {"bytes_per_passage": 512.0})


def per_query(own: dict[str, dict[str, float]]) -> pa.Table:
    rows = [(query, measure, value) for measure, found in own.items() for query, value in found.items()]
    return pa.table(dict(zip(("query_id", "measure", "value"), map(list, zip(*rows, strict=True)), strict=True)))


def tracked_rows(split: str = "dev") -> list[TrackedRow]:
    """The same runs without a store, newest first."""
    now = datetime(2026, 11, 21, tzinfo=UTC)
    found = []
    for system, seed in CELLS:
        means = {name: float(np.mean([*values(system, seed, name).values()])) for name in MEASURES}
        metrics = {metric_key("squad", split, name): mean for name, mean in means.items()}
        metrics |= {f"cost/{name}": value for name, value in costs(system).items()}
        params = {name: str(value) for name, value in settings(seed).items()}
        ids = (f"{system}-{seed}", "1", f"evaluate-{system}-{seed}", None, "finished")
        found.append(TrackedRow(*ids, now, now, tags(system, seed, split), params, metrics))
    return found


def settings(seed: int) -> dict[str, int]:
    """Params: one of a training's seed, one without effect, one that all share."""
    return {"stages.0.train.seed": seed, "stages.0.train.threads": seed + 1, "tokens.max_length": 48}


def evaluated(system, collection=COLLECTION, value=0.5, *, corpus="squad", split="dev", queries=60, **tags):
    """A system's one evaluation, with the settings of all others."""
    made = next(run for run in tracked_rows() if run.tags["midmask.recipe"] == system)
    own = {collection_key(corpus): collection, queries_key(corpus, split): str(queries), "midmask.corpus": corpus}
    own |= {f"midmask.{name}": text for name, text in tags.items()}
    run_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{system} {collection} {split} {queries}").hex
    return replace(made, run_id=run_id, metrics={metric_key(corpus, split, "nDCG@10"): value}, tags=made.tags | own)


def changed(run: TrackedRow, *, older: int = 0, **params: str) -> TrackedRow:
    """The run with other params (`__` for a dot), so many days older."""
    own = {name.replace("__", "."): value for name, value in params.items()}
    started = run.started - timedelta(days=older)
    return replace(run, run_id=f"{run.run_id}{own}", params=run.params | own, started=started)


def tagged(run: TrackedRow, **own: str) -> TrackedRow:
    """The run with other tags."""
    tags = {f"midmask.{name}": value for name, value in own.items()}
    return replace(run, run_id=f"{run.run_id}{own}", tags=run.tags | tags)


DEV = CollectionSplit("squad", "dev", COLLECTION, len(QUERIES))
SHOWN = {DEV: "squad dev"}


def per_query_of(row: LeaderboardRow) -> pa.Table:
    return per_query({name: values(row.recipe, int(row.seed), name) for name in MEASURES})


def view(**more: object) -> View:
    return replace(View(SHOWN, MEASURES), **more)  # type: ignore[arg-type]


def board(chosen: View, found: Sequence[Entry] | None = None) -> Board:
    found = entries(rows(tracked_rows())) if found is None else found
    return board_of(found, chosen, lambda shown: marks_of(shown, chosen.places, chosen.measures, per_query_of))
