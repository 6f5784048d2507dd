"""Queries that a model behind a chat completions server writes, asked for by several threads and used in order.

The request is a function of the passage and the config alone, its temperature and seed are sent, and each answer is
kept: started again, the step asks only for what it lacks. What a server makes of a seed is its own affair.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from typing import Any

from midmask.artifact import Place
from midmask.derived.prompts import PASSAGE
from midmask.errors import SHOWN, UserError
from midmask.queries.cache import Answer, QueryCache
from midmask.queries.chat import ChatServer, RequestRefused, ServerGone
from midmask.queries.config import QueriesConfig
from midmask.queries.generator import text_of
from midmask.queries.made import MadeQuery, Passage
from midmask.randomness.texts import hash64

log = logging.getLogger(__name__)

HTTP = "http"
"""The source of queries that a server has written."""

COUNT = "{count}"
"""What stands for the number of queries in a prompt."""

_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_NUMBERING = re.compile(
    r"^(?:[-*\u2022\u2013]\s+|\(?\d{1,3}[.):]\s+|(?:query|question|q)\s*\d{0,3}\s*[:.]\s*)+", re.IGNORECASE
)
_QUOTES = "\"'`*\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"


class ServerQueries:
    """A server by its URL; it is asked for its models with the first passage that is not in the cache.

    Args:
        url: such as http://127.0.0.1:8000/v1; not part of the queries' identity, since a server may move.
        cache: where answers are kept, for a run after a kill.
        pause: waits so many seconds before a repetition.

    Raises:
        UserError: for a URL that is no http(s) one or contains credentials.
    """

    def __init__(
        self,
        url: str,
        config: QueriesConfig,
        *,
        cache: Place | None = None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._config = config
        self._server = ChatServer(url, seconds=config.server_seconds, retries=config.server_retries, pause=pause)
        self._cache_place = cache
        self._asked = self._tokens = 0

    @cached_property
    def _model(self) -> str:
        """The model's name.

        Raises:
            UserError: if the server serves several and none is named, or none at all.
        """
        if self._config.server_model is not None:
            return self._config.server_model
        try:
            found = self._server.models()
        except ServerGone as gone:
            raise UserError(f"http:{self._server.url}: no answer to /models: {gone}; start the server") from None
        if len(found) != 1:
            raise UserError(
                f"http:{self._server.url}: it serves {len(found)} models; set queries.server_model to one of them: "
                f"{', '.join(found[:SHOWN]) or 'none is listed, so name the one it was started with'}"
            )
        return found[0]

    @cached_property
    def _cache(self) -> QueryCache:
        common = {"seeds": self._config.generate.seed, "characters": self._config.server_characters}
        return QueryCache(self._cache_place, {"request": self._body("", 0), **common})

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        """At most `per_passage` different queries for each passage, in the order of the passages. With a budget, the
        first passages have queries, also over several calls.

        Raises:
            UserError: if the server refuses, or stays away; what it has answered is kept.
        """
        without = answered = 0
        answers = self._answers(passages)
        try:
            for passage, answer in answers:
                answered += 1
                without += not answer.queries
                yield from (MadeQuery(passage.doc_id, query, HTTP) for query in answer.queries)
        finally:
            answers.close()
        if without:
            log.warning("http:%s: %d of %d answers had no query", self._server.url, without, answered)
        if answered < len(passages):
            log.warning(
                "http:%s: the budget of queries.server_max_requests or queries.server_max_tokens is spent: %d of %d "
                "passages were asked about, %d tokens; raise it to go on",
                self._server.url,
                answered,
                len(passages),
                self._tokens,
            )

    def _answers(self, passages: Sequence[Passage]) -> Generator[tuple[Passage, Answer], None, None]:
        """Each passage with its answer, in order; a few are asked for ahead."""
        cache = self._cache
        ahead: deque[tuple[Passage, Answer | Future[Answer]]] = deque()
        waiting = iter(passages)
        pool = ThreadPoolExecutor(self._config.server_concurrency)
        try:
            while not self._is_spent():
                for passage in islice(waiting, self._room() - len(ahead)):
                    ahead.append((passage, cache.find(passage) or pool.submit(self._ask, passage)))
                if not ahead:
                    return
                passage, found = ahead[0]
                answer = self._settle(passage, found) if isinstance(found, Future) else found
                ahead.popleft()
                self._asked += 1
                self._tokens += answer.tokens
                yield passage, answer
        except ServerGone as gone:
            raise UserError(self._how_to_go_on(passages, ahead, gone)) from None
        finally:
            self._keep(ahead)
            pool.shutdown()

    def _settle(self, passage: Passage, future: Future[Answer]) -> Answer:
        """The answer to a request, which is kept; none at all if the server takes others, but not this one."""
        try:
            answer = future.result()
        except RequestRefused as refusal:
            if not self._asked:
                raise
            log.warning("passage %s gets no query: %s", passage.doc_id, refusal)
            return Answer(())
        if self._config.server_max_tokens is not None and not answer.tokens:
            raise UserError(
                f"http:{self._server.url}: it does not count tokens, so queries.server_max_tokens = "
                f"{self._config.server_max_tokens} cannot be kept to; set queries.server_max_requests instead"
            )
        self._cache.add(passage, answer)
        return answer

    def _room(self) -> int:
        """Passages that may be under way: enough that no thread waits for the turn of an answer."""
        most = self._config.server_max_requests
        left = most - self._asked if most is not None else 2 * self._config.server_concurrency
        return min(left, 2 * self._config.server_concurrency)

    def _is_spent(self) -> bool:
        requests, tokens = self._config.server_max_requests, self._config.server_max_tokens
        return (requests is not None and self._asked >= requests) or (tokens is not None and self._tokens >= tokens)

    def _keep(self, ahead: deque[tuple[Passage, Answer | Future[Answer]]]) -> None:
        """Ends what is under way and keeps what has been answered out of turn."""
        self._server.given_up.set()
        for passage, answer in ahead:
            if isinstance(answer, Future) and not answer.cancel() and answer.exception() is None:
                self._cache.add(passage, answer.result())
        ahead.clear()
        self._cache.flush()
        self._server.given_up.clear()

    def _how_to_go_on(
        self, passages: Sequence[Passage], ahead: deque[tuple[Passage, Answer | Future[Answer]]], gone: ServerGone
    ) -> str:
        self._keep(ahead)
        made = [answer for passage in passages if (answer := self._cache.find(passage)) is not None]
        queries = sum(len(answer.queries) for answer in made)
        return (
            f"http:{self._server.url}: it answers no more: {gone}. {queries} queries of {len(made)} of {len(passages)} "
            "passages were made and are kept; start the server and run the same command again, which asks for the "
            f"other {len(passages) - len(made)}"
        )

    def _ask(self, passage: Passage) -> Answer:
        seed = int(hash64([passage.doc_id], f"server {self._config.generate.seed}")[0]) & 0x7FFFFFFF
        text = text_of(passage)[: self._config.server_characters]
        answer, tokens = self._server.complete(self._body(text, seed))
        return Answer(tuple(read_queries(answer, self._config.per_passage)), tokens)

    def _body(self, text: str, seed: int) -> dict[str, Any]:
        """The request for a text. For the empty one it is what all requests have in common."""
        config, generate = self._config, self._config.generate
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
    """The different queries of an answer, one a line: without numbering, quotes, and lines that announce a list."""
    found: dict[str, None] = {}
    for line in _THOUGHT.sub("", answer).splitlines():
        stripped = _NUMBERING.sub("", line.strip().strip("*")).strip().strip(_QUOTES).strip()
        if any(letter.isalnum() for letter in stripped) and not line.strip().startswith("```") and stripped[-1] != ":":
            found.setdefault(stripped)
    return list(found)[:most]
