"""Queries that were made before an interruption, so that a model or a server is not asked twice.

    <cache>/<name>.jsonl   {"key": …, "queries": […], "tokens": …} a line

A file is written whole and never changed, since the files of a killed attempt may be links to it. A key is a hash of
the passage and of all that decides its queries: answers that other settings have made are there and not found.
"""

import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.identity import fingerprint
from midmask.queries.made import Passage

EVERY_ANSWERS, EVERY_SECONDS = 64, 10.0
"""Answers, and seconds, after which a file is written: what a kill may lose."""


@dataclass(frozen=True)
class Answer:
    """The queries of one passage, best first or in no order. tokens: that a server has counted for them."""

    queries: tuple[str, ...]
    tokens: int = 0


class QueryCache:
    """Answers by passage, under one identity. Not for several threads.

    Args:
        place: where the files lie; none: answers are remembered in this process alone.
        identity: what decides the queries of a passage, as plain data.

    Raises:
        UserError: if a file is damaged.
    """

    def __init__(self, place: Place | None, identity: Mapping[str, Any]) -> None:
        self._place, self._identity = place, fingerprint(dict(identity))
        self._known: dict[str, Answer] = {}
        self._pending: list[str] = []
        self._written = time.monotonic()
        for name in place.names() if place else []:
            if place and name.endswith(".jsonl"):
                self._load(place / name)

    def _load(self, file: Place) -> None:
        try:
            for line in file.read().decode().splitlines():
                row = json.loads(line)
                self._known[str(row["key"])] = Answer(tuple(map(str, row["queries"])), int(row["tokens"]))
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{file} is damaged: a line of it is no answer. Delete the file and run the same command again; the "
                "queries in it are then made anew"
            ) from None

    def find(self, passage: Passage) -> Answer | None:
        """The answer for a passage; None if there is none yet."""
        return self._known.get(self._key(passage))

    def add(self, passage: Passage, answer: Answer) -> None:
        """Remembers an answer; `flush` makes sure that it is on disk."""
        key = self._key(passage)
        self._known[key] = answer
        self._pending.append(
            json.dumps({"key": key, "queries": list(answer.queries), "tokens": answer.tokens}, ensure_ascii=False)
        )
        if len(self._pending) >= EVERY_ANSWERS or time.monotonic() - self._written >= EVERY_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Writes the answers that are not on disk yet, as a file of their own."""
        if self._place is not None and self._pending:
            (self._place / f"{uuid.uuid4().hex}.jsonl").write("\n".join([*self._pending, ""]).encode())
        self._pending.clear()
        self._written = time.monotonic()

    def _key(self, passage: Passage) -> str:
        text = json.dumps([self._identity, passage.doc_id, passage.title, passage.text])
        return hashlib.sha256(text.encode()).hexdigest()[:32]
