"""Queries that a language model in a Hugging Face folder writes (`query_model`).

What it has written is kept, so that a step that is started again makes only what it lacks:

    <cache>/<name>.jsonl   {"key": …, "queries": […]} a line

A file is written whole and never changed, since the files of a killed attempt may be links to it. A key is a hash of
the passage and of all that decides its queries: answers that other settings have made are there and not found.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from midmask.core.config import fingerprint, identity_of, model_content
from midmask.errors import UserError
from midmask.queries.collection import MadeQuery, Passage
from midmask.queries.query_model import QueryGenerator
from midmask.queries.sources import Opening, Source
from midmask.store.place import Place

FIELD = "queries.sources"

Answer = tuple[str, ...]
"""The queries that the model wrote for one passage."""


class QueryCache:
    """Answers by passage, under one identity.

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


class ModelQueries(Source):
    """At most `per_passage` different queries for each passage, written by a sequence-to-sequence model. It is loaded
    with the first passage that is not in the cache.

    Raises:
        UserError: if the folder has no such model; most of this is found with the first passage.
    """

    JUDGES = 2

    def __init__(self, place: str, opening: Opening) -> None:
        super().__init__(place, opening)
        self._folder = Path(place).expanduser()
        generate, each = identity_of(self.config.generate), self.config.per_passage
        identity = {"model": model_content(self._folder, FIELD), "generate": generate, "each": each}
        self._cache = QueryCache(opening.cache, identity)

    @classmethod
    def content(cls, place: str, named: str) -> Any:
        return dict(model_content(Path(place), FIELD))

    @cached_property
    def _generator(self) -> QueryGenerator:
        return QueryGenerator(self._folder, self.config.generate, field=FIELD)

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        # Some batches of the model at a time, so that few of its rows are left empty.
        size = max(1, 4 * self.config.generate.batch_size // self.config.per_passage)
        for first in range(0, len(passages), size):
            some = passages[first : first + size]
            if lacking := [passage for passage in some if self._cache.find(passage) is None]:
                self._cache.add(self._write(lacking))
            for passage in some:
                yield from (MadeQuery(passage.doc_id, query) for query in self._cache.find(passage) or ())

    def _write(self, passages: Sequence[Passage]) -> dict[Passage, Answer]:
        texts = [f"{passage.title} {passage.text}".strip() for passage in passages]
        written = self._generator.queries([passage.doc_id for passage in passages], texts, self.config.per_passage)
        return {passage: tuple(dict.fromkeys(own)) for passage, own in zip(passages, written, strict=True)}
