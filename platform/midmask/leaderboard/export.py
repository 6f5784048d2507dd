"""A board as CSV and as Markdown; as HTML: `html.document`."""

import csv
import io

from midmask.evaluation.escaping import csv_cell, markdown_text
from midmask.evaluation.rendering import markdown
from midmask.leaderboard.board import HEADS, Board, BoardLine
from midmask.leaderboard.cells import NONE, detail, legend, letters_of, number, query_counts, superscript
from midmask.leaderboard.ranks import rank_text


def as_csv(board: Board) -> str:
    """One line per system, numbers in full; lists of names, seeds and run ids are divided by semicolons.

    Texts are quoted: where a semicolon divides cells, no part of a list becomes a cell of its own.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    about = ["Rank", "Best rank", "Worst rank", *HEADS.values(), "Settings", "Seeds", "Runs"]
    measured = [
        f"{column.key}{part}"
        for column in board.columns
        for part in (("", " spread", " queries", " better than", " ties") if column.place else ("",))
    ]
    writer.writerow(map(csv_cell, [*about, *measured]))
    writer.writerows(map(csv_cell, [*_ranks(board, line), *_line(board, line)]) for line in board.lines)
    return stream.getvalue()


def _ranks(board: Board, line: BoardLine) -> list[object]:
    """The rank, and the best and the worst that the tests allow."""
    allowed = line.cells[board.ranked.key].ranks if board.ranked else None
    return [board.ranks.get(line.entry.name), *(allowed or (None, None))]


def _line(board: Board, line: BoardLine) -> list[object]:
    entry = line.entry
    runs = list(entry.runs(board.view.places).values())
    found: list[object] = [getattr(entry, name) for name in HEADS]
    found += [entry.note, ";".join(row.seed for row in runs), ";".join(row.run_id for row in runs)]
    for column in board.columns:
        cell = line.cells[column.key]
        found.append(cell.sorts_by)
        if column.place:
            spread = cell.value.spread if cell.value else None
            found += [spread, column.place.queries or None, ";".join(cell.better_than), cell.ties]
    return found


def as_markdown(board: Board) -> str:
    """The table with bold, superscripts and spreads, a blank line, the numbers of queries and the legend."""
    letters = letters_of(board)
    heads = [HEADS["recipe"], "Rank", *(HEADS[name] for name in board.fields)]
    rows = []
    for line in board.lines:
        letter = f"{line.letter} " if board.view.marks == "better_than" else ""
        title = f"{letter}{line.entry.recipe}" + (f" ({line.entry.note})" if line.entry.note else "")
        labels = [getattr(line.entry, name) or NONE for name in board.fields]
        row = [markdown_text(text) for text in (title, rank_text(board, line), *labels)]
        for column in board.columns:
            cell = line.cells[column.key]
            mark, small = superscript(board, cell, letters), detail(board, column, line)
            text = f"**{number(board, column, cell)}**" if cell.best else number(board, column, cell)
            row.append(text + (f"<sup>{mark}</sup>" if mark else "") + (f" {small}" if small else ""))
        rows.append(row)
    table = markdown([*heads, *(markdown_text(column.key) for column in board.columns)], rows)
    return f"{table}\n\n{markdown_text(' '.join([query_counts(board), *legend(board)]))}\n"
