"""The ranks of a board's systems, and its tie groups as lanes: bars that join what the tests cannot tell apart."""

import re
from collections import Counter

from midmask.leaderboard.board import Board, BoardLine
from midmask.leaderboard.cells import NONE

LETTER = re.compile(r"[a-z]\d*")
"""One tie group in the letters of a system, as `evaluation.ties.label` makes them."""

MOST_LANES = 8
"""Bars side by side; of more tie groups, those of the best systems."""


def range_of(board: Board, line: BoardLine) -> str:
    """The ranks that the tests allow a system, such as `1-3`; empty where it was not tested, or only one is left."""
    ranks = line.cells[board.ranked.key].ranks if board.ranked else None
    return "" if ranks is None or ranks.best == ranks.worst else f"{ranks.best}-{ranks.worst}"


def rank_text(board: Board, line: BoardLine) -> str:
    """A rank as exports tell it: `2 (1-3)`, or a dash."""
    rank, allowed = board.ranks.get(line.entry.name), range_of(board, line)
    return NONE if rank is None else f"{rank} ({allowed})" if allowed else f"{rank}"


def lanes_of(board: Board) -> dict[str, tuple[bool, ...]]:
    """An entry's name -> for every tie group of the ranked column that joins several systems, whether it belongs."""
    if board.ranked is None:
        return {}
    letters = {line.entry.name: LETTER.findall(line.cells[board.ranked.key].ties) for line in board.lines}
    counts = Counter(letter for own in letters.values() for letter in own)
    groups = [letter for letter, count in counts.items() if count > 1][:MOST_LANES]
    return {name: tuple(group in own for group in groups) for name, own in letters.items()}
