"""A person's judgements of search results, kept beside a verdict, and the labelled collection that they make.

    judgements/journal.jsonl      every judgement in the order given; lines are appended, none is ever changed
    judgements/corpus.jsonl(.gz)  the verdict's passages: a hard link, or a copy where links are not possible
    judgements/queries.jsonl      the judged queries
    judgements/qrels/test.tsv     the last judgement of each query and passage

The last three follow from the first and are written anew after each judgement, so the folder is a BEIR collection at
any time: `midmask evaluate --corpus beir:VERDICT/judgements --split test`.

Several processes may judge at once. A judgement is one write to the end of the journal, on disk before `add` returns,
under a lock that is gone with its process. A line that a kill has cut short is left out and counted.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from midmask.artifact import Place
from midmask.corpora.export import write_qrels
from midmask.errors import UserError

FOLDER = "judgements"
JOURNAL, QUERIES, QRELS, LOCK = "journal.jsonl", "queries.jsonl", "qrels/test.tsv", "journal.lock"
PASSAGES = ("corpus.jsonl", "corpus.jsonl.gz")

JudgingMode = Literal["side by side", "blind", "next"]


@dataclass(frozen=True)
class Judgement:
    """One judgement of one passage for one query.

    grade: 1 relevant, 0 not relevant; None withdraws what was judged before. left, right: the two systems that were
    compared, if any. team: which of them proposed the passage, in a blind comparison. at: when, in UTC.
    """

    query: str
    doc_id: str
    grade: int | None
    mode: JudgingMode = "side by side"
    left: str = ""
    right: str = ""
    team: str = ""
    at: str = ""

    @property
    def query_id(self) -> str:
        return query_id(self.query)


def query_id(text: str) -> str:
    """The id of a typed query: texts that differ in white space alone are one query."""
    return "q" + hashlib.sha256(" ".join(text.split()).encode("utf-8", "replace")).hexdigest()[:15]


@dataclass(frozen=True)
class JudgementJournal:
    """Judgements in the order given. unreadable: lines that are no judgement, such as one that a kill cut short."""

    rows: tuple[Judgement, ...]
    unreadable: int = 0

    @cached_property
    def last(self) -> Mapping[tuple[str, str], Judgement]:
        """(query id, document id) -> the judgement that counts; withdrawn ones are left out."""
        found = {(row.query_id, row.doc_id): row for row in self.rows}
        return {pair: row for pair, row in found.items() if row.grade is not None}

    @cached_property
    def grades(self) -> Mapping[str, Mapping[str, int]]:
        """Query id -> document id -> grade."""
        found: dict[str, dict[str, int]] = {}
        for (query, doc_id), row in self.last.items():
            found.setdefault(query, {})[doc_id] = int(row.grade or 0)
        return found

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
    """ValueError, TypeError or KeyError if the row is no judgement."""
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
