"""Systems of one collection and split that can be compared query by query, their seeds joined, and which come first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from midmask.leaderboard.entries import LABELS, Entry, kind
from midmask.leaderboard.marks import PerQueryOf, has_measure, seed_tables
from midmask.leaderboard.rows import CollectionSplit

MOST = 60
"""Systems whose per-query values are read, the newest; of more, their files would take long to open."""

BASELINES = ("none", "bm25")
"""Recipes that are a sensible baseline, the first that is there."""


@dataclass(frozen=True)
class ComparableSystems:
    """What can be compared on one measure.

    entries: short name -> system, newest first. tables: short name -> one table (query_id, measure, value) per seed.
    without: short names of systems of which a seed keeps no values per query. unread: how many older ones were not
    looked at.
    """

    entries: Mapping[str, Entry]
    tables: Mapping[str, Sequence[pa.Table]]
    without: tuple[str, ...]
    unread: int

    def baseline(self) -> str:
        """A system of the recipe `none`, else of BM25, else the oldest of all. Of several, that whose representation,
        protocol and backbone most systems share, the newest of those.
        """
        kinds = Counter(map(kind, self.entries.values()))
        for recipe in BASELINES:
            if found := [name for name, entry in self.entries.items() if entry.recipe.lower() == recipe]:
                return max(found, key=lambda name: kinds[kind(self.entries[name])])
        return min(self.entries, key=lambda name: self.entries[name].started)

    def others(self, place: CollectionSplit, measure: str, baseline: str) -> list[str]:
        """The systems beside the baseline: those of its representation, protocol and backbone first, of these that of
        the highest mean.
        """
        means = {name: value.mean for name, entry in self.entries.items() if (value := entry.value(place, measure))}
        own = kind(self.entries[baseline])
        return sorted(means.keys() - {baseline}, key=lambda name: (kind(self.entries[name]) != own, -means[name], name))


def comparable(found: Sequence[Entry], place: CollectionSplit, measure: str, values: PerQueryOf) -> ComparableSystems:
    """The systems that were evaluated at this place with this measure; trials of sweeps after the others.

    Raises:
        UserError: if the store does not answer.
    """
    here = [entry for entry in found if entry.value(place, measure)]
    here.sort(key=lambda entry: (entry.trial, -entry.started.timestamp()))
    known = {name: _tables(entry, place, measure, values) for name, entry in short_names(here[:MOST]).items()}
    entries = {name: entry for name, entry in short_names(here[:MOST]).items() if known[name]}
    tables = {name: known[name] for name in entries}
    return ComparableSystems(entries, tables, tuple(known.keys() - tables.keys()), max(0, len(here) - MOST))


def short_names(found: Sequence[Entry]) -> dict[str, Entry]:
    """Recipe and what tells systems of that recipe apart -> system, in the order given."""
    alike: dict[str, list[Entry]] = {}
    for entry in found:
        alike.setdefault(entry.recipe, []).append(entry)
    fields = {
        recipe: [name for name in (*LABELS[1:], "note") if len({getattr(entry, name) for entry in own}) > 1]
        for recipe, own in alike.items()
    }
    names: dict[str, Entry] = {}
    for entry in found:
        parts = [entry.recipe, *(getattr(entry, name) for name in fields[entry.recipe]), "trial" if entry.trial else ""]
        name = " · ".join(filter(None, parts))
        names[entry.name if name in names else name] = entry
    return names


def _tables(entry: Entry, place: CollectionSplit, measure: str, values: PerQueryOf) -> list[pa.Table]:
    """One table per seed; none at all if a seed has no values of the measure."""
    found = seed_tables(entry, place, values)
    return found if all(has_measure(table, measure) for table in found) else []
