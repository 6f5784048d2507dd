"""One request to a server that speaks the chat completions of OpenAI's API (vLLM, llama.cpp, Ollama, transformers serve
and hosted models do), repeated where the failure may pass.

The key comes from the environment alone, goes to the named host alone, and is hidden in every message.
"""

import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from midmask.core.redaction import has_credentials, redacted
from midmask.errors import UserError

log = logging.getLogger(__name__)

T = TypeVar("T")

KEYS = ("MIDMASK_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the key; the first that is set is used."""

PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 507, 509, 520, 522, 524, 529)
"""HTTP statuses after which the same request may succeed."""

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds before the first repetition, doubled each time, and at most; Retry-After may ask for ten times as long."""

OF_ONE_REQUEST = (400, 413, 422)
"""HTTP statuses that may be caused by a single passage, such as one that is too long for the model."""

LARGEST = 8 << 20
"""Largest number of bytes of an answer."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServerGone(Exception):
    """A request has failed as often as it may; the server may answer again later."""


class RequestRefused(UserError):
    """The server refuses this request; it may take others."""


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry passages, and perhaps the key, to a host that nobody named."""

    def redirect_request(self, *args: Any, **options: Any) -> None:
        return None


class ChatServer:
    """A server by its URL.

    Args:
        url: such as http://127.0.0.1:8000/v1.
        seconds: that one answer may take.
        retries: repetitions of a request.
        pause: waits so many seconds, or less if the work is given up.

    Raises:
        UserError: for a URL that is no http(s) one or contains credentials.
    """

    def __init__(
        self, url: str, *, seconds: float, retries: int, pause: Callable[[float], object] | None = None
    ) -> None:
        self.url = _checked(url)
        self._seconds, self._retries = seconds, retries
        self.given_up = threading.Event()
        self._pause = pause or self.given_up.wait
        self._key = next((value for name in KEYS if (value := os.environ.get(name, "").strip())), "")
        is_near = urlsplit(self.url).hostname in LOOPBACK
        if self._key and not is_near and urlsplit(self.url).scheme == "http":
            log.warning(
                "http:%s: the key and the passages go to this host unencrypted; https would hide them", self.url
            )
        self._opener: OpenerDirector = build_opener(_NoRedirect, *([ProxyHandler({})] if is_near else []))

    def models(self) -> list[str]:
        """Names of the models that the server offers.

        Raises:
            UserError: if it refuses, or answers something else.
            ServerGone: if it does not answer.
        """
        return self._repeat("/models", None, lambda answer: [str(model["id"]) for model in answer["data"]])

    def complete(self, body: Mapping[str, Any]) -> tuple[str, int]:
        """Sends a chat completion request; returns the answer's text and the tokens of both, 0 if they are not counted.

        Raises:
            UserError: if it refuses the request.
            ServerGone: if it does not answer, or with something else.
        """
        return self._repeat("/chat/completions", body, _text_and_tokens)

    def _repeat(self, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], T]) -> T:
        for tried in range(self._retries + 1):
            try:
                return read(json.loads(self._request(path, body)))
            except HTTPError as error:
                reason, retry_after = self._judge(error, path)
            except (OSError, HTTPException) as error:
                reason, retry_after = f"{type(error).__name__}: {getattr(error, 'reason', error)}", None
            except (ValueError, LookupError, TypeError, AttributeError):
                reason, retry_after = "its answer is no chat completion", None
            if tried == self._retries or self.given_up.is_set() or (retry_after or 0) > 10 * LONGEST_WAIT:
                break
            backoff = min(LONGEST_WAIT, FIRST_WAIT * 2**tried) * random.uniform(0.5, 1.0)
            self._pause(max(backoff, retry_after or 0.0))
        raise ServerGone(redacted(" ".join(f"{reason} ({tried + 1} tries)".split())))

    def _request(self, path: str, body: Mapping[str, Any] | None) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "midmask"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        ends = time.monotonic() + self._seconds
        with self._opener.open(Request(self.url + path, data, headers), timeout=self._seconds) as answer:
            pieces, size = [], 0
            while piece := answer.read1(1 << 16):
                pieces.append(piece)
                size += len(piece)
                if time.monotonic() > ends:  # a timeout of the socket is one of each piece
                    raise TimeoutError(f"no whole answer after {self._seconds:g} s")
                if size > LARGEST:
                    raise ValueError("the answer is too long")
            return b"".join(pieces)

    def _judge(self, error: HTTPError, path: str) -> tuple[str, float | None]:
        """Reason for repeating a failed request, and the seconds of its Retry-After header or None.

        Raises:
            UserError: if a repetition would fail too.
        """
        with error:
            message = _message(error)
            wait = _seconds(error.headers.get("Retry-After"))
        if error.code in PASSING:
            return f"HTTP {error.code}{message}", wait
        advice = ""
        if error.code in (401, 403):
            held = "the key in it was refused" if self._key else "no key is set"
            advice = f"; set {' or '.join(KEYS)} in the environment ({held})"
        elif 300 <= error.code < 400:
            advice = f"; it redirects to {error.headers.get('Location')}, which is not followed: type the final URL"
        elif error.code in (404, 405):
            advice = "; type the URL up to /v1, such as http://127.0.0.1:8000/v1, and see that server_model is served"
        kind = RequestRefused if error.code in OF_ONE_REQUEST else UserError
        raise kind(redacted(f"http:{self.url}: {path} answers HTTP {error.code}{message}{advice}"))


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


def _text_and_tokens(answer: Any) -> tuple[str, int]:
    usage = answer.get("usage") or {}
    text = str(answer["choices"][0]["message"]["content"] or "")
    text = text.encode(errors="replace").decode()  # JSON can write lone surrogates, which no file can hold
    return text, int(usage.get("total_tokens") or 0)


def _message(error: HTTPError) -> str:
    """The error message in the body of an HTTP error, on one line in brackets; "" without one."""
    try:
        body = error.read(1 << 16).decode(errors="replace")
    except (OSError, HTTPException):
        return ""
    try:
        answer = json.loads(body)
        inner = answer.get("error", answer.get("detail", body))
        body = str(inner.get("message", inner) if isinstance(inner, dict) else inner)
    except (ValueError, AttributeError):
        pass
    text = " ".join(body.split())[:300]
    return f" ({text})" if text else ""


def _seconds(value: str | None) -> float | None:
    """Seconds to wait by a Retry-After header, which holds seconds or a date; None without one."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
