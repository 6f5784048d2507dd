"""Queries that a language model writes, and what was written before a kill.

A model in a Hugging Face folder is sampled by `query_model`, a server is asked by `chat`. Answers are kept, so that a
step that is started again asks only for what it lacks:

    <cache>/<name>.jsonl   {"key": …, "queries": […]} a line

A file is written whole and never changed, since the files of a killed attempt may be links to it. A key is a hash of
the passage and of all that decides its queries: answers that other settings have made are there and not found.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from midmask.core.config import fingerprint, identity_of, model_content
from midmask.errors import UserError
from midmask.queries.collection import MadeQuery, Passage
from midmask.queries.query_model import QueryGenerator
from midmask.queries.sources import Opening, Source
from midmask.store.place import Place

log = logging.getLogger(__name__)

FIELD = "queries.sources"

Answer = tuple[str, ...]
"""The queries that a model or a server wrote for one passage."""


class QueryCache:
    """Answers by passage, under one identity. Several threads may add to it.

    Args:
        place: where the files lie; none: answers are remembered in this process alone.
        identity: what decides the queries of a passage, as plain data.

    Raises:
        UserError: if a file is damaged.
    """

    def __init__(self, place: Place | None, identity: Mapping[str, Any]) -> None:
        self._place, self._identity = place, fingerprint(dict(identity))
        self._known: dict[str, Answer] = {}
        for file in [place / name for name in place.names() if name.endswith(".jsonl")] if place else []:
            try:
                rows = [json.loads(line) for line in file.read().decode().splitlines()]
                self._known |= {str(row["key"]): tuple(map(str, row["queries"])) for row in rows}
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{file} is damaged: delete it, and its queries are made anew") from None

    def find(self, passage: Passage) -> Answer | None:
        """Returns the answer for a passage; None if there is none yet."""
        return self._known.get(self._key(passage))

    def add(self, answers: Mapping[Passage, Answer]) -> None:
        """Adds answers, and writes them to a file of their own."""
        keyed = {self._key(passage): answer for passage, answer in answers.items()}
        self._known |= keyed
        if self._place is not None:
            rows = [json.dumps({"key": key, "queries": answer}, ensure_ascii=False) for key, answer in keyed.items()]
            (self._place / f"{uuid.uuid4().hex}.jsonl").write("".join(f"{row}\n" for row in rows).encode())

    def _key(self, passage: Passage) -> str:
        text = json.dumps([self._identity, passage.doc_id, passage.title, passage.text])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class WrittenQueries(Source):
    """At most `per_passage` different queries for each passage, written by something that may write none."""

    _name: str  # what messages call it

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        answered = without = 0
        with closing(self._answers(passages)) as answers:
            for passage, answer in answers:
                answered += 1
                without += not answer
                yield from (MadeQuery(passage.doc_id, query) for query in answer)
        if without:
            log.warning("%s: %d of %d answers had no query", self._name, without, answered)

    def _answers(self, passages: Sequence[Passage]) -> Generator[tuple[Passage, Answer], None, None]:
        """Each passage with its answer, in order."""
        raise NotImplementedError


class ModelQueries(WrittenQueries):
    """A sequence-to-sequence folder; it is loaded with the first passage that is not in the cache.

    Raises:
        UserError: if the folder has no such model; most of this is found with the first passage.
    """

    JUDGES = 2

    def __init__(self, place: str, opening: Opening) -> None:
        super().__init__(place, opening)
        self._folder = Path(place).expanduser()
        self._name = str(self._folder)
        generate, each = identity_of(self.config.generate), self.config.per_passage
        identity = {"model": model_content(self._folder, FIELD), "generate": generate, "each": each}
        self._cache = QueryCache(opening.cache, identity)

    @classmethod
    def content(cls, place: str, named: str) -> Any:
        return dict(model_content(Path(place), FIELD))

    @cached_property
    def _generator(self) -> QueryGenerator:
        return QueryGenerator(self._folder, self.config.generate, field=FIELD)

    def _answers(self, passages: Sequence[Passage]) -> Generator[tuple[Passage, Answer], None, None]:
        # Some batches of the model at a time, so that few of its rows are left empty.
        size = max(1, 4 * self.config.generate.batch_size // self.config.per_passage)
        for first in range(0, len(passages), size):
            some = passages[first : first + size]
            if lacking := [passage for passage in some if self._cache.find(passage) is None]:
                self._cache.add(self._write(lacking))
            for passage in some:
                yield passage, self._cache.find(passage) or ()

    def _write(self, passages: Sequence[Passage]) -> dict[Passage, Answer]:
        doc_ids, texts = [passage.doc_id for passage in passages], [text_of(passage) for passage in passages]
        written = self._generator.queries(doc_ids, texts, self.config.per_passage)
        return {passage: tuple(dict.fromkeys(own)) for passage, own in zip(passages, written, strict=True)}


def text_of(passage: Passage) -> str:
    """The text for which queries are written: the passage's title and text."""
    return f"{passage.title} {passage.text}".strip()
