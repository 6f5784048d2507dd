"""The leaderboard as a table: chosen systems × (corpus, split, measure), with costs, ranks, and how all of it reads."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pandas as pd

from midmask.core.words import MISSING, clock, size
from midmask.evaluation.rendering import csv_cell
from midmask.evaluation.statistics.ranks import competition_ranks, label
from midmask.leaderboard.entries import LABELS, Entry, Mark, Marks
from midmask.leaderboard.rows import CollectionSplit

HOURS, BYTES, SEARCH = "Training", "Per passage", "Search"
COSTS = {HOURS: "train_seconds", BYTES: "bytes_per_passage", SEARCH: "search_ms_per_query"}
"""Column -> the cost that it shows; hours by the clock."""

RECALLS = {"Index recall@10": "index_recall_at_10", "Index recall@100": "index_recall_at_100"}
"""Column -> what approximate searches find of exact ones' best passages."""

SYSTEM, RANK, ALLOWED, DATE = "System", "Rank", "Ranks allowed", "Date"

HEADS = {
    "recipe": SYSTEM,
    "pretrain_on": "Pre-trained on",
    "representation": "Representation",
    "protocol": "Protocol",
    "backbone": "Backbone",
}
"""Each of `LABELS` -> the head of its column."""


@dataclass(frozen=True)
class View:
    """The choices that determine a board: its columns and systems."""

    places: Mapping[CollectionSplit, str]  # with their names (`rows.place_names`)
    measures: tuple[str, ...]
    trials: bool = False
    find: str = ""  # words that a system's name must contain; case is ignored


class MeasuredColumn(NamedTuple):
    """A measure at a place."""

    head: str
    place: CollectionSplit
    measure: str


@dataclass(frozen=True)
class Board:
    """The systems of a view, the best of the first measured column first, those without a value there last."""

    view: View
    columns: tuple[MeasuredColumn, ...]  # those that any system has a value of
    systems: Mapping[str, Entry]  # letter that superscripts call it by -> system
    marks: Marks

    @property
    def ranked(self) -> MeasuredColumn:
        """The column that ranks are counted in; a board with systems has one."""
        return self.columns[0]

    @cached_property
    def letters(self) -> dict[str, str]:
        """A system's name -> its letter."""
        return {entry.name: letter for letter, entry in self.systems.items()}

    @cached_property
    def ranks(self) -> dict[str, int]:
        """A system's name -> its rank by the mean of the ranked column; equal means share one."""
        values = {entry.name: entry.value(*self.ranked[1:]) for entry in self.systems.values()}
        return competition_ranks({name: value.mean for name, value in values.items() if value is not None})

    @cached_property
    def fields(self) -> list[str]:
        """Labels in which the systems that have one differ."""
        return [name for name in LABELS[1:] if len(self.values(name)) > 1]

    def values(self, name: str) -> set[str]:
        """The distinct values of a label over the systems. BM25 has no pre-training and is its own representation, and
        a model folder has no protocol.
        """
        values = ((entry.labels[name], entry.recipe) for entry in self.systems.values())
        return {value for value, recipe in values if value not in ("", "none", recipe)}

    def mark(self, entry: Entry, column: MeasuredColumn) -> Mark:
        return self.marks.cells.get((entry.name, column.place, column.measure), Mark())

    def allowed(self, entry: Entry) -> str:
        """The ranks that the tests allow a system, such as `1-3`; empty where it was not tested, or one is left."""
        ranks = self.mark(entry, self.ranked).ranks
        return "" if ranks is None or ranks.best == ranks.worst else f"{ranks.best}-{ranks.worst}"

    def cost(self, entry: Entry, column: str) -> float | None:
        """A cost or recall of a system, in the unit of its column."""
        value = entry.cost({**COSTS, **RECALLS}[column], self.view.places)
        return value / 3600 if value is not None and column == HOURS else value

    def is_best(self, entry: Entry, column: MeasuredColumn) -> bool:
        """Whether no system has a higher mean; sums differ in the last bit."""
        value = entry.value(*column[1:])
        return value is not None and value.mean >= self._tops[column] - 1e-12

    @cached_property
    def _tops(self) -> dict[MeasuredColumn, float]:
        by_column = {column: [entry.value(*column[1:]) for entry in self.systems.values()] for column in self.columns}
        return {column: max(value.mean for value in values if value) for column, values in by_column.items()}


def places_of(entries: Sequence[Entry]) -> list[CollectionSplit]:
    """The places where systems were evaluated, those with most systems first."""
    counts = Counter(place for entry in entries for place in entry.rows)
    return sorted(counts, key=lambda place: (-counts[place], place))


def newest_place(entries: Sequence[Entry], corpus: str = "") -> CollectionSplit:
    """The place of the newest results. Among places of one run: the one with most systems, then test. Trials of
    sweeps count where there is nothing else: a board shows them only if it is asked to.

    Args:
        entries: at least one. corpus: the short name of a corpus, to look at no other; empty: all.
    """
    candidates = [entry for entry in entries if any(corpus in ("", place.corpus) for place in entry.rows)]
    results = [entry for entry in candidates if not entry.trial] or candidates
    counts = Counter(place for entry in results for place in entry.rows if corpus in ("", place.corpus))
    runs = {place: [row.run for entry in results for row in entry.rows.get(place, ())] for place in counts}
    started = {place: max(run.started for run in place_runs) for place, place_runs in runs.items()}
    return max(started, key=lambda place: (started[place], counts[place], place.split == "test", place))


def board_of(entries: Sequence[Entry], view: View, mark: Callable[[Sequence[Entry]], Marks]) -> Board:
    """The board of one view, without systems that were evaluated at none of its places, and without empty columns.

    Args:
        mark: says which of the shown systems differ significantly, as `entries.marks_of`.
    """
    shown = [entry for entry in entries if _is_selected(entry, view)]
    alone = len(view.places) == 1
    all_columns = [
        MeasuredColumn(measure if alone else f"{name} {measure}", place, measure)
        for place, name in view.places.items()
        for measure in view.measures
    ]
    columns = tuple(column for column in all_columns if any(entry.value(*column[1:]) for entry in shown))

    def order(entry: Entry) -> list[tuple[bool, float]]:
        values = (entry.value(*column[1:]) for column in columns)
        return [(value is None, -value.mean if value else 0.0) for value in values]

    systems = {label(number): entry for number, entry in enumerate(sorted(shown, key=order) if columns else [])}
    return Board(view, columns, systems, mark(shown))


def _is_selected(entry: Entry, view: View) -> bool:
    name = entry.name.lower()
    return (
        (view.trials or not entry.trial)
        and all(word in name for word in view.find.lower().split())
        and any(place in entry.rows for place in view.places)
    )


def table_of(board: Board) -> pd.DataFrame:
    """A row for each system under its letter: ranks, labels in which systems differ, measures as texts that sort by
    their means, costs as numbers; without columns that are empty throughout.
    """
    frame = pd.DataFrame([_line(board, entry) for entry in board.systems.values()], index=list(board.systems))
    return frame.loc[:, (frame.notna() & (frame != "")).any()].map(csv_cell)  # browsers keep it as CSV


def _line(board: Board, entry: Entry) -> dict[str, object]:
    runs = list(entry.runs(board.view.places).values())
    return {
        RANK: board.ranks.get(entry.name),
        ALLOWED: board.allowed(entry),
        SYSTEM: entry.recipe,
        **{HEADS[name]: entry.labels[name] for name in board.fields},
        "Settings": ", ".join(filter(None, (entry.note, "trial" if entry.trial else ""))),
        **{column.head: measured(board, entry, column) for column in board.columns},
        **{name: board.cost(entry, name) for name in (*COSTS, *RECALLS)},
        "Trained on": device(board, entry),
        "Seeds": " ".join(sorted(row.seed.strip() for row in runs)),
        DATE: entry.started.date(),
    }


def measured(board: Board, entry: Entry, column: MeasuredColumn) -> str:
    """A mean, its spread over seeds, and the systems that it is significantly better than: `0.8091 ± 0.0031 a,c-g`."""
    value = entry.value(*column[1:])
    if value is None:
        return ""
    spread = f"± {value.spread:.4f}" if value.spread is not None else ""
    return " ".join(filter(None, (f"{value.mean:.4f}", spread, superscript(board, entry, column))))


MOST_LETTERS = 2
"""Letters that follow each other and are written one by one; of more, the first and the last."""


def superscript(board: Board, entry: Entry, column: MeasuredColumn) -> str:
    """Letters of the systems that this one is significantly better than, such as `bd` or `a,c-g`; or none."""
    better_than = board.mark(entry, column).better_than
    if not better_than:
        return ""
    runs: list[list[str]] = []
    before = -2
    for at, (name, letter) in enumerate(board.letters.items()):
        if name in better_than:
            if at != before + 1:
                runs.append([])
            runs[-1].append(letter)
            before = at
    written = [f"{run[0]}-{run[-1]}" if len(run) > MOST_LETTERS else "".join(run) for run in runs]
    return ("," if any("-" in run_text for run_text in written) else "").join(written)


def device(board: Board, entry: Entry) -> str:
    """What the hours of trainings were measured on; empty where nothing was trained."""
    if not board.cost(entry, HOURS):
        return ""
    return "GPU" if entry.cost("gpu_hours", board.view.places) else "CPU"


def cost_text(column: str, value: float) -> str:
    """A cost or recall with its unit."""
    if column in RECALLS:
        return f"{value:.4f}"
    return clock(3600 * value) if column == HOURS else size(value) if column == BYTES else f"{value:.3g} ms"


def rank_text(board: Board, entry: Entry) -> str:
    """A rank with those that the tests allow: `2 (1-3)`, or a dash."""
    rank, allowed = board.ranks.get(entry.name), board.allowed(entry)
    return MISSING if rank is None else f"{rank} ({allowed})" if allowed else f"{rank}"


def place_text(board: Board, place: CollectionSplit) -> str:
    """Corpus, split and number of queries of a place, and whether the corpus came without the split."""
    made = any(row.split_made_here for entry in board.systems.values() for row in entry.rows.get(place, ()))
    count = f"{place.queries:,} queries" if place.queries else "number of queries not known"
    name = board.view.places[place]
    head = name if count in name else f"{name}, {count}"  # it tells some places apart
    return f"{head} (split made here)" if made else head


def meanings(board: Board) -> list[str]:
    """A sentence each on bold values, the tests behind the marks, and ±."""
    tested = board.marks.text
    sentences = [tested if "Bold" in tested else f"Bold: the best of a column. {tested}".strip()]
    sentences.append(f"Rank: by {board.ranked.head}, and the ranks that the tests allow.")
    sentences.append("±: the standard deviation over seeds. Letters: the systems that it is significantly better than.")
    if any(board.cost(entry, name) is not None for entry in board.systems.values() for name in RECALLS):
        sentences.append("Index recall: share of an exact search's best passages that an approximate one finds.")
    return sentences


def shared(board: Board) -> str:
    """What all shown systems that have such a label have in common, which therefore needs no column."""
    labels = [
        f"{HEADS[name].lower()} {' '.join(board.values(name))}"
        for name in LABELS[1:]
        if name not in board.fields and board.values(name)
    ]
    return f"All that are trained: {', '.join(labels)}." if labels else ""
