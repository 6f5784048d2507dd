"""Tracked runs -> rows: one per evaluated run, corpus and split; also trials of sweeps, and per-query values.

A run that carries measures is a system that was evaluated. Cached runs repeat another run and make no row. Runs that
have not finished are listed apart, never ranked. What a run does not tell (an older run's protocol, its costs) is empty
here, never guessed. Per-query values are artifacts, and may lie on another machine: they are read once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

import ir_measures
import pyarrow as pa
import pyarrow.parquet as pq

from midmask.tracking.names import (
    JOB_STEPS,
    collection_key,
    is_measure,
    made_here_key,
    measure_of,
    queries_key,
)
from midmask.tracking.reading import TrackedRow, artifact_file

FAVOURITES = ("nDCG@10", "RR@10", "R@10", "R@100", "R@1000", "AP@1000")
"""Measures in the order in which this field's tables print them; others follow by name."""

SHORTEST = 4
"""Letters of a fingerprint that tell collections of one short name apart; more where these are equal."""


class CollectionSplit(NamedTuple):
    """A set of queries over a collection; values are comparable only where all of it is equal."""

    corpus: str  # short name; two collections may share it
    split: str
    collection: str = ""  # the collection's fingerprint; empty if it is not known
    queries: int = 0  # how many queries the values are means of; 0 if that is not known


@dataclass(frozen=True)
class LeaderboardRow:
    """The run of an evaluated system, with its measures on one split."""

    run: TrackedRow
    place: CollectionSplit
    measures: Mapping[str, float]  # ir-measures name -> value in [0, 1]

    def tag(self, name: str) -> str:
        """The run's tag `midmask.NAME`; empty if it has none."""
        return self.run.tags.get(f"midmask.{name}", "")

    @property
    def recipe(self) -> str:
        return self.tag("recipe") or self.run.name

    @property
    def seed(self) -> str:
        """The seed that repeated runs of a system differ in; empty without one."""
        return self.tag("seed") or _seed(self.run)

    @property
    def trial(self) -> bool:
        """Whether it is a sweep's trial, not a system that was evaluated for itself."""
        return self.tag("step") == "trial"

    @property
    def split_made_here(self) -> bool:
        """Whether midmask drew the split, since the collection has none of its own."""
        return self.run.tags.get(made_here_key(self.place.corpus, self.place.split)) == "true"


def rows(runs: Iterable[TrackedRow]) -> list[LeaderboardRow]:
    """One row per finished run, corpus and split that has measures, in the order of the runs; none for a job's run,
    whose measures are those of a run nested in it.
    """
    return [
        LeaderboardRow(run, _place(run, corpus, split), values)
        for run in runs
        if run.status == "finished" and run.tags.get(STEP) not in JOB_STEPS
        for (corpus, split), values in measured(run).items()
    ]


def unfinished(runs: Iterable[TrackedRow]) -> list[TrackedRow]:
    """Runs that are being written, failed or were killed. A pruned trial is none: it ended as its sweep wanted."""
    return [run for run in runs if run.status not in ("finished", "cached", "pruned")]


def measure_names(leaderboard_rows: Iterable[LeaderboardRow]) -> list[str]:
    """Every measure of these rows, the field's favourites first."""
    names = {name for row in leaderboard_rows for name in row.measures}
    return [name for name in FAVOURITES if name in names] + sorted(names - set(FAVOURITES))


def place_names(places: Iterable[CollectionSplit]) -> dict[CollectionSplit, str]:
    """Place -> its name: `squad dev`, or `pydocs (3f2a, 1,204 queries) dev` where several collections, or
    several sets of queries of one, share the short name. In the order given.
    """
    unique = list(dict.fromkeys(places))
    return {place: f"{place.corpus}{_told_apart(place, unique)} {place.split}" for place in unique}


def _told_apart(place: CollectionSplit, known: Iterable[CollectionSplit]) -> str:
    alike = [peer for peer in known if peer.corpus == place.corpus]
    collections = {peer.collection for peer in alike}
    if len(collections) == 1 and sum(peer.split == place.split for peer in alike) == 1:
        return ""
    others = [peer for peer in collections if peer != place.collection]
    length = next(
        size for size in range(SHORTEST, 65) if all(peer[:size] != place.collection[:size] for peer in others)
    )
    parts = [place.collection[:length] or "collection not known"]
    parts += [f"{place.queries:,} queries"] if place.queries else []
    return f" ({', '.join(parts)})"


def measured(run: TrackedRow) -> dict[tuple[str, str], dict[str, float]]:
    """(corpus, split) -> measure -> value. A key of three segments whose last is no measure is another metric."""
    by_place: dict[tuple[str, str], dict[str, float]] = {}
    for key, value in run.metrics.items():
        if (place := _measure(key)) is not None:
            corpus, split, measure = place
            by_place.setdefault((corpus, split), {})[measure] = value
    return by_place


def _place(run: TrackedRow, corpus: str, split: str) -> CollectionSplit:
    collection, queries = run.tags.get(collection_key(corpus), ""), run.tags.get(queries_key(corpus, split), 0)
    return CollectionSplit(corpus, split, collection, int(queries))


@cache
def _measure(key: str) -> tuple[str, str, str] | None:
    """(corpus, split, measure) of a metric's key; thousands of runs share a few keys, and parsing one takes long."""
    if not is_measure(key):
        return None
    corpus, split, measure = measure_of(key)
    try:
        ir_measures.parse_measure(measure)
    except (NameError, ValueError, SyntaxError, TypeError):
        return None
    return corpus, split, measure


def _seed(run: TrackedRow) -> str:
    """The last fine-tuning stage's seed."""
    stages = sorted(path for path in run.params if path.startswith("stages.") and path.endswith(".train.seed"))
    return run.params[stages[-1]] if stages else ""


STEP = "midmask.step"


def sweeps(runs: Sequence[TrackedRow]) -> list[TrackedRow]:
    """Runs of sweeps, in the order of the runs."""
    return [run for run in runs if run.status != "cached" and run.tags.get(STEP) == "sweep"]


def resolve_cached(runs: Sequence[TrackedRow]) -> list[TrackedRow]:
    """Replaces each cached run by the finished run that it links to; keeps the cached run's parent."""
    by_id = {run.run_id: run for run in runs}
    resolved = []
    for run in runs:
        source = by_id.get(run.tags.get("midmask.cached_run", ""))
        resolved.append(replace(source, parent_id=run.parent_id) if run.status == "cached" and source else run)
    return resolved


KEPT = 512
"""Tables in memory; one of 7,000 queries and three measures takes about a megabyte."""

PerQueryOf = Callable[[LeaderboardRow], pa.Table | None]
"""A row -> its table (query_id, measure, value), None if its run keeps none."""


@cache
def per_query_files(uri: str) -> PerQueryOf:
    """Values per query from the files of a store's runs. Raises UserError if the store at `uri` does not answer."""

    @lru_cache(KEPT)
    def read(run_id: str, corpus: str, split: str) -> pa.Table | None:
        path = artifact_file(uri, run_id, f"per_query/{corpus}.{split}.parquet")
        return None if path is None else pq.read_table(path)

    return lambda row: read(row.run.run_id, row.place.corpus, row.place.split)
