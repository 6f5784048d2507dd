"""A person's judgements of search results, kept beside a verdict as a labelled collection.

    judgements/qrels/test.tsv     the grade of each judged query and passage: 1 relevant, 0 not relevant
    judgements/queries.jsonl      the judged queries
    judgements/corpus.jsonl.gz    the verdict's passages: a link to its collection

So the folder is a BEIR collection at any time: `midmask evaluate --corpus beir:VERDICT/judgements --split test`.
Several processes may judge at once: a judgement is added under a lock that is gone with its process, and each file is
written whole or not at all.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from midmask.corpora.writer import write_qrels
from midmask.errors import UserError
from midmask.store.place import Place

FOLDER = "judgements"
QUERIES, QRELS, LOCK = "queries.jsonl", "qrels/test.tsv", "lock"
PASSAGES = "corpus.jsonl.gz"


def query_id(text: str) -> str:
    """The id of a typed query: texts that differ in white space alone are one query."""
    return "q" + hashlib.sha256(" ".join(text.split()).encode("utf-8", "replace")).hexdigest()[:15]


@dataclass(frozen=True)
class Judgements:
    """All judgements, in the order in which they were first given."""

    queries: Mapping[str, str]  # query id -> text
    grades: Mapping[tuple[str, str], int]  # (query id, document id) -> 1 relevant, 0 not relevant

    def grade(self, query: str, doc_id: str) -> int | None:
        """The grade of a passage for the text of a query; None if it was not judged."""
        return self.grades.get((query_id(query), doc_id))

    def counts(self) -> tuple[int, int, int]:
        """Judged queries, passages judged relevant, and passages judged not relevant."""
        relevant = sum(self.grades.values())
        return len(self.queries), relevant, len(self.grades) - relevant


class JudgementStore:
    """The judgements of a verdict.

    Args:
        folder: the verdict's. collection: BEIR folder of its passages.
    """

    def __init__(self, folder: Path, collection: Path) -> None:
        self.folder = folder / FOLDER
        self._collection = collection

    def judge(self, query: str, doc_id: str, grade: int | None) -> Judgements:
        """Keeps a judgement in place of an earlier one of the same passage; returns all there are now.

        Args:
            grade: 1 relevant, 0 not relevant, None withdraws the judgement.

        Raises:
            UserError: for an empty query, another grade, or a folder that cannot be written.
        """
        if not query.strip() or grade not in (0, 1, None):
            raise UserError(f"query {query!r}, grade {grade!r}: a judgement has a query, and a grade of 1, 0 or None")
        try:
            with self._locked():
                known, key = self.read(), (query_id(query), doc_id)
                grades = {pair: value for pair, value in {**known.grades, key: grade}.items() if value is not None}
                judged = {name for name, _ in grades}
                texts = {**known.queries, key[0]: known.queries.get(key[0], " ".join(query.split()))}
                judgements = Judgements({name: text for name, text in texts.items() if name in judged}, grades)
                self._write(judgements)
        except OSError as error:
            raise UserError(f"{self.folder}: the judgement cannot be written ({error.strerror or error})") from None
        return judgements

    def read(self) -> Judgements:
        """All judgements.

        Raises:
            UserError: if a file of theirs was changed to what cannot be read.
        """
        try:
            _, *rows = (self.folder / QRELS).read_text("utf-8").splitlines()
            lines = [json.loads(line) for line in (self.folder / QUERIES).read_text("utf-8").splitlines()]
            grades = {(query, doc_id): int(grade) for query, doc_id, grade in (row.split("\t") for row in rows)}
        except FileNotFoundError:
            return Judgements({}, {})
        except ValueError as error:
            raise UserError(f"{self.folder}: the judgements cannot be read ({error}); move the folder away") from None
        judged = {query for query, _ in grades}
        return Judgements({line["_id"]: line["text"] for line in lines if line["_id"] in judged}, grades)

    def _write(self, judgements: Judgements) -> None:
        """Queries before their judgements, so that a kill between leaves no judgement without its query."""
        passages = self.folder / PASSAGES
        if not passages.exists():
            passages.unlink(missing_ok=True)
            # By its name, so that the link holds too when the collection is made again.
            passages.symlink_to(os.path.relpath(self._collection / PASSAGES, self.folder))
        place = Place(str(self.folder))
        lines = [json.dumps({"_id": name, "text": text}) for name, text in judgements.queries.items()]
        (place / QUERIES).write("".join(f"{line}\n" for line in lines).encode())
        write_qrels(place / QRELS, ((query, doc_id, grade) for (query, doc_id), grade in judgements.grades.items()))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other processes and threads from writing; the system releases the lock of a process that is killed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / LOCK, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
