"""Evaluated runs to choose from: how one is called on the pages and in their addresses."""

from collections import Counter
from collections.abc import Mapping, Sequence

import streamlit as st

from context import PageContext
from look import choice
from midmask.artifact import Place
from midmask.leaderboard.lineage import artifact_place
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, place_names
from midmask.tracking import TrackedRow


def name_of(row: LeaderboardRow) -> str:
    """One run in a line, unlike any other."""
    system = row.recipe or row.name
    seed = f"seed {row.seed.strip()}" if row.seed.strip() else ""
    more = (row.representation, row.pretrain_on, row.protocol, seed, row.run_id[:8])
    return " · ".join([system, *(part for part in more if part not in ("", "none", system))])


def choose_place(rows: Sequence[LeaderboardRow]) -> CollectionSplit:
    """Draws the choice of collection and split: the collection of the newest results first, of its splits dev. Trials
    of sweeps do not count as results.
    """
    names = place_names(row.place for row in rows)
    counts = Counter(row.place for row in rows)
    newest: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row.corpus, row.place.collection
        newest[key] = max(newest.get(key, 0.0), 0.0 if row.trial else row.started.timestamp())

    def order(place: CollectionSplit) -> tuple[float, bool, int, str]:
        return -newest[place.corpus, place.collection], place.split != "dev", -counts[place], names[place]

    by_name = {names[place]: place for place in sorted(names, key=order)}
    return by_name[choice("Evaluated on", "place", list(by_name))]


def rows_at(rows: Sequence[LeaderboardRow], place: CollectionSplit) -> list[LeaderboardRow]:
    """The rows that were evaluated at a place, in their order, trials after the rest."""
    return sorted((row for row in rows if row.place == place), key=lambda row: row.trial)


def named(rows: Sequence[LeaderboardRow]) -> dict[str, LeaderboardRow]:
    return {name_of(row): row for row in rows}


def run_of(context: PageContext, row: LeaderboardRow) -> TrackedRow:
    return next(run for run in context.runs if run.run_id == row.run_id)


def places_of(context: PageContext, rows: Mapping[str, LeaderboardRow]) -> dict[str, Place | None]:
    """Name -> where the run's evaluation on the row's corpus and split lies."""
    return {name: artifact_place(run_of(context, row), row.corpus, row.split) for name, row in rows.items()}


def nothing_evaluated() -> None:
    st.info("Nothing has been evaluated in this store yet. Run the demo, or any job that evaluates:")
    st.code("make demo", language="bash", wrap_lines=True)
