"""A person's judgements of search results: kept beside a verdict, as a labelled collection, and held against it.

    judgements/journal.jsonl      every judgement in the order given; lines are appended, none is ever changed
    judgements/corpus.jsonl(.gz)  the verdict's passages: a hard link, or a copy where links are not possible
    judgements/queries.jsonl      the judged queries
    judgements/qrels/test.tsv     the last judgement of each query and passage

The last three follow from the first and are written anew after each judgement, so the folder is a BEIR collection at
any time: `midmask evaluate --corpus beir:VERDICT/judgements --split test`. Several processes may judge at once. A
judgement is one write to the end of the journal, on disk before `add` returns, under a lock that is gone with its
process. A line that a kill has cut short is left out and counted.

Blind comparison is team-draft interleaving (Radlinski, Kurup and Joachims 2008, algorithm 2): both systems draft
passages into one list in turns; in each round a coin decides who goes first, and each takes its best passage that is
not in the list yet. Each passage that is found relevant is a credit for its team; on a query, the system with more
credits wins. The coin is a hash of the query and the two names, so that the same query shows the same list again and
neither the order of the names nor the position of a system on a page has a say.

Passages without a judgement count as not relevant, as in an evaluation of the same labelled set. That is harder on a
system whose results were judged less, so the share of judged results stands beside each value, and the pool of all
systems' results is there to be judged. A query counts once one of its passages was judged relevant.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from scipy import stats

from midmask.choice.verdict import Verdict
from midmask.core.randomness import hash64, uniform
from midmask.corpora.writer import write_qrels
from midmask.errors import UserError
from midmask.evaluation.measures import by_query, evaluate
from midmask.evaluation.statistics.intervals import ALPHA
from midmask.evaluation.statistics.pairing import pair_systems
from midmask.evaluation.statistics.significance import compare
from midmask.store.place import Place

FOLDER = "judgements"
JOURNAL, QUERIES, QRELS, LOCK = "journal.jsonl", "queries.jsonl", "qrels/test.tsv", "journal.lock"
PASSAGES = ("corpus.jsonl", "corpus.jsonl.gz")

JudgingMode = Literal["side by side", "blind", "next"]


@dataclass(frozen=True)
class Judgement:
    """One judgement of one passage for one query."""

    query: str
    doc_id: str
    grade: int | None  # 1 relevant, 0 not relevant; None withdraws the judgement before
    mode: JudgingMode = "side by side"
    left: str = ""  # left, right: the two systems that were compared, if any
    right: str = ""
    team: str = ""  # which of them proposed the passage, in a blind comparison
    at: str = ""  # time in UTC

    @property
    def query_id(self) -> str:
        return query_id(self.query)


def query_id(text: str) -> str:
    """The id of a typed query: texts that differ in white space alone are one query."""
    return "q" + hashlib.sha256(" ".join(text.split()).encode("utf-8", "replace")).hexdigest()[:15]


@dataclass(frozen=True)
class JudgementJournal:
    """The judgements of a journal, in the order given."""

    rows: tuple[Judgement, ...]
    unreadable: int = 0  # number of lines that are no judgement, such as one that a kill cut short

    @cached_property
    def last(self) -> Mapping[tuple[str, str], Judgement]:
        """(query id, document id) -> the judgement that counts; withdrawn ones are left out."""
        latest = {(row.query_id, row.doc_id): row for row in self.rows}
        return {pair: row for pair, row in latest.items() if row.grade is not None}

    @cached_property
    def grades(self) -> Mapping[str, Mapping[str, int]]:
        """Query id -> document id -> grade."""
        grades: dict[str, dict[str, int]] = {}
        for (query, doc_id), row in self.last.items():
            grades.setdefault(query, {})[doc_id] = int(row.grade or 0)
        return grades

    @cached_property
    def queries(self) -> Mapping[str, str]:
        """Query id -> text of the queries with a judgement that counts, in the order in which they were first met."""
        first: dict[str, str] = {}
        for row in self.rows:
            first.setdefault(row.query_id, " ".join(row.query.split()))
        return {name: text for name, text in first.items() if name in self.grades}

    def counts(self) -> tuple[int, int, int]:
        """Judged queries, passages judged relevant, and passages judged not relevant."""
        grades = [row.grade for row in self.last.values()]
        return len(self.queries), sum(bool(grade) for grade in grades), sum(not grade for grade in grades)


class JudgementStore:
    """The judgements of a verdict.

    Args:
        folder: the verdict's. collection: BEIR folder of its passages.
    """

    def __init__(self, folder: Path, collection: Path) -> None:
        self.folder = folder / FOLDER
        self._collection = collection
        self._known: tuple[tuple[int, int], JudgementJournal] = ((0, 0), JudgementJournal(()))

    def add(self, judgement: Judgement) -> JudgementJournal:
        """Keeps a judgement; returns all there are now.

        Raises:
            UserError: for an empty query, a grade that is not 0, 1 or None, or a folder that cannot be written.
        """
        if not judgement.query.strip() or judgement.grade not in (0, 1, None):
            raise UserError(f"judgement {judgement!r}: wanted are a query and grade 1, 0 or None")
        row = {**asdict(judgement), "at": judgement.at or datetime.now(UTC).isoformat(timespec="milliseconds")}
        try:
            with self._locked():
                _append(self.folder / JOURNAL, json.dumps(row, ensure_ascii=True))
                found = self.read()
                self._write_collection(found)
        except OSError as error:
            raise UserError(f"{self.folder}: the judgement cannot be written ({error.strerror or error})") from None
        return found

    def read(self) -> JudgementJournal:
        """All judgements; the journal is read again only if it has changed."""
        path = self.folder / JOURNAL
        try:
            found = path.stat()
            state = (found.st_mtime_ns, found.st_size)
            if state != self._known[0]:
                self._known = (state, _parse(path.read_bytes()))
        except FileNotFoundError:
            self._known = ((0, 0), JudgementJournal(()))
        return self._known[1]

    def _write_collection(self, found: JudgementJournal) -> None:
        """Writes the files of the BEIR collection, each whole or not at all."""
        place = Place(str(self.folder))
        self._link_passages()
        lines = [json.dumps({"_id": name, "text": text}, ensure_ascii=False) for name, text in found.queries.items()]
        (place / QUERIES).write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
        ordered = ((query, doc_id, grade) for query in found.queries for doc_id, grade in found.grades[query].items())
        write_qrels(place / QRELS, ordered)

    def _link_passages(self) -> None:
        """Links the passages, again if the collection's file was replaced."""
        for name in PASSAGES:
            source, target = self._collection / name, self.folder / name
            if not source.exists():
                target.unlink(missing_ok=True)
            elif not target.exists() or not _is_same(source, target):
                target.unlink(missing_ok=True)
                Place(str(target)).copy_from(Place(str(source.resolve())))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other processes and threads from writing; the system releases the lock of a process that is killed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / LOCK, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _append(path: Path, line: str) -> None:
    """Adds a line in one write, and a line's end before it if the last line lacks its own."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        data = (b"\n" if torn else b"") + line.encode() + b"\n"
        if os.write(descriptor, data) != len(data):
            raise OSError("the disk is full")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parse(data: bytes) -> JudgementJournal:
    """The judgements in the bytes of a journal; a line that is none is counted."""
    rows, unreadable = [], 0
    for line in data.splitlines():
        try:
            rows.append(_judgement(json.loads(line)))
        except (ValueError, TypeError, KeyError, RecursionError):
            unreadable += bool(line.strip())
    return JudgementJournal(tuple(rows), unreadable)


def _judgement(row: Mapping[str, Any]) -> Judgement:
    """The judgement in a row. Raises ValueError, TypeError or KeyError if the row is no judgement."""
    found = Judgement(**row)
    texts = (found.query, found.doc_id, found.mode, found.left, found.right, found.team, found.at)
    if not all(isinstance(text, str) for text in texts) or found.grade not in (0, 1, None) or not found.query.strip():
        raise ValueError("not a judgement")
    return found


def _is_same(source: Path, target: Path) -> bool:
    """Whether two files are one, or the second is a copy that was made after the first had last changed."""
    one, other = source.stat(), target.stat()
    same_file = (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
    return same_file or (one.st_size == other.st_size and other.st_mtime_ns >= one.st_mtime_ns)


SALT = "team-draft"


class DraftPick(NamedTuple):
    """A passage of an interleaved list, and the system that proposed it."""

    doc_id: str
    team: str


def team_draft(lists: Mapping[str, Sequence[str]], query: str, k: int = 10) -> list[DraftPick]:
    """The interleaved list of two systems, at most `k` long. It ends where a system has no passage left to propose, so
    that the teams differ by one passage at most.

    Args:
        lists: system -> its ranked document ids; two systems. query: text of the query.

    Raises:
        ValueError: for any other number of systems.
    """
    if len(lists) != 2:
        raise ValueError(f"{len(lists)} systems; a team draft is between two")
    names = sorted(lists)
    tosses = uniform([f"{query_id(query)}/{names[0]}/{names[1]}/{turn}" for turn in range(k)], SALT)
    chosen: list[DraftPick] = []
    for turn in range((k + 1) // 2):
        order = names if tosses[turn] < 0.5 else names[::-1]
        for team in order:
            taken = {pick.doc_id for pick in chosen}
            left = {name: next((one for one in lists[name] if one not in taken), None) for name in names}
            proposed = left[team]
            if proposed is None or len(chosen) == k or (team == order[0] and None in left.values()):
                return chosen
            chosen.append(DraftPick(proposed, team))
    return chosen


@dataclass(frozen=True)
class BlindPreference:
    """The result of blind comparisons of two systems."""

    wins: int  # queries on which the first system has more credits
    losses: int  # queries on which it has fewer
    ties: int  # queries with equal credits, or without any
    share: float  # fraction of the decided queries that the first wins
    low: float  # low, high: interval of `share` (Clopper and Pearson 1934); 0 … 1 where no query is decided
    high: float
    p: float  # of a two-sided sign test

    @property
    def significant(self) -> bool:
        return self.p < ALPHA


def blind_judgements(journal: JudgementJournal, first: str, second: str) -> dict[tuple[str, str], Judgement]:
    """(query id, document id) -> the last judgement of it in a blind comparison of these two systems; withdrawn ones
    are left out.
    """
    pair = {first, second}
    blind = [row for row in journal.rows if row.mode == "blind" and {row.left, row.right} == pair and row.team in pair]
    last = {(row.query_id, row.doc_id): row for row in blind}
    return {key: row for key, row in last.items() if row.grade is not None}


def interleaving_preference(journal: JudgementJournal, first: str, second: str) -> BlindPreference:
    """Which of two systems is preferred, by the blind judgements of these two. A passage that was judged not relevant
    gives no credit; of several judgements of a passage the last one counts.
    """
    judged = blind_judgements(journal, first, second).values()
    credits = Counter((row.query_id, row.team) for row in judged if row.grade)
    signs = [credits[query, first] - credits[query, second] for query in {row.query_id for row in judged}]
    wins, losses = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    ties = len(signs) - wins - losses
    if not wins + losses:
        return BlindPreference(0, 0, ties, 0.5, 0.0, 1.0, 1.0)
    test = stats.binomtest(wins, wins + losses)
    ends = test.proportion_ci(1 - ALPHA)
    share = wins / (wins + losses)
    return BlindPreference(wins, losses, ties, share, float(ends.low), float(ends.high), float(test.pvalue))


MEASURE = "nDCG@10"
CUTOFF = 10

FEWEST = 10
"""Judged queries below which no sentence compares the judgements with the verdict."""

RankedBySystem = Mapping[str, Mapping[str, Sequence[str]]]
"""System -> query id -> its ranked document ids, the best first."""

GradesByQuery = Mapping[str, Mapping[str, int]]
"""Query id -> document id -> grade."""


@dataclass(frozen=True)
class JudgedSystem:
    """The result of one system on the judged queries."""

    label: str
    queries: int
    value: float  # mean nDCG@10; passages without a judgement count as not relevant
    judged: float  # fraction of the first ten passages, over all these queries, that have a judgement


@dataclass(frozen=True)
class JudgedPair:
    """The comparison of two systems on the judged queries."""

    first: str
    second: str
    wins: int
    ties: int
    losses: int
    difference: float  # mean of the first's nDCG@10 less the second's
    low: float  # low, high: interval of `difference` with the verdict's coverage; infinite for a single query
    high: float

    @property
    def queries(self) -> int:
        return self.wins + self.ties + self.losses


def answerable(grades: GradesByQuery) -> list[str]:
    """Ids of the queries with a relevant passage."""
    return [query for query, judged in grades.items() if any(grade > 0 for grade in judged.values())]


def values_of(lists: Mapping[str, Sequence[str]], grades: GradesByQuery) -> pa.Table:
    """nDCG@10 of one system: query_id, measure, value, for each answerable query.

    Args:
        lists: query id -> ranked document ids, of all answerable queries.
    """
    answered = answerable(grades)
    rows = [(query, doc_id, rank) for query in answered for rank, doc_id in enumerate(lists[query], start=1)]
    columns = [[row[column] for row in rows] for column in range(3)]
    types = (pa.string(), pa.string(), pa.int32())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    ranked = pa.table(arrays, names=["query_id", "doc_id", "rank"])
    judged = [("test", query, doc_id, grade) for query in answered for doc_id, grade in grades[query].items()]
    qrels = pa.table(
        [list(column) for column in zip(*judged, strict=True)], names=["split", "query_id", "doc_id", "grade"]
    )
    return evaluate(ranked, qrels, "test", [MEASURE])


def judged_systems(lists: RankedBySystem, grades: GradesByQuery) -> list[JudgedSystem]:
    """The result of each system, the best first; empty while no query is answerable."""
    answered = answerable(grades)
    if not answered:
        return []
    systems = []
    for label, ranked in lists.items():
        values = by_query(values_of(ranked, grades), MEASURE).values()
        top = [doc_id in grades[query] for query in answered for doc_id in ranked[query][:CUTOFF]]
        systems.append(JudgedSystem(label, len(answered), sum(values) / len(answered), sum(top) / max(1, len(top))))
    return sorted(systems, key=lambda system: -system.value)


def judged_pair(
    lists: RankedBySystem, grades: GradesByQuery, first: str, second: str, coverage: float
) -> JudgedPair | None:
    """Compares the first system with the second; None while no query is answerable.

    Args:
        coverage: confidence level of the interval, such as 0.9.
    """
    if not answerable(grades):
        return None
    tables = {label: values_of(lists[label], grades) for label in (first, second)}
    (row,) = compare(tables, measure=MEASURE, baseline=second, correction=None, correction_alpha=1 - coverage)
    counts = pair_systems(tables[first], tables[second], MEASURE)
    return JudgedPair(first, second, counts.wins, counts.ties, counts.losses, row.difference, row.low, row.high)


def plain_words(pair: JudgedPair, verdict: Verdict) -> list[str]:
    """Sentences on the judgements of a pair, and on whether they agree with the verdict's estimate."""
    queries = "1 judged query" if pair.queries == 1 else f"{pair.queries} judged queries"
    counts = f"On {queries}, {pair.first} is better on {pair.wins}, equal on {pair.ties} and worse on {pair.losses}."
    if pair.queries < FEWEST:
        return [counts, f"That is too few to compare with the verdict: judge at least {FEWEST} queries."]
    level = f"{verdict.calibration.level:.0%}"
    shown = f"Its {MEASURE} differs by {pair.difference:+.3f} ({level} interval {pair.low:+.3f} to {pair.high:+.3f})."
    estimate = next((system for system in verdict.systems if system.label == pair.first), None)
    if estimate is None or pair.second != verdict.baseline:
        return [counts, shown, f"The verdict estimated differences from {verdict.baseline} only."]
    said = (
        f"The verdict expected {estimate.gain:+.3f} {verdict.measure} "
        f"({estimate.gain_low:+.3f} to {estimate.gain_high:+.3f})."
    )
    better = f"{pair.first if pair.low > 0 else pair.second} is better"
    if pair.low > estimate.gain_high:
        outcome = "Your judgements show a larger gain than the verdict expected."
    elif pair.high < estimate.gain_low:
        outcome = "Your judgements show a smaller gain than the verdict expected"
        outcome += f", and {better}." if pair.high < 0 else "."
    elif pair.low > 0 or pair.high < 0:
        outcome = f"Your judgements agree with the verdict, and show by themselves that {better}."
    else:
        outcome = "Your judgements do not contradict the verdict; by themselves they do not show a difference yet."
    return [counts, shown, said, outcome]


def pool(lists: Mapping[str, Sequence[str]], query: str, judged: Mapping[str, int], depth: int = CUTOFF) -> list[str]:
    """Unjudged passages among the first `depth` of any system for a query, in the order of a hash, which does not show
    who found them nor how high.

    Args:
        lists: system -> its ranked document ids. judged: document id -> grade, of this query.
    """
    unjudged = {doc_id for ranked in lists.values() for doc_id in ranked[:depth]} - judged.keys()
    names = sorted(unjudged)
    if not names:
        return []
    keys = hash64([f"{query_id(query)}/{name}" for name in names], "pool").tolist()
    return [name for _, name in sorted(zip(keys, names, strict=True))]


def next_to_judge(
    queries: Iterable[str],
    lists_of: Callable[[str], Mapping[str, Sequence[str]]],
    grades: GradesByQuery,
    skipped: frozenset[tuple[str, str]] = frozenset(),
) -> tuple[str, list[str]] | None:
    """The first query whose pool is not judged to its end, and what is left of the pool; None if there is none.

    Args:
        queries: texts, those to be judged first at the front. lists_of: text -> system -> ranked document ids.
        skipped: (query id, document id) of passages to leave out.
    """
    for query in queries:
        left = pool(lists_of(query), query, grades.get(query_id(query), {}))
        left = [doc_id for doc_id in left if (query_id(query), doc_id) not in skipped]
        if left:
            return query, left
    return None
