"""Queries that a server writes which speaks the chat completions of OpenAI's API (vLLM, llama.cpp, Ollama, transformers
serve and hosted models do), asked by OpenAI's client, which repeats what may succeed a second time.

It is asked by several threads, and its answers are used in order. A request is a function of the passage and the config
alone; its seed is sent, and what a server makes of a seed is its own affair. The key comes from the environment alone,
goes to the named host alone, and is hidden in every message.
"""

import logging
import os
import re
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from midmask.core.randomness import hash64
from midmask.core.redaction import HIDDEN, has_credentials, redacted
from midmask.errors import UserError
from midmask.queries.collection import Passage
from midmask.queries.config import PASSAGE
from midmask.queries.sources import Opening
from midmask.queries.written import Answer, QueryCache, WrittenQueries, text_of

if TYPE_CHECKING:
    from openai import OpenAI

log = logging.getLogger(__name__)

KEYS = ("MIDMASK_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the key; the first that is set is used."""

OF_ONE_REQUEST = (400, 413, 422)
"""HTTP statuses that may be caused by a single passage, such as one that is too long for the model."""

PASSING = (408, 409, 429)
"""HTTP statuses, besides those from 500 on, after which OpenAI's client repeats a request."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")

COUNT = "{count}"
"""Placeholder for the number of queries in a prompt."""

CHARACTERS = 4_000
"""Characters of a passage that are sent; the rest is cut."""

TEMPERATURE = 0.7


class ServerGone(Exception):
    """A request has failed as often as it may; the server may answer again later."""


class RequestRefused(UserError):
    """The server refuses this request; it may take others."""


class ServerQueries(WrittenQueries):
    """A server by its URL, such as http://127.0.0.1:8000/v1.

    Raises:
        UserError: for a URL that is no http(s) one or contains credentials; if the server refuses, or stays away; what
            it has answered is kept.
    """

    JUDGES = 1

    def __init__(self, place: str, opening: Opening) -> None:
        super().__init__(place, opening)
        self._url = _checked(place)
        self._name = f"http:{self._url}"
        self._key = next((value for name in KEYS if (value := os.environ.get(name, "").strip())), "")
        identity = {"request": self._body("", 0), "seeds": self.config.generate.seed, "characters": CHARACTERS}
        self._cache = QueryCache(opening.cache, identity)
        self._has_answered = False

    @cached_property
    def _client(self) -> "OpenAI":
        """Follows no redirect, which would carry passages, and perhaps the key, to a host that nobody named; uses no
        proxy to reach this machine.
        """
        try:
            from openai import DefaultHttpxClient, OpenAI
        except ImportError:
            raise UserError(
                f"{self._name}: the package openai is missing; type: pip install -c constraints.txt -e '.[llm]'"
            ) from None
        is_near = urlsplit(self._url).hostname in LOOPBACK
        if self._key and not is_near and urlsplit(self._url).scheme == "http":
            log.warning("%s: the key and the passages go there unencrypted; https would hide them", self._name)
        return OpenAI(
            api_key=self._key or "none",
            base_url=self._url,
            timeout=self.config.server_seconds,
            max_retries=self.config.server_retries,
            http_client=DefaultHttpxClient(follow_redirects=False, trust_env=not is_near),
        )

    def _answers(self, passages: Sequence[Passage]) -> Generator[tuple[Passage, Answer], None, None]:
        try:
            yield from self._ask_all(passages)
        except ServerGone as gone:
            kept = sum(self._cache.find(passage) is not None for passage in passages)
            raise UserError(
                f"{self._name}: it answers no more: {gone}. The answers for {kept} of {len(passages)} passages are "
                "kept; start the server and run the same command again, which asks for the others"
            ) from None

    def _ask_all(self, passages: Sequence[Passage]) -> Generator[tuple[Passage, Answer], None, None]:
        pool = ThreadPoolExecutor(self.config.server_concurrency)
        try:
            futures = [pool.submit(self._ask, passage) for passage in passages]
            for passage, future in zip(passages, futures, strict=True):
                yield passage, self._settle(passage, future)
        finally:
            pool.shutdown(cancel_futures=True)

    def _settle(self, passage: Passage, future: Future[Answer]) -> Answer:
        """Waits for an answer; an empty one if the server refuses this request but not all."""
        try:
            return future.result()
        except RequestRefused as refusal:
            if not self._has_answered:
                raise
            log.warning("passage %s gets no query: %s", passage.doc_id, refusal)
            return ()

    def _ask(self, passage: Passage) -> Answer:
        answer = self._cache.find(passage)
        if answer is None:
            seed = int(hash64([passage.doc_id], f"server {self.config.generate.seed}")[0]) & 0x7FFFFFFF
            text = self._complete(self._body(text_of(passage)[:CHARACTERS], seed))
            answer = tuple(read_queries(text, self.config.per_passage))
            self._cache.add({passage: answer})
        self._has_answered = True
        return answer

    def _body(self, text: str, seed: int) -> dict[str, Any]:
        """The body of the request for a text; for the empty text, the part that all requests have in common."""
        config, generate = self.config, self.config.generate
        prompt = config.server_prompt.replace(COUNT, str(config.per_passage))
        return {
            "model": config.server_model,
            "messages": [{"role": "user", "content": prompt.replace(PASSAGE, text)}],
            "max_tokens": generate.max_tokens * config.per_passage,
            "temperature": TEMPERATURE,
            "top_p": generate.top_p,
            "seed": seed,
        }

    def _complete(self, body: dict[str, Any]) -> str:
        """The text of the answer to a request.

        Raises:
            UserError: if the server refuses the request.
            ServerGone: if it does not answer, or with something else.
        """
        client = self._client
        from openai import APIConnectionError, APIStatusError, Omit, OpenAIError

        without_key = {} if self._key else {"extra_headers": {"Authorization": Omit()}}
        try:
            text = str(client.chat.completions.create(**body, **without_key).choices[0].message.content or "")
        except APIStatusError as error:
            raise self._refusal(error.status_code, error.message) from None
        except APIConnectionError as error:
            raise ServerGone(self._shown(f"{error.message} {error.__cause__ or ''}".strip())) from None
        except (OpenAIError, ValueError, LookupError, TypeError, AttributeError):
            raise ServerGone("its answer is no chat completion") from None
        return text.encode(errors="replace").decode()  # JSON can write lone surrogates, which no file can hold

    def _refusal(self, code: int, message: str) -> Exception:
        told = self._shown(f"HTTP {code} ({message[:300]})")
        if code in PASSING or code >= 500:
            return ServerGone(told)
        kind = RequestRefused if code in OF_ONE_REQUEST else UserError
        return kind(
            f"{self._name}: it answers {told}; type its final URL up to /v1, such as http://127.0.0.1:8000/v1, name a "
            f"model that it serves as queries.server_model, and set {' or '.join(KEYS)} in the environment if it "
            "demands a key"
        )

    def _shown(self, text: str) -> str:
        """The text on one line, without the key, which a server may repeat."""
        text = text.replace(self._key, HIDDEN) if self._key else text
        return redacted(" ".join(text.split()))


def _checked(url: str) -> str:
    """Checks a server's URL and removes a trailing slash or /chat/completions."""
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, has_host = urlsplit(""), False
    if has_credentials(url) or parts.username is not None or parts.query or parts.fragment:
        raise UserError(
            f"http:{redacted(url)}: a URL with a user, a password or parameters would be recorded; type it without, "
            f"and set {' or '.join(KEYS)} in the environment"
        )
    if not has_host:
        raise UserError(f"http:{url}: no server has such a URL; type one such as http:http://127.0.0.1:8000/v1")
    return url.rstrip("/").removesuffix("/chat/completions")


_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_NUMBERING = re.compile(
    r"^(?:[-*\u2022\u2013]\s+|\(?\d{1,3}[.):]\s+|(?:query|question|q)\s*\d{0,3}\s*[:.]\s*)+", re.IGNORECASE
)
_QUOTES = "\"'`*\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"


def read_queries(answer: str, most: int) -> list[str]:
    """Parses the distinct queries of an answer, one a line, without numbering, quotes and headings of lists."""
    queries: dict[str, None] = {}
    for line in _THOUGHT.sub("", answer).splitlines():
        stripped = _NUMBERING.sub("", line.strip().strip("*")).strip().strip(_QUOTES).strip()
        if any(letter.isalnum() for letter in stripped) and not line.strip().startswith("```") and stripped[-1] != ":":
            queries.setdefault(stripped)
    return list(queries)[:most]
