"""A board as an HTML table for the page, and as CSV."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader

from midmask.core.words import MISSING
from midmask.evaluation.rendering import csv_cell
from midmask.leaderboard.board import (
    HEADS,
    NEWEST,
    Board,
    BoardColumn,
    BoardLine,
    detail,
    letters_of,
    number,
    place_head,
    range_of,
    superscript,
)
from midmask.leaderboard.entries import Entry
from midmask.leaderboard.rows import LeaderboardRow

LinkOf = Callable[[LeaderboardRow], str]

STYLE = Path(__file__).with_name("templates") / "board.css"

_templates = Environment(loader=PackageLoader("midmask.leaderboard"), autoescape=True)


def table(board: Board, lines: Sequence[BoardLine], link: LinkOf) -> str:
    """The table of these lines of the board, its cells marked with their column's key.

    Args:
        link: where a run can be looked at.
    """
    groups: dict[str, list[BoardColumn]] = {}
    for column in board.columns:
        groups.setdefault(column.group, []).append(column)
    parts = {
        **{"board": board, "lines": lines, "link": link, "system": HEADS["recipe"], "newest": NEWEST},
        "letters": letters_of(board),
        "groups": {group: columns for group, columns in groups.items() if group},
        # the first column of each group has a line on its left
        "firsts": {column.key: " first" if column is groups[column.group][0] else "" for column in board.columns},
        **{"direction": _direction(board), "missing": MISSING, "about": _about, "runs": _runs, "detail": detail},
        **{"number": number, "place_head": place_head, "range_of": range_of, "superscript": superscript},
    }
    return _templates.get_template("board.html.jinja").render(parts)


def _direction(board: Board) -> str:
    """How the values of the column that orders lie, from top to bottom."""
    low_first = any(column.key == board.view.order and column.low_is_good for column in board.columns)
    texts = board.view.order in HEADS.values()
    return "ascending" if (low_first or texts) != board.view.reverse else "descending"


def _about(board: Board, entry: Entry) -> str:
    """The labels in which systems differ, the settings, and whether it is a trial, of those that say something."""
    fields = [*(getattr(entry, name) for name in board.fields), entry.note, "trial" if entry.trial else ""]
    return " · ".join(text for text in fields if text not in ("", "none", entry.recipe))


def _runs(board: Board, entry: Entry) -> list[LeaderboardRow]:
    """Its runs at the board's places, by seed."""
    return sorted(entry.runs(board.view.places).values(), key=lambda row: row.seed.rjust(9))


def as_csv(board: Board) -> str:
    """One line per system, numbers in full; lists of names, seeds and run ids are divided by semicolons.

    Texts are quoted: where a semicolon divides cells, no part of a list becomes a cell of its own.
    """
    frame = pd.DataFrame([_record(board, line) for line in board.lines], dtype=object).map(csv_cell)
    frame = frame.rename(columns=csv_cell)
    return str(frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n"))


def _record(board: Board, line: BoardLine) -> dict[str, object]:
    """Head -> cell of a line: the rank, and the best and the worst that the tests allow; labels; every column."""
    entry = line.entry
    allowed = line.cells[board.ranked.key].ranks if board.ranked else None
    best, worst = allowed or (None, None)
    runs = list(entry.runs(board.view.places).values())
    record: dict[str, object] = {"Rank": board.ranks.get(entry.name), "Best rank": best, "Worst rank": worst}
    record |= {head: getattr(entry, name) for name, head in HEADS.items()} | {"Settings": entry.note}
    record |= {"Seeds": ";".join(row.seed for row in runs), "Runs": ";".join(row.run_id for row in runs)}
    for column in board.columns:
        cell = line.cells[column.key]
        record[column.key] = cell.sorts_by
        if column.place:
            record[f"{column.key} spread"] = cell.value.spread if cell.value else None
            record[f"{column.key} queries"] = column.place.queries or None
            record[f"{column.key} better than"] = ";".join(cell.better_than)
    return record
