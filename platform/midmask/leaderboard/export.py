"""A board as CSV and as Markdown; as HTML: `html.document`."""

import csv
import io

from midmask.evaluate.rendering import markdown
from midmask.leaderboard.board import HEADS, Board, Line
from midmask.leaderboard.cells import NONE, detail, legend, letters_of, number, superscript


def as_csv(board: Board) -> str:
    """One line per system, numbers in full; lists of names, seeds and run ids are divided by semicolons."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    about = [*HEADS.values(), "Settings", "Seeds", "Runs"]
    measured = [
        f"{column.key}{part}"
        for column in board.columns
        for part in (("", " spread", " better than", " ties") if column.place else ("",))
    ]
    writer.writerow([*about, *measured])
    writer.writerows(_line(board, line) for line in board.lines)
    return stream.getvalue()


def _line(board: Board, line: Line) -> list[object]:
    entry = line.entry
    runs = list(entry.runs(board.view.places).values())
    found: list[object] = [getattr(entry, name) for name in HEADS]
    found += [entry.note, ";".join(row.seed for row in runs), ";".join(row.run_id for row in runs)]
    for column in board.columns:
        cell = line.cells[column.key]
        found.append(cell.sorts_by)
        if column.place:
            found += [cell.value.spread if cell.value else None, ";".join(cell.better_than), cell.ties]
    return found


def as_markdown(board: Board) -> str:
    """The table with bold, superscripts and spreads, a blank line, its legend."""
    letters = letters_of(board)
    heads = [HEADS[name] for name in ("recipe", *board.fields)]
    rows = []
    for line in board.lines:
        letter = f"{line.letter} " if board.view.marks == "better_than" else ""
        title = f"{letter}{line.entry.recipe}" + (f" ({line.entry.note})" if line.entry.note else "")
        row = [title, *(getattr(line.entry, name) or NONE for name in board.fields)]
        for column in board.columns:
            cell = line.cells[column.key]
            mark, small = superscript(board, cell, letters), detail(board, column, line)
            text = f"**{number(column, cell)}**" if cell.best else number(column, cell)
            row.append(text + (f"<sup>{mark}</sup>" if mark else "") + (f" {small}" if small else ""))
        rows.append([text.replace("|", "\\|") for text in row])
    return markdown([*heads, *(column.key for column in board.columns)], rows) + "\n\n" + " ".join(legend(board)) + "\n"
