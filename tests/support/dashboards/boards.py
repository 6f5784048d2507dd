"""Boards of the compared systems, as a page would ask for them."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from midmask.leaderboard.board import Board, View, board_of
from midmask.leaderboard.entries import Entry, Shown, entries, marks_of
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, rows
from tests.support.dashboards import compared

DEV = CollectionSplit("squad", "dev", compared.COLLECTION, len(compared.QUERIES))
SHOWN = {DEV: "squad dev"}
NDCG = "squad dev nDCG@10"


def per_query(row: LeaderboardRow) -> pa.Table:
    return compared.per_query({name: compared.values(row.recipe, int(row.seed), name) for name in compared.MEASURES})


def view(marks: Shown = "better_than", order: str = NDCG, **more: object) -> View:
    plain = View(SHOWN, compared.MEASURES, {}, order, False, marks, "none", False)
    return replace(plain, **more)  # type: ignore[arg-type]


def board(chosen: View, found: Sequence[Entry] | None = None) -> Board:
    found = entries(rows(compared.tracked_rows())) if found is None else found
    asked = (chosen.places, chosen.measures, per_query, chosen.marks)
    return board_of(found, chosen, lambda shown: marks_of(shown, *asked))
