"""Rows -> entries: a system is one entry, however many seeds it was trained with.

Two runs are seeds of one system if every setting that changes a result is the same but for the seeds of trainings. What
only changes how fast a result comes (micro-batches, threads, …) does not tell systems apart. Of several runs with the
same seeds (an older commit, another machine) the newest counts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import NamedTuple

from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow
from midmask.leaderboard.settings import said

LABELS = ("recipe", "pretrain_on", "representation", "protocol", "backbone")
"""Fields of a row that name its system; what else differs is told in the entry's note."""

SEEDS = ("pretrain.seed", "train.seed")
WITHOUT_EFFECT = (
    *("corpus.bad_rows_threshold", "generate.batch_size", "micro_batch", "memory_gib", "threads", "actors"),
    *("recompute", "log_every", "health_every", "probe_every", "checkpoint_every", "evaluation.split"),
)
"""Ends of the dotted paths that tell no two systems apart: runtime fields, and which split was looked at."""

LONGEST_NOTE = 3
"""Settings that a note tells; of more, it says how many."""


@dataclass(frozen=True)
class Value:
    """A measure of an entry: the mean over its seeds, and their standard deviation, None for a single seed."""

    mean: float
    spread: float | None
    seeds: int


@dataclass(frozen=True)
class Entry:
    """One system. `note` tells the settings in which it differs from others of the same labels, empty if there is none;
    `rows` holds one row per seed for every place where it was evaluated.
    """

    recipe: str
    pretrain_on: str
    representation: str
    protocol: str
    backbone: str
    note: str
    trial: bool
    started: datetime
    rows: Mapping[CollectionSplit, tuple[LeaderboardRow, ...]]

    @property
    def name(self) -> str:
        """All that tells it from every other entry, in one line."""
        parts = [getattr(self, field) for field in LABELS]
        return " · ".join(part for part in (*parts, self.note, "trial" if self.trial else "") if part)

    def value(self, place: CollectionSplit, measure: str) -> Value | None:
        found = [row.measures[measure] for row in self.rows.get(place, ()) if measure in row.measures]
        if not found:
            return None
        mean = math.fsum(found) / len(found)  # the statistics module takes ten times as long, and boards are large
        squares = math.fsum((value - mean) ** 2 for value in found)
        return Value(mean, math.sqrt(squares / (len(found) - 1)) if len(found) > 1 else None, len(found))

    def cost(self, name: str, places: Iterable[CollectionSplit]) -> float | None:
        """The mean of a cost over the runs that were evaluated at one of these places; None if none tells it."""
        runs = {row.run_id: row for place in places for row in self.rows.get(place, ())}
        found = [row.costs[name] for row in runs.values() if name in row.costs]
        return math.fsum(found) / len(found) if found else None

    def runs(self, places: Iterable[CollectionSplit]) -> dict[str, LeaderboardRow]:
        """Run id -> a row of it, for the runs at these places."""
        return {row.run_id: row for place in places for row in self.rows.get(place, ())}


class _System(NamedTuple):
    """What rows of one entry share."""

    labels: tuple[str, ...]
    trial: bool
    settings: frozenset[tuple[str, str]]


def entries(found: Iterable[LeaderboardRow]) -> list[Entry]:
    """The systems of these rows, in the order in which they first appear. `found` is newest first."""
    grouped: dict[_System, dict[CollectionSplit, dict[str, LeaderboardRow]]] = {}
    known: dict[str, tuple[_System, str]] = {}
    for row in found:
        if row.run_id not in known:  # a run may have a row for many splits
            known[row.run_id] = _System(_labels(row), row.trial, _settings(row)), _seeds(row)
        system, seeds = known[row.run_id]
        grouped.setdefault(system, {}).setdefault(row.place, {}).setdefault(seeds, row)
    notes = _notes(grouped)
    return [_entry(system, places, notes[system]) for system, places in grouped.items()]


def baselines(
    found: Iterable[Entry], recipe: str, place: CollectionSplit, measure: str
) -> dict[tuple[str, ...], Entry]:
    """`kind` -> the best entry of the recipe `recipe` at this place."""
    highest: dict[tuple[str, ...], tuple[float, Entry]] = {}
    for entry in found:
        value = entry.value(place, measure) if entry.recipe == recipe else None
        if value is not None and value.mean > highest.get(kind(entry), (-1.0, entry))[0]:
            highest[kind(entry)] = value.mean, entry
    return {key: entry for key, (_, entry) in highest.items()}


def kind(entry: Entry) -> tuple[str, ...]:
    """What a system and the baseline that its gain is counted from have in common."""
    return entry.representation, entry.protocol, entry.backbone


def gain_per_hour(entry: Entry, baseline: Entry | None, place: CollectionSplit, measure: str) -> float | None:
    """Points of the measure (hundredths) gained over the baseline per hour of the entry's trainings, by the clock;
    None without a baseline, for the baseline itself, and where hours or values are not known.
    """
    seconds = entry.cost("train_seconds", [place])
    own, base = entry.value(place, measure), baseline.value(place, measure) if baseline else None
    if entry is baseline or not seconds or own is None or base is None:
        return None
    return 100 * (own.mean - base.mean) / (seconds / 3600)


def _entry(system: _System, places: Mapping[CollectionSplit, Mapping[str, LeaderboardRow]], note: str) -> Entry:
    rows = {place: tuple(row for _, row in sorted(own.items())) for place, own in places.items()}
    started = max(row.started for own in rows.values() for row in own)
    recipe, pretrain_on, representation, protocol, backbone = system.labels
    return Entry(
        recipe, pretrain_on, representation, protocol, backbone, note, trial=system.trial, started=started, rows=rows
    )


def _labels(row: LeaderboardRow) -> tuple[str, ...]:
    return (row.recipe or row.name, *(getattr(row, field) for field in LABELS[1:]))


def _settings(row: LeaderboardRow) -> frozenset[tuple[str, str]]:
    """What tells a system from others. BM25 learns nothing: it bears the params of the recipe it was held against."""
    is_bm25 = _is_bm25(row)
    return frozenset(
        (path, value)
        for path, value in row.params.items()
        if field_kind(path) == "setting" and (not is_bm25 or path.startswith("corpus."))
    )


def _is_bm25(row: LeaderboardRow) -> bool:
    """Whether it is midmask's own BM25; a run file of another tool may bear the same name."""
    return row.recipe.lower() == "bm25" and row.representation in ("", "bm25")


def _seeds(row: LeaderboardRow) -> str:
    """The seeds of the trainings, as text that sorts by them; the row's own seed where the params tell none."""
    if _is_bm25(row):
        return ""
    found = [value.rjust(6) for path, value in sorted(row.params.items()) if field_kind(path) == "seed"]
    return " ".join(found) or row.seed.rjust(6)


@cache
def field_kind(path: str) -> str:
    if _ends_in(path, SEEDS):
        return "seed"
    return "without effect" if _ends_in(path, WITHOUT_EFFECT) else "setting"


def _ends_in(path: str, names: Iterable[str]) -> bool:
    return any(f".{path}".endswith(f".{name}") for name in names)


def _notes(systems: Iterable[_System]) -> dict[_System, str]:
    """The settings that not all systems of the same labels share; a number where that leaves two of them alike."""
    alike: dict[tuple[str, ...], list[_System]] = {}
    for system in systems:
        alike.setdefault(system.labels, []).append(system)
    notes: dict[_System, str] = {}
    for found in alike.values():
        shared = frozenset.intersection(*(one.settings for one in found))
        told = Counter[tuple[bool, str]]()
        for one in found:
            note = _note(one.settings - shared)
            told[one.trial, note] += 1
            notes[one] = f"{note} #{told[one.trial, note]}" if told[one.trial, note] > 1 else note
    return notes


def _note(differing: frozenset[tuple[str, str]]) -> str:
    told = said(differing)
    more = [f"{len(told) - LONGEST_NOTE} more"] if len(told) > LONGEST_NOTE else []
    return ", ".join(told[:LONGEST_NOTE] + more)
