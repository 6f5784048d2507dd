"""How a board reads: its numbers, superscripts, and the sentences below the table."""

from collections.abc import Iterable, Iterator, Mapping

from midmask.leaderboard.board import (
    BYTES,
    GAIN,
    HEADS,
    HOURS,
    RECALLS,
    SEARCH,
    Board,
    BoardCell,
    BoardColumn,
    BoardLine,
)
from midmask.leaderboard.rows import CollectionSplit
from midmask.progress import clock, size

NONE = "—"


MOST_LETTERS = 2
"""Letters that follow each other and are written one by one; of more, the first and the last."""


def number(board: Board, column: BoardColumn, cell: BoardCell) -> str:
    """The cell's number as it is printed, with its unit; a dash for what is not known."""
    found = cell.sorts_by
    if found is None:
        return NONE
    if column.place is not None or column.key in RECALLS:
        return f"{found:.{board.decimals[column.key]}f}"
    if column.key == GAIN:
        return f"{found:+.2f}" if abs(found) < 100 else f"{found:+,.0f}"
    return {HOURS: _duration, BYTES: size, SEARCH: _milliseconds}[column.key](found)


def _duration(hours: float) -> str:
    return clock(3600 * hours)


def _milliseconds(number: float) -> str:
    return f"{number / 1000:,.1f} s" if number >= 1000 else f"{number:.3g} ms"


def detail(board: Board, column: BoardColumn, line: BoardLine) -> str:
    """What stands small beside a number: the spread over seeds, or the device that the hours are of."""
    cell = line.cells[column.key]
    if cell.value is not None and cell.value.spread is not None:
        return f"± {cell.value.spread:.{board.decimals[column.key]}f}"
    if column.key == HOURS and cell.number:
        return "GPU" if line.entry.cost("gpu_hours", board.view.places) else "CPU"
    return ""


def superscript(board: Board, cell: BoardCell, letters: Mapping[str, str]) -> str:
    """Letters: of the systems that this one is significantly better than, such as `bd` or `a,c-g`, or of its tie
    groups; or none.

    Args:
        letters: as `letters_of`.
    """
    if board.view.marks != "better_than":
        return cell.ties if board.view.marks == "ties" else ""
    runs: list[list[str]] = []
    before = -2
    for at, name in enumerate(letters):
        if name in cell.better_than:
            if at != before + 1:
                runs.append([])
            runs[-1].append(letters[name])
            before = at
    written = [f"{run[0]}-{run[-1]}" if len(run) > MOST_LETTERS else "".join(run) for run in runs]
    return ("," if any("-" in one for one in written) else "").join(written)


def letters_of(board: Board) -> dict[str, str]:
    """An entry's name -> the letter that superscripts call it by, in the order of the board."""
    return {line.entry.name: line.letter for line in board.lines}


def place_head(board: Board, column: BoardColumn) -> str:
    """The head of a group of columns: corpus, split and number of queries, and whether the corpus came without it."""
    assert column.place is not None, "a column of costs stands in no group"
    made = any(row.split_made_here for line in board.lines for row in line.entry.rows.get(column.place, ()))
    head = _counted(column.group, column.place)
    return f"{head} (split made here)" if made else head


def query_counts(board: Board) -> str:
    """The sentence that says how many queries each group of columns is a mean over."""
    return f"Means over queries: {'; '.join(_counted(name, place) for place, name in board.view.places.items())}."


def _counted(name: str, place: CollectionSplit) -> str:
    """The name of a place with its number of queries, which stands in the name already where it tells places apart."""
    count = f"{place.queries:,} queries" if place.queries else "number of queries not known"
    return name if count in name else f"{name}, {count}"


def legend(board: Board) -> list[str]:
    """All sentences below a board."""
    return [*meanings(board), *shared(board)]


def key(board: Board) -> str:
    """What the marks of a board mean, in a line."""
    cells = [cell for line in board.lines for cell in line.cells.values()]
    marks = {"better_than": "letters: the systems it is significantly better than", "ties": "letters: tie groups"}
    told = ["bold: the best of its column"]
    told += [marks[board.view.marks]] if board.view.marks in marks else []
    told += ["bar: no significant difference"] if any(cell.ties for cell in cells) else []
    told += ["±: over seeds"] if _has_spread(cells) else []
    return " · ".join(told)


def meanings(board: Board) -> list[str]:
    """What is bold, how marks were tested, what ± and the gain are: a sentence each."""
    cells = [cell for line in board.lines for cell in line.cells.values()]
    said = [board.text if "Bold" in board.text else f"Bold: the best of a column. {board.text}".strip()]
    if board.ranked is not None:
        bars = "; a bar joins systems that do not differ significantly" if any(cell.ties for cell in cells) else ""
        said.append(f"Rank: by {board.ranked.key}, and the ranks that the tests allow{bars}.")
    if _has_spread(cells):
        said.append("±: the standard deviation over seeds.")
    if any(line.cells[GAIN].number is not None for line in board.lines):
        name, measure = next(iter(board.view.places.values())), board.view.measures[0]
        said.append(
            f"Gain per hour: hundredths of {measure} on {name} above {board.view.baseline!r} of the same "
            "representation, protocol and backbone, per hour of all trainings by the clock."
        )
    if any(line.cells[name].number is not None for line in board.lines for name in RECALLS):
        said.append("Index recall: share of an exact search's best passages that an approximate one finds.")
    return [*said, *_left_out(board)]


def _left_out(board: Board) -> Iterator[str]:
    """A sentence per group of columns with results that were left out because they are the query itself: how many, of
    which systems. The lists of the others were measured as they are.
    """
    for place, name in board.view.places.items():
        rows = {line.entry.name: line.entry.rows.get(place, ()) for line in board.lines}
        counts = {system: max((row.self_matches for row in own), default=0) for system, own in rows.items()}
        if told := "; ".join(f"{count:,} of {system}" for system, count in counts.items() if count):
            yield f"{name}: results that are the query itself are left out: {told}."


def _has_spread(cells: Iterable[BoardCell]) -> bool:
    return any(cell.value is not None and cell.value.spread is not None for cell in cells)


def shared(board: Board) -> list[str]:
    """What all shown systems that have such a label have in common, which therefore needs no column."""
    told = [
        f"{head.lower()} {' '.join(board.values(name))}"
        for name, head in HEADS.items()
        if name != "recipe" and name not in board.fields and board.values(name)
    ]
    return [f"All that are trained: {', '.join(told)}."] if told else []
