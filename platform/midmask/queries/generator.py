"""Queries that a language model in a Hugging Face folder writes, by the sampler of `derived.generate`."""

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

from midmask.artifact import Place
from midmask.derived.generate import Generator
from midmask.identity import identity_of, model_content
from midmask.queries.cache import Answer, QueryCache
from midmask.queries.config import QueriesConfig
from midmask.queries.made import MadeQuery, Passage

log = logging.getLogger(__name__)

FIELD = "queries.sources"
MODEL = "model"
"""The source of queries that a model or a server has written."""


class ModelQueries:
    """A sequence-to-sequence or causal folder; it is loaded with the first passage that is not in the cache.

    Args:
        folder: with config.json, safetensors and a tokenizer.
        cache: where the queries of finished batches are kept, for a run after a kill.

    Raises:
        UserError: if the folder has no such model; most of this is found with the first passage.
    """

    def __init__(self, folder: str, config: QueriesConfig, *, cache: Place | None = None) -> None:
        self._folder, self._config = Path(folder).expanduser(), config
        content = model_content(self._folder, FIELD)
        identity = {"model": content, "generate": identity_of(config.generate), "each": config.per_passage}
        self._cache = QueryCache(cache, identity)

    @cached_property
    def _generator(self) -> Generator:
        return Generator(self._folder, self._config.generate, field=FIELD)

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        """At most `per_passage` different queries for each passage, in the order of the passages."""
        # Some batches of the model at a time, so that few of its rows are left empty.
        size = max(1, 4 * self._config.generate.batch_size // self._config.per_passage)
        waiting, without = iter(passages), 0
        try:
            while some := list(islice(waiting, size)):
                self._write([passage for passage in some if self._cache.find(passage) is None])
                for passage in some:
                    answer = self._cache.find(passage)
                    assert answer is not None
                    without += not answer.queries
                    yield from (MadeQuery(passage.doc_id, query, MODEL) for query in answer.queries)
        finally:
            self._cache.flush()
        if without:
            log.warning("%s: %d of %d passages got no query", self._folder, without, len(passages))

    def _write(self, passages: Sequence[Passage]) -> None:
        if not passages:
            return
        texts = [text_of(passage) for passage in passages]
        written = self._generator.queries([passage.doc_id for passage in passages], texts, self._config.per_passage)
        for passage, queries in zip(passages, written, strict=True):
            self._cache.add(passage, Answer(tuple(dict.fromkeys(queries))))
        self._cache.flush()


def text_of(passage: Passage) -> str:
    """What a writer of queries reads: the title and the text."""
    return f"{passage.title} {passage.text}".strip()
