"""Queries that a language model writes, in a Hugging Face folder or behind a chat completions server.

A model is sampled by `query_model`. A server is asked by several threads and its answers are used in order. The request
is a function of the passage and the config alone, its temperature and seed are sent; what a server makes of a seed is
its own affair. Answers are kept, so that a step that is started again asks only for what it lacks:

    <cache>/<name>.jsonl   {"key": …, "queries": […]} a line

A file is written whole and never changed, since the files of a killed attempt may be links to it. A key is a hash of
the passage and of all that decides its queries: answers that other settings have made are there and not found.
"""

import hashlib
import json
import logging
import re
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from midmask.core.config import fingerprint, identity_of, model_content
from midmask.core.randomness import hash64
from midmask.errors import SHOWN, UserError
from midmask.queries.chat import ChatServer, RequestRefused, ServerGone
from midmask.queries.collection import MadeQuery, Passage
from midmask.queries.query_model import PASSAGE, QueryGenerator
from midmask.queries.sources import Opening, Source
from midmask.store.place import Place

log = logging.getLogger(__name__)


EVERY_ANSWERS, EVERY_SECONDS = 64, 10.0
"""Answers, and seconds, after which a file is written: a kill loses at most these."""


Answer = tuple[str, ...]
"""The queries that a model or a server wrote for one passage."""


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
        files = [place / name for name in place.names() if name.endswith(".jsonl")] if place else []
        for file in files:
            self._load(file)

    def _load(self, file: Place) -> None:
        try:
            for row in map(json.loads, file.read().decode().splitlines()):
                self._known[str(row["key"])] = tuple(map(str, row["queries"]))
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{file} is damaged: a line of it is no answer. Delete the file and run the same command again; the "
                "queries in it are then made anew"
            ) from None

    def find(self, passage: Passage) -> Answer | None:
        """Returns the answer for a passage; None if there is none yet."""
        return self._known.get(self._key(passage))

    def add(self, passage: Passage, answer: Answer) -> None:
        """Adds an answer, and writes all new answers to a file after 64 of them or 10 seconds."""
        key = self._key(passage)
        self._known[key] = answer
        self._pending.append(json.dumps({"key": key, "queries": answer}, ensure_ascii=False))
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


FIELD = "queries.sources"


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
    """A sequence-to-sequence or causal folder; it is loaded with the first passage that is not in the cache.

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
            self._write([passage for passage in some if self._cache.find(passage) is None])
            for passage in some:
                yield passage, self._cache.find(passage) or ()

    def _write(self, passages: Sequence[Passage]) -> None:
        if not passages:
            return
        texts = [text_of(passage) for passage in passages]
        written = self._generator.queries([passage.doc_id for passage in passages], texts, self.config.per_passage)
        for passage, queries in zip(passages, written, strict=True):
            self._cache.add(passage, tuple(dict.fromkeys(queries)))
        self._cache.flush()


def text_of(passage: Passage) -> str:
    """The text for which queries are written: the passage's title and text."""
    return f"{passage.title} {passage.text}".strip()


COUNT = "{count}"
"""Placeholder for the number of queries in a prompt."""

_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_NUMBERING = re.compile(
    r"^(?:[-*\u2022\u2013]\s+|\(?\d{1,3}[.):]\s+|(?:query|question|q)\s*\d{0,3}\s*[:.]\s*)+", re.IGNORECASE
)
_QUOTES = "\"'`*\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"


CHARACTERS = 4_000
"""Characters of a passage that are sent; the rest is cut."""

TEMPERATURE = 0.7


class ServerQueries(WrittenQueries):
    """A server by its URL; it is asked for its models with the first passage that is not in the cache. With a budget,
    the first passages have queries, also over several calls.

    Raises:
        UserError: for a URL that is no http(s) one or contains credentials; if the server refuses, or stays away; what
            it has answered is kept.
    """

    JUDGES = 1

    def __init__(self, place: str, opening: Opening) -> None:
        super().__init__(place, opening)
        self._server = ChatServer(place, seconds=self.config.server_seconds, retries=self.config.server_retries)
        self._name, self._cache_place = f"http:{self._server.url}", opening.cache
        self._answered = 0  # passages

    @cached_property
    def _model(self) -> str:
        """The model's name: `config.server_model`, or the only model of the server.

        Raises:
            UserError: if none is named and the server does not have exactly one.
        """
        if self.config.server_model is not None:
            return self.config.server_model
        try:
            models = self._server.models()
        except ServerGone as gone:
            raise UserError(f"{self._name}: no answer to /models: {gone}; start the server") from None
        if len(models) != 1:
            raise UserError(
                f"{self._name}: it serves {len(models)} models; set queries.server_model to one of them: "
                f"{', '.join(models[:SHOWN]) or 'none is listed, so name the one it was started with'}"
            )
        return models[0]

    @cached_property
    def _cache(self) -> QueryCache:
        identity = {"request": self._body("", 0), "seeds": self.config.generate.seed, "characters": CHARACTERS}
        return QueryCache(self._cache_place, identity)

    def _answers(self, passages: Sequence[Passage]) -> Generator[tuple[Passage, Answer], None, None]:
        """Each passage with its answer, in order, until the budget of requests is spent."""
        budget = self.config.server_max_requests
        asked = passages if budget is None else passages[: max(0, budget - self._answered)]
        cache, pool = self._cache, ThreadPoolExecutor(self.config.server_concurrency)
        known = [(passage, cache.find(passage)) for passage in asked]
        answers = [(one, pool.submit(self._ask, one) if answer is None else answer) for one, answer in known]
        try:
            for passage, pending in answers:
                answer = self._settle(passage, pending) if isinstance(pending, Future) else pending
                self._answered += 1
                yield passage, answer
        except ServerGone as gone:
            self._keep(answers)
            raise UserError(self._how_to_go_on(passages, gone)) from None
        finally:
            self._keep(answers)
            pool.shutdown()
        if len(asked) < len(passages):
            log.warning(
                "%s: the budget of queries.server_max_requests is spent: %d of %d passages were asked about; raise it "
                "to go on",
                *(self._name, len(asked), len(passages)),
            )

    def _settle(self, passage: Passage, future: Future[Answer]) -> Answer:
        """Waits for an answer and caches it; an empty one if the server refuses this request but not all."""
        try:
            answer = future.result()
        except RequestRefused as refusal:
            if not self._answered:
                raise
            log.warning("passage %s gets no query: %s", passage.doc_id, refusal)
            return ()
        self._cache.add(passage, answer)
        return answer

    def _keep(self, answers: Sequence[tuple[Passage, Answer | Future[Answer]]]) -> None:
        """Cancels requests that are not sent yet, and caches the answers to the others."""
        futures = [(passage, answer) for passage, answer in answers if isinstance(answer, Future)]
        sent = [(passage, answer) for passage, answer in futures if not answer.cancel()]
        for passage, answer in sent:
            if answer.exception() is None and self._cache.find(passage) is None:
                self._cache.add(passage, answer.result())
        self._cache.flush()

    def _how_to_go_on(self, passages: Sequence[Passage], gone: ServerGone) -> str:
        made = [answer for passage in passages if (answer := self._cache.find(passage)) is not None]
        queries = sum(map(len, made))
        return (
            f"{self._name}: it answers no more: {gone}. {queries} queries of {len(made)} of {len(passages)} "
            "passages were made and are kept; start the server and run the same command again, which asks for the "
            f"other {len(passages) - len(made)}"
        )

    def _ask(self, passage: Passage) -> Answer:
        seed = int(hash64([passage.doc_id], f"server {self.config.generate.seed}")[0]) & 0x7FFFFFFF
        answer = self._server.complete(self._body(text_of(passage)[:CHARACTERS], seed))
        return tuple(read_queries(answer, self.config.per_passage))

    def _body(self, text: str, seed: int) -> dict[str, Any]:
        """The body of the request for a text; for the empty text, the part that all requests have in common."""
        config, generate = self.config, self.config.generate
        prompt = config.server_prompt.replace(COUNT, str(config.per_passage))
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt.replace(PASSAGE, text)}],
            "max_tokens": generate.max_tokens * config.per_passage,
            "temperature": TEMPERATURE,
            "top_p": generate.top_p,
            "seed": seed,
        }


def read_queries(answer: str, most: int) -> list[str]:
    """Parses the distinct queries of an answer, one a line, without numbering, quotes and headings of lists."""
    queries: dict[str, None] = {}
    for line in _THOUGHT.sub("", answer).splitlines():
        stripped = _NUMBERING.sub("", line.strip().strip("*")).strip().strip(_QUOTES).strip()
        if any(letter.isalnum() for letter in stripped) and not line.strip().startswith("```") and stripped[-1] != ":":
            queries.setdefault(stripped)
    return list(queries)[:most]
