"""The ranks of a board's systems, and its tie groups as lanes: bars that join what the tests cannot tell apart."""

import re
from collections import Counter

from midmask.leaderboard.board import Board
from midmask.leaderboard.cells import NONE

LETTER = re.compile(r"[a-z]\d*")
"""One tie group in the letters of a system, as `evaluation.ties.label` makes them."""

MOST_LANES = 8
"""Bars side by side; of more tie groups, those of the best systems."""


def ranks_of(board: Board) -> dict[str, int]:
    """An entry's name -> its rank by the mean of the board's ranked column; equal means share one."""
    if board.ranked is None:
        return {}
    found = {line.entry.name: line.cells[board.ranked.key].value for line in board.lines}
    means = {name: value.mean for name, value in found.items() if value is not None}
    return {name: 1 + sum(other > mean for other in means.values()) for name, mean in means.items()}


def range_of(board: Board, name: str) -> str:
    """The ranks that the tests allow the entry, such as `1-3`; empty where it was not tested, or only one is left."""
    cell = (
        next(line.cells[board.ranked.key] for line in board.lines if line.entry.name == name) if board.ranked else None
    )
    if cell is None or cell.ranks is None or cell.ranks.best == cell.ranks.worst:
        return ""
    return f"{cell.ranks.best}-{cell.ranks.worst}"


def rank_text(board: Board, name: str) -> str:
    """A rank as exports tell it: `2 (1-3)`, or a dash."""
    rank, allowed = ranks_of(board).get(name), range_of(board, name)
    return NONE if rank is None else f"{rank} ({allowed})" if allowed else f"{rank}"


def lanes_of(board: Board) -> dict[str, tuple[bool, ...]]:
    """An entry's name -> for every tie group of the ranked column that joins several systems, whether it belongs."""
    if board.ranked is None:
        return {}
    letters = {line.entry.name: LETTER.findall(line.cells[board.ranked.key].ties) for line in board.lines}
    counts = Counter(letter for own in letters.values() for letter in own)
    groups = [letter for letter, count in counts.items() if count > 1][:MOST_LANES]
    return {name: tuple(group in own for group in groups) for name, own in letters.items()}
