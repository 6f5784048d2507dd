"""A board as an HTML table for the page, as one HTML file that asks no other host, as CSV and as Markdown."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from html import escape

from midmask.core.words import MISSING
from midmask.evaluation.rendering import csv_cell, markdown, markdown_text
from midmask.leaderboard.board import (
    HEADS,
    NEWEST,
    Board,
    BoardColumn,
    BoardLine,
    detail,
    lanes_of,
    legend,
    letters_of,
    number,
    place_head,
    query_counts,
    range_of,
    rank_text,
    superscript,
)
from midmask.leaderboard.rows import LeaderboardRow

LinkOf = Callable[[LeaderboardRow], str]

STYLE = """
.mm-scroll {overflow-x: auto; border: 1px solid rgba(128,128,128,.25); border-radius: .5rem;}
.mm-board {border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums;
  --accent: light-dark(#0f766e, #2dd4bf);}
.mm-board th, .mm-board td {padding: .5rem .75rem; border: 0; border-bottom: 1px solid rgba(128,128,128,.15);
  text-align: left; white-space: nowrap; vertical-align: baseline;}
.mm-board tbody tr:last-child td {border-bottom: 0;}
.mm-board tbody tr:hover td {background: rgba(15,118,110,.06);}
.mm-board thead th {font-weight: 600; font-size: .8rem; background: rgba(128,128,128,.07);}
.mm-board th[scope=row] {font-weight: 400;}
.mm-board th button {all: unset; cursor: pointer;}
.mm-board th button:hover {text-decoration: underline;}
.mm-board th button:focus-visible {outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 2px;}
.mm-board th[aria-sort] button::after {content: " ↓"; white-space: pre;}
.mm-board th[aria-sort=ascending] button::after {content: " ↑";}
.mm-board th.group {text-align: center;}
.mm-board th.group, .mm-board .first {border-left: 1px solid rgba(128,128,128,.2);}
.mm-board th.order {color: var(--accent);}
.mm-board th.num, .mm-board td.num {text-align: right;}
.mm-board .best {font-weight: 700; color: var(--accent);}
.mm-board .quiet {opacity: .78;}
.mm-board a {color: var(--accent); text-decoration: none;}
.mm-board a:hover {text-decoration: underline;}
.mm-board [data-key="System"] {position: sticky; left: 0; z-index: 1;
  background: var(--st-background-color, Canvas);}
.mm-board thead th[data-key="System"] {background: color-mix(in srgb, var(--st-background-color, Canvas) 93%, gray);}
.mm-board .place {display: block; font-size: .75rem; opacity: .78; white-space: normal; min-width: 9rem;
  max-width: 20rem;}
.mm-board .spread {display: block; font-size: .72rem; font-weight: 400; opacity: .78;}
.mm-board .best .spread {opacity: 1;}
.mm-board .letter {display: inline-block; min-width: 1.2rem; opacity: .78; font-size: .75rem;}
.mm-board td.rank {position: relative; padding-left: calc(.75rem + var(--lanes) * .45rem);}
.mm-board .lane {position: absolute; top: 0; bottom: -1px; width: 4px; background: var(--accent); opacity: .6;}
.mm-board sup {font-size: .68rem; font-weight: 400; line-height: 0; margin-left: .12rem;}
@media (max-width: 640px) {
  .mm-board th, .mm-board td {padding: .45rem .5rem;}
  .mm-board .place {max-width: 9rem;}
}
"""

PAGE_STYLE = """
:root {color-scheme: light dark;}
body {font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem;}
h1 {font-size: 1.5rem; margin: 0 0 .25rem;}
p {font-size: .85rem; opacity: .75; margin: .75rem 0;}
thead th[data-key] {cursor: pointer;}
"""

SORTING = """
for (const head of document.querySelectorAll("thead th[data-key]")) head.addEventListener("click", () => {
  const body = document.querySelector("tbody"), up = head.dataset.up !== "true";
  const at = line => line.querySelector(`[data-key="${CSS.escape(head.dataset.key)}"]`).dataset.value;
  const order = (a, b) => a === "" ? 1 : b === "" ? -1 : isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
  const lines = [...body.rows].sort((a, b) => {
    const [x, y] = [at(a), at(b)];
    return x === "" || y === "" ? order(x, y) : (up ? 1 : -1) * order(x, y);
  });
  head.dataset.up = up;
  body.append(...lines);
});
"""


def table(board: Board, lines: Sequence[BoardLine], link: LinkOf | None = None) -> str:
    """The table of these lines of the board, its cells marked with their column's key and plain value.

    Args:
        link: where a run can be looked at; None: its seed is told without a link.
    """
    letters, lanes = letters_of(board), lanes_of(board)
    width = len(next(iter(lanes.values()), ()))
    body = "".join(
        f'<tr data-system="{escape(line.entry.recipe)}">'
        f"{_rank(board, line, lanes)}{''.join(_html_cells(board, line, letters, link))}</tr>"
        for line in lines
    )
    return (
        f'<div class="mm-scroll" tabindex="0"><table class="mm-board" aria-label="systems" style="--lanes: {width}">'
        f"<thead>{_heads(board)}</thead><tbody>{body}</tbody></table></div>"
    )


def document(board: Board, *, source: str, address: str, when: datetime) -> str:
    """One HTML file that holds all it needs: the whole board, sortable by its heads, and where it came from."""
    said = "".join(f"<p>{escape(text)}</p>" for text in legend(board))
    from_where = (
        f'From {escape(source)} at {when:%Y-%m-%d %H:%M} UTC, view <a href="{escape(address)}">{escape(address)}</a>.'
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>midmask leaderboard</title>'
        f"<style>{PAGE_STYLE}{STYLE}</style></head><body><h1>midmask leaderboard</h1><p>{from_where}</p>"
        f"{table(board, board.lines)}{said}<script>{SORTING}</script></body></html>\n"
    )


def _heads(board: Board) -> str:
    """Two rows: groups of measures above, and what stands alone across both."""
    top = '<th class="num" rowspan="2" scope="col">Rank</th>' + _head(board, HEADS["recipe"], HEADS["recipe"], rows=2)
    groups = {column.group: column for column in board.columns if column.group}
    for group, first in groups.items():
        width = sum(column.group == group for column in board.columns)
        top += f'<th class="group" colspan="{width}" scope="colgroup">{escape(place_head(board, first))}</th>'
    top += "".join(_head(board, column.key, column.head, "num", 2) for column in board.columns if not column.group)
    top += '<th rowspan="2" scope="col">Seeds</th>' + _head(board, NEWEST, "Date", rows=2)
    below = "".join(
        _head(board, column.key, column.head, f"num{_first(board, column)}") for column in board.columns if column.group
    )
    return f"<tr>{top}</tr><tr>{below}</tr>"


def _head(board: Board, key: str, text: str, kind: str = "", rows: int = 1) -> str:
    chosen = f' aria-sort="{_direction(board)}"' if board.view.order == key else ""
    mark = " order" if chosen else ""
    return (
        f'<th class="{kind}{mark}" rowspan="{rows}" scope="col" data-key="{escape(key)}"{chosen}>'
        f'<button type="button">{escape(text)}</button></th>'
    )


def _direction(board: Board) -> str:
    """The order of the board's values: the best are the highest measures, the lowest costs, the first names,
    the newest dates.
    """
    order = board.view.order
    lowest_first = order in HEADS.values() or any(column.low_is_good for column in board.columns if column.key == order)
    return "ascending" if lowest_first != board.view.reverse else "descending"


def _rank(board: Board, line: BoardLine, lanes: Mapping[str, Sequence[bool]]) -> str:
    name = line.entry.name
    bars = "".join(
        f'<span class="lane" style="left: {0.5 + 0.45 * at:g}rem"></span>'
        for at, joined in enumerate(lanes.get(name, ()))
        if joined
    )
    allowed = range_of(board, line)
    small = f'<span class="spread" title="ranks that the tests allow">{allowed}</span>' if allowed else ""
    return f'<td class="num rank">{bars}{board.ranks.get(name, MISSING)}{small}</td>'


def _html_cells(board: Board, line: BoardLine, letters: dict[str, str], link: LinkOf | None) -> list[str]:
    entry = line.entry
    letter = f'<span class="letter">{line.letter}</span> ' if board.view.marks == "better_than" else ""
    fields = [*(getattr(entry, name) for name in board.fields), entry.note, "trial" if entry.trial else ""]
    told = [text for text in fields if text not in ("", "none", entry.recipe)]
    about = f'<span class="place">{escape(" · ".join(told))}</span>' if told else ""
    named = f'<button type="button" data-open="{escape(entry.name)}">{escape(entry.recipe)}</button>'
    title = letter + (named if link else escape(entry.recipe)) + about
    cells = [f'<th scope="row" data-key="{HEADS["recipe"]}" data-value="{escape(entry.recipe)}">{title}</th>']
    for column in board.columns:
        cell = line.cells[column.key]
        mark = superscript(board, cell, letters)
        small = detail(board, column, line)
        text = number(board, column, cell) + (f"<sup>{mark}</sup>" if mark else "")
        kind = "num" + (" best" if cell.best else "") + ("" if cell.sorts_by is not None else " quiet")
        text += f'<span class="spread">{small}</span>' if small else ""
        cells.append(
            _cell(column.key, "" if cell.sorts_by is None else cell.sorts_by, text, kind + _first(board, column))
        )
    runs = sorted(entry.runs(board.view.places).values(), key=lambda row: row.seed.rjust(9))
    cells.append(f"<td>{' '.join(_seed(row, link) for row in runs)}</td>")
    return [*cells, _cell(NEWEST, entry.started.isoformat(), f"{entry.started:%Y-%m-%d}", "quiet")]


def _cell(key: str, value: object, text: str, kind: str = "") -> str:
    return f'<td class="{kind}" data-key="{escape(key)}" data-value="{escape(str(value))}">{text}</td>'


def _first(board: Board, column: BoardColumn) -> str:
    """The CSS class that draws a line on the left of the first column of each group; else empty."""
    first = next(other for other in board.columns if other.group == column.group)
    return " first" if column is first else ""


def _seed(row: LeaderboardRow, link: LinkOf | None) -> str:
    text = escape(row.seed or row.run_id[:6])
    return f'<a href="{escape(link(row))}" target="_blank" rel="noopener">{text}</a>' if link else text


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
    writer.writerows(map(csv_cell, [*_ranks(board, line), *_csv_cells(board, line)]) for line in board.lines)
    return stream.getvalue()


def _ranks(board: Board, line: BoardLine) -> list[object]:
    """The rank, and the best and the worst that the tests allow."""
    allowed = line.cells[board.ranked.key].ranks if board.ranked else None
    return [board.ranks.get(line.entry.name), *(allowed or (None, None))]


def _csv_cells(board: Board, line: BoardLine) -> list[object]:
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
        labels = [getattr(line.entry, name) or MISSING for name in board.fields]
        row = [markdown_text(text) for text in (title, rank_text(board, line), *labels)]
        for column in board.columns:
            cell = line.cells[column.key]
            mark, small = superscript(board, cell, letters), detail(board, column, line)
            text = f"**{number(board, column, cell)}**" if cell.best else number(board, column, cell)
            row.append(text + (f"<sup>{mark}</sup>" if mark else "") + (f" {small}" if small else ""))
        rows.append(row)
    table = markdown([*heads, *(markdown_text(column.key) for column in board.columns)], rows)
    return f"{table}\n\n{markdown_text(' '.join([query_counts(board), *legend(board)]))}\n"
