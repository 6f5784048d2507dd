"""Queries that a language model writes, in a Hugging Face folder or behind a chat completions server.

A model is sampled by `query_model`. A server is asked by several threads and its answers are used in order. The request
is a function of the passage and the config alone, its temperature and seed are sent; what a server makes of a seed is
its own affair. Answers are kept, so that a step that is started again asks only for what it lacks:

    <cache>/<name>.jsonl   {"key": …, "queries": […], "tokens": …} a line

A file is written whole and never changed, since the files of a killed attempt may be links to it. A key is a hash of
the passage and of all that decides its queries: answers that other settings have made are there and not found.
"""

import hashlib
import json
import logging
import re
import time
import uuid
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
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


@dataclass(frozen=True)
class Answer:
    """The queries that a model or a server wrote for one passage."""

    queries: tuple[str, ...]
    tokens: int = 0  # as counted by a server


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
                self._known[str(row["key"])] = Answer(tuple(map(str, row["queries"])), int(row["tokens"]))
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
        row = {"key": key, "queries": list(answer.queries), "tokens": answer.tokens}
        self._pending.append(json.dumps(row, ensure_ascii=False))
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
                without += not answer.queries
                yield from (MadeQuery(passage.doc_id, query) for query in answer.queries)
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
                yield passage, self._cache.find(passage) or Answer(())

    def _write(self, passages: Sequence[Passage]) -> None:
        if not passages:
            return
        texts = [text_of(passage) for passage in passages]
        written = self._generator.queries([passage.doc_id for passage in passages], texts, self.config.per_passage)
        for passage, queries in zip(passages, written, strict=True):
            self._cache.add(passage, Answer(tuple(dict.fromkeys(queries))))
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


Ahead = deque[tuple[Passage, Answer | Future[Answer]]]
"""Passages whose answers are next, with the answers or the requests that are on their way."""


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
        self._asked = self._tokens = 0

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
        common = {"seeds": self.config.generate.seed, "characters": self.config.server_characters}
        return QueryCache(self._cache_place, {"request": self._body("", 0), **common})

    def _answers(self, passages: Sequence[Passage]) -> Generator[tuple[Passage, Answer], None, None]:
        """Each passage with its answer, in order, until the budget is spent; a few requests are sent ahead."""
        cache, answered = self._cache, 0
        ahead: Ahead = deque()
        waiting = iter(passages)
        pool = ThreadPoolExecutor(self.config.server_concurrency)
        try:
            while (room := self._room()) > 0:
                for passage in islice(waiting, room - len(ahead)):
                    ahead.append((passage, cache.find(passage) or pool.submit(self._ask, passage)))
                if not ahead:
                    return
                passage, pending = ahead[0]
                answer = self._settle(passage, pending) if isinstance(pending, Future) else pending
                ahead.popleft()
                answered += 1
                self._asked += 1
                self._tokens += answer.tokens
                yield passage, answer
        except ServerGone as gone:
            self._keep(ahead)
            raise UserError(self._how_to_go_on(passages, gone)) from None
        finally:
            self._keep(ahead)
            pool.shutdown()
        if answered < len(passages):
            log.warning(
                "%s: the budget of queries.server_max_requests or queries.server_max_tokens is spent: %d of %d "
                "passages were asked about, %d tokens; raise it to go on",
                *(self._name, answered, len(passages), self._tokens),
            )

    def _settle(self, passage: Passage, future: Future[Answer]) -> Answer:
        """Waits for an answer and caches it; an empty Answer if the server refuses this request but not all."""
        try:
            answer = future.result()
        except RequestRefused as refusal:
            if not self._asked:
                raise
            log.warning("passage %s gets no query: %s", passage.doc_id, refusal)
            return Answer(())
        if self.config.server_max_tokens is not None and not answer.tokens:
            raise UserError(
                f"{self._name}: it does not count tokens, so queries.server_max_tokens = "
                f"{self.config.server_max_tokens} cannot be kept to; set queries.server_max_requests instead"
            )
        self._cache.add(passage, answer)
        return answer

    def _room(self) -> int:
        """Number of passages that may be in progress: enough that no thread waits for an earlier answer, and 0 when the
        budget is spent.
        """
        requests, tokens = self.config.server_max_requests, self.config.server_max_tokens
        if tokens is not None and self._tokens >= tokens:
            return 0
        room = 2 * self.config.server_concurrency
        return room if requests is None else min(room, requests - self._asked)

    def _keep(self, ahead: Ahead) -> None:
        """Cancels pending requests and caches the answers that have arrived."""
        for passage, answer in ahead:
            if isinstance(answer, Future) and not answer.cancel() and answer.exception() is None:
                self._cache.add(passage, answer.result())
        ahead.clear()
        self._cache.flush()

    def _how_to_go_on(self, passages: Sequence[Passage], gone: ServerGone) -> str:
        made = [answer for passage in passages if (answer := self._cache.find(passage)) is not None]
        queries = sum(len(answer.queries) for answer in made)
        return (
            f"{self._name}: it answers no more: {gone}. {queries} queries of {len(made)} of {len(passages)} "
            "passages were made and are kept; start the server and run the same command again, which asks for the "
            f"other {len(passages) - len(made)}"
        )

    def _ask(self, passage: Passage) -> Answer:
        seed = int(hash64([passage.doc_id], f"server {self.config.generate.seed}")[0]) & 0x7FFFFFFF
        text = text_of(passage)[: self.config.server_characters]
        answer, tokens = self._server.complete(self._body(text, seed))
        return Answer(tuple(read_queries(answer, self.config.per_passage)), tokens)

    def _body(self, text: str, seed: int) -> dict[str, Any]:
        """The body of the request for a text; for the empty text, the part that all requests have in common."""
        config, generate = self.config, self.config.generate
        prompt = config.server_prompt.replace(COUNT, str(config.per_passage))
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt.replace(PASSAGE, text)}],
            "max_tokens": generate.max_tokens * config.per_passage,
            "temperature": config.server_temperature,
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
