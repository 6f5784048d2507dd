"""Queries that a language model in a Hugging Face folder writes (`query_model`).

What it has written is kept, so that a step that is started again makes only what it lacks: files {doc_id: queries},
each written whole and never changed, since the files of a killed attempt may be links to it.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from midmask.core.config import model_content
from midmask.queries.collection import MadeQuery, Passage
from midmask.queries.query_model import QueryGenerator
from midmask.queries.sources import Opening, Source

FIELD = "queries.sources"


class ModelQueries(Source):
    """At most `per_passage` different queries for each passage, written by a sequence-to-sequence model. It is loaded
    with the first passage that it has written nothing for.

    Raises:
        UserError: if the folder has no such model, with the first passage.
    """

    JUDGES = 2

    def __init__(self, place: str, opening: Opening) -> None:
        super().__init__(place, opening)
        self._folder, self._kept = Path(place).expanduser(), opening.cache
        self._written: dict[str, list[str]] = {}  # doc_id -> queries
        for file in [self._kept / name for name in self._kept.names() if name.endswith(".json")] if self._kept else ():
            self._written |= file.read_json()

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
            if lacking := [passage for passage in some if passage.doc_id not in self._written]:
                self._write(lacking)
            for passage in some:
                yield from (MadeQuery(passage.doc_id, query) for query in self._written[passage.doc_id])

    def _write(self, passages: Sequence[Passage]) -> None:
        doc_ids = [passage.doc_id for passage in passages]
        texts = [f"{passage.title} {passage.text}".strip() for passage in passages]
        made = self._generator.queries(doc_ids, texts, self.config.per_passage)
        written = {doc_id: list(dict.fromkeys(queries)) for doc_id, queries in zip(doc_ids, made, strict=True)}
        self._written |= written
        if self._kept is not None:
            (self._kept / f"{len(self._written):08d}.json").write_json(written)
