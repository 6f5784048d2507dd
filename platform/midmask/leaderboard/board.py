"""The leaderboard as cells: chosen systems × (corpus, split, measure), with costs, ranks, and how all of it reads.

The page and its CSV have it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from midmask.core.words import MISSING, clock, size
from midmask.evaluation.statistics.ranks import competition_ranks, label
from midmask.leaderboard.entries import LABELS, Entry, Mark, Marks, Value
from midmask.leaderboard.rows import CollectionSplit

HOURS, BYTES, SEARCH = "Train hours", "Bytes per passage", "Search ms"
COSTS = {HOURS: "train_seconds", BYTES: "bytes_per_passage", SEARCH: "search_ms_per_query"}
"""Column -> the cost that it shows; hours by the clock."""

COST_HEADS = {HOURS: "Training", BYTES: "Per passage", SEARCH: "Search"}
"""Column of a cost -> its head where numbers bear their units."""

RECALLS = {"Index recall@10": "index_recall_at_10", "Index recall@100": "index_recall_at_100"}
"""Column -> the fact that it shows, beside the costs: what approximate searches find of exact ones' best passages."""

NEWEST = "newest"

HEADS = {
    "recipe": "System",
    "pretrain_on": "Pre-trained on",
    "representation": "Representation",
    "protocol": "Protocol",
    "backbone": "Backbone",
}
"""Each of `LABELS` -> the head of its column."""


DECIMALS = 4
"""Of measures."""


@dataclass(frozen=True)
class View:
    """The choices that determine a board: its columns, systems and order."""

    places: Mapping[CollectionSplit, str]  # groups of columns, each with its name (`rows.place_names`)
    measures: tuple[str, ...]
    order: str  # a column's key, a head of `HEADS`, or `newest`; the best comes first
    reverse: bool  # the best comes last
    trials: bool
    find: str = ""  # words that a system's name must contain; case is ignored


@dataclass(frozen=True)
class BoardColumn:
    """A column of the board: a measure at a place, or a cost."""

    key: str
    head: str
    group: str = ""  # the head above several columns; empty if there is none
    place: CollectionSplit | None = None
    measure: str = ""
    low_is_good: bool = False  # the best value is the lowest


@dataclass(frozen=True)
class BoardCell(Mark):
    """One system in one column; without `value` and `number`, nothing is known."""

    value: Value | None = None  # of a measure, with its spread
    number: float | None = None  # of a cost
    best: bool = False

    @property
    def sorts_by(self) -> float | None:
        return self.value.mean if self.value else self.number


@dataclass(frozen=True)
class BoardLine:
    """One system: the letter that superscripts call it by, and its cells by column key."""

    letter: str
    entry: Entry
    cells: Mapping[str, BoardCell]


@dataclass(frozen=True)
class Board:
    """The columns and lines of a view, in the order in which they are shown."""

    view: View
    columns: tuple[BoardColumn, ...]
    lines: tuple[BoardLine, ...]
    text: str
    lettered: bool = False  # whether superscripts tell which systems each is better than
    ranked: BoardColumn | None = None  # the column that ranks are counted in; None where no system was measured

    @cached_property
    def ranks(self) -> dict[str, int]:
        """An entry's name -> its rank by the mean of the ranked column; equal means share one."""
        if self.ranked is None:
            return {}
        values = {line.entry.name: line.cells[self.ranked.key].value for line in self.lines}
        return competition_ranks({name: value.mean for name, value in values.items() if value is not None})

    @cached_property
    def fields(self) -> list[str]:
        """Labels in which the lines that have one differ."""
        return [name for name in LABELS[1:] if len(self.values(name)) > 1]

    def values(self, name: str) -> set[str]:
        """The distinct values of a label over the lines. BM25 has no pre-training and is its own representation, and a
        model folder has no protocol.
        """
        values = ((getattr(line.entry, name), line.entry.recipe) for line in self.lines)
        return {value for value, recipe in values if value not in ("", "none", recipe)}


def places_of(found: Sequence[Entry]) -> list[CollectionSplit]:
    """The places where systems were evaluated, those with most systems first."""
    counts = Counter(place for entry in found for place in entry.rows)
    return sorted(counts, key=lambda place: (-counts[place], place))


def newest_place(found: Sequence[Entry], corpus: str = "") -> CollectionSplit:
    """The place of the newest results. Among places of one run: the one with most systems, then test. Trials of
    sweeps count where there is nothing else: a board shows them only if it is asked to.

    Args:
        found: at least one. corpus: the short name of a corpus, to look at no other; empty: all.
    """
    candidates = [entry for entry in found if any(corpus in ("", place.corpus) for place in entry.rows)]
    results = [entry for entry in candidates if not entry.trial] or candidates
    counts = Counter(place for entry in results for place in entry.rows if corpus in ("", place.corpus))
    started = {place: max(row.started for entry in results for row in entry.rows.get(place, ())) for place in counts}
    return max(started, key=lambda place: (started[place], counts[place], place.split == "test", place))


def columns_of(places: Mapping[CollectionSplit, str], measures: Sequence[str]) -> list[BoardColumn]:
    """The columns that a view of these has, whatever systems it shows."""
    measured = [
        BoardColumn(f"{name} {measure}", measure, name, place, measure)
        for place, name in places.items()
        for measure in measures
    ]
    costs = [BoardColumn(name, head, low_is_good=True) for name, head in COST_HEADS.items()]
    return [*measured, *costs, *(BoardColumn(name, name) for name in RECALLS)]


def board_of(found: Sequence[Entry], view: View, mark: Callable[[Sequence[Entry]], Marks]) -> Board:
    """The board of one view, without systems that were evaluated at none of its places, and without empty measures.

    Args:
        mark: says which of the shown systems differ significantly, as `entries.marks_of`.
    """
    shown = [entry for entry in found if _is_wanted(entry, view)]
    marks = mark(shown)
    columns = columns_of(view.places, view.measures)
    cells = {column.key: _cells(column, shown, view, marks) for column in columns}
    lines = [
        BoardLine(label(number), entry, {key: by_entry[entry.name] for key, by_entry in cells.items()})
        for number, entry in enumerate(_ordered(shown, view, cells, columns))
    ]
    filled = [column for column in columns if any(cell.sorts_by is not None for cell in cells[column.key].values())]
    measured = [column for column in filled if column.place]
    ranked = next((column for column in measured if column.key == view.order), next(iter(measured), None))
    return Board(view, tuple(filled), tuple(lines), marks.text, bool(marks.cells), ranked)


def _is_wanted(entry: Entry, view: View) -> bool:
    name = entry.name.lower()
    return (
        (view.trials or not entry.trial)
        and all(word in name for word in view.find.lower().split())
        and any(place in entry.rows for place in view.places)
    )


def _cells(column: BoardColumn, shown: Sequence[Entry], view: View, marks: Marks) -> dict[str, BoardCell]:
    """Entry's name -> its cell."""
    if column.place is None:
        unit = 3600 if column.key == HOURS else 1
        fact = {**COSTS, **RECALLS}[column.key]
        costs = {entry.name: entry.cost(fact, view.places) for entry in shown}
        return {name: BoardCell(number=None if cost is None else cost / unit) for name, cost in costs.items()}
    place, measure = column.place, column.measure
    values = {entry.name: entry.value(place, measure) for entry in shown}
    top = max((value.mean for value in values.values() if value), default=0.0) - 1e-12  # sums differ in the last bit
    return {
        name: BoardCell(
            **vars(marks.cells.get((name, place, measure), Mark())),
            value=value,
            best=value is not None and value.mean >= top,
        )
        for name, value in values.items()
    }


def _ordered(
    shown: Sequence[Entry], view: View, cells: Mapping[str, Mapping[str, BoardCell]], columns: Sequence[BoardColumn]
) -> list[Entry]:
    """The entries sorted by the chosen column; those without a value there come last, sorted by the other measures."""
    if view.order == NEWEST:
        return sorted(shown, key=lambda entry: entry.started, reverse=not view.reverse)
    fields = {head: name for name, head in HEADS.items()}
    if view.order in fields:
        return sorted(shown, key=lambda entry: (getattr(entry, fields[view.order]), entry.name), reverse=view.reverse)
    column = next((column for column in columns if column.key == view.order), columns[0])
    measured = [other for other in columns if other.place and other is not column]

    def key(entry: Entry) -> list[tuple[bool, float]]:
        return [_sort_key(cells[col.key][entry.name].sorts_by, col, view.reverse) for col in (column, *measured)]

    return sorted(shown, key=key)


def _sort_key(value: float | None, column: BoardColumn, reverse: bool) -> tuple[bool, float]:
    sign = 1 if column.low_is_good != reverse else -1
    return value is None, sign * (value or 0.0)


MOST_LETTERS = 2
"""Letters that follow each other and are written one by one; of more, the first and the last."""


def number(column: BoardColumn, cell: BoardCell) -> str:
    """The cell's number as it is printed, with its unit; a dash for what is not known."""
    value = cell.sorts_by
    if value is None:
        return MISSING
    if column.place is not None or column.key in RECALLS:
        return f"{value:.{DECIMALS}f}"
    return {HOURS: lambda hours: clock(3600 * hours), BYTES: size, SEARCH: _milliseconds}[column.key](value)


def _milliseconds(number: float) -> str:
    return f"{number / 1000:,.1f} s" if number >= 1000 else f"{number:.3g} ms"


def detail(board: Board, column: BoardColumn, line: BoardLine) -> str:
    """The small text beside a number: the spread over seeds, or the device that the hours were measured on."""
    cell = line.cells[column.key]
    if cell.value is not None and cell.value.spread is not None:
        return f"± {cell.value.spread:.{DECIMALS}f}"
    if column.key == HOURS and cell.number:
        return "GPU" if line.entry.cost("gpu_hours", board.view.places) else "CPU"
    return ""


def superscript(board: Board, cell: BoardCell, letters: Mapping[str, str]) -> str:
    """Letters of the systems that this one is significantly better than, such as `bd` or `a,c-g`; or none.

    Args:
        letters: as `letters_of`.
    """
    if not board.lettered:
        return ""
    runs: list[list[str]] = []
    before = -2
    for at, name in enumerate(letters):
        if name in cell.better_than:
            if at != before + 1:
                runs.append([])
            runs[-1].append(letters[name])
            before = at
    written = [f"{run[0]}-{run[-1]}" if len(run) > MOST_LETTERS else "".join(run) for run in runs]
    return ("," if any("-" in run_text for run_text in written) else "").join(written)


def letters_of(board: Board) -> dict[str, str]:
    """An entry's name -> the letter that superscripts call it by, in the order of the board."""
    return {line.entry.name: line.letter for line in board.lines}


def place_head(board: Board, column: BoardColumn) -> str:
    """The head of a group of columns: corpus, split and number of queries, and whether the corpus came without it."""
    assert column.place is not None, "a column of costs stands in no group"
    made = any(row.split_made_here for line in board.lines for row in line.entry.rows.get(column.place, ()))
    head = _counted(column.group, column.place)
    return f"{head} (split made here)" if made else head


def _counted(name: str, place: CollectionSplit) -> str:
    """The name of a place with its number of queries, which stands in the name already where it tells places apart."""
    count = f"{place.queries:,} queries" if place.queries else "number of queries not known"
    return name if count in name else f"{name}, {count}"


def legend_line(board: Board) -> str:
    """What the marks of a board mean, in a line."""
    cells = [cell for line in board.lines for cell in line.cells.values()]
    parts = ["bold: the best of its column"]
    parts += ["letters: the systems it is significantly better than"] if board.lettered else []
    parts += ["±: over seeds"] if _has_spread(cells) else []
    return " · ".join(parts)


def meanings(board: Board) -> list[str]:
    """A sentence each on bold values, the tests behind the marks, and ±."""
    cells = [cell for line in board.lines for cell in line.cells.values()]
    said = [board.text if "Bold" in board.text else f"Bold: the best of a column. {board.text}".strip()]
    if board.ranked is not None:
        said.append(f"Rank: by {board.ranked.key}, and the ranks that the tests allow.")
    if _has_spread(cells):
        said.append("±: the standard deviation over seeds.")
    if any(line.cells[name].number is not None for line in board.lines for name in RECALLS):
        said.append("Index recall: share of an exact search's best passages that an approximate one finds.")
    return [*said, *_left_out(board)]


def _left_out(board: Board) -> Iterator[str]:
    """A sentence per group of columns with results that were left out because they are the query itself: how many, of
    which systems. The lists of the others were measured as they are.
    """
    for place, name in board.view.places.items():
        rows = {line.entry.name: line.entry.rows.get(place, ()) for line in board.lines}
        counts = {
            system: max((row.self_matches for row in system_rows), default=0) for system, system_rows in rows.items()
        }
        if counted := "; ".join(f"{count:,} of {system}" for system, count in counts.items() if count):
            yield f"{name}: results that are the query itself are left out: {counted}."


def _has_spread(cells: Iterable[BoardCell]) -> bool:
    return any(cell.value is not None and cell.value.spread is not None for cell in cells)


def shared(board: Board) -> list[str]:
    """What all shown systems that have such a label have in common, which therefore needs no column."""
    labels = [
        f"{head.lower()} {' '.join(board.values(name))}"
        for name, head in HEADS.items()
        if name != "recipe" and name not in board.fields and board.values(name)
    ]
    return [f"All that are trained: {', '.join(labels)}."] if labels else []


def range_of(board: Board, line: BoardLine) -> str:
    """The ranks that the tests allow a system, such as `1-3`; empty where it was not tested, or only one is left."""
    ranks = line.cells[board.ranked.key].ranks if board.ranked else None
    return "" if ranks is None or ranks.best == ranks.worst else f"{ranks.best}-{ranks.worst}"


def rank_text(board: Board, line: BoardLine) -> str:
    """A rank as exports print it: `2 (1-3)`, or a dash."""
    rank, allowed = board.ranks.get(line.entry.name), range_of(board, line)
    return MISSING if rank is None else f"{rank} ({allowed})" if allowed else f"{rank}"
