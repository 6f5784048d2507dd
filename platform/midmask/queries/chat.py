"""Requests to a server that speaks the chat completions of OpenAI's API (vLLM, llama.cpp, Ollama, transformers serve
and hosted models do), by OpenAI's client, which repeats what may succeed a second time.

The key comes from the environment alone, goes to the named host alone, and is hidden in every message.
"""

import logging
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from midmask.core.redaction import HIDDEN, has_credentials, redacted
from midmask.errors import UserError

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

log = logging.getLogger(__name__)

T = TypeVar("T")

KEYS = ("MIDMASK_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the key; the first that is set is used."""

OF_ONE_REQUEST = (400, 413, 422)
"""HTTP statuses that may be caused by a single passage, such as one that is too long for the model."""

PASSING = (408, 409, 429)
"""HTTP statuses, besides those from 500 on, after which OpenAI's client repeats a request."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServerGone(Exception):
    """A request has failed as often as it may; the server may answer again later."""


class RequestRefused(UserError):
    """The server refuses this request; it may take others."""


class ChatServer:
    """A server by its URL.

    Args:
        url: such as http://127.0.0.1:8000/v1.
        seconds: without a sign of the server after which a request has failed.
        retries: repetitions of a request.

    Raises:
        UserError: for a URL that is no http(s) one or contains credentials.
    """

    def __init__(self, url: str, *, seconds: float, retries: int) -> None:
        self.url = _checked(url)
        self._seconds, self._retries = seconds, retries
        self._key = next((value for name in KEYS if (value := os.environ.get(name, "").strip())), "")
        self._is_near = urlsplit(self.url).hostname in LOOPBACK
        if self._key and not self._is_near and urlsplit(self.url).scheme == "http":
            log.warning(
                "http:%s: the key and the passages go to this host unencrypted; https would hide them", self.url
            )

    @cached_property
    def _client(self) -> "OpenAI":
        """Follows no redirect, which would carry passages, and perhaps the key, to a host that nobody named; uses no
        proxy to reach this machine.
        """
        try:
            from openai import DefaultHttpxClient, OpenAI
        except ImportError:
            raise UserError(
                f"http:{self.url}: the package openai is missing; type: pip install -c constraints.txt -e '.[llm]'"
            ) from None
        return OpenAI(
            api_key=self._key or "none",
            base_url=self.url,
            timeout=self._seconds,
            max_retries=self._retries,
            http_client=DefaultHttpxClient(follow_redirects=False, trust_env=not self._is_near),
        )

    def models(self) -> list[str]:
        """Names of the models that the server offers.

        Raises:
            UserError: if it refuses.
            ServerGone: if it does not answer, or with something else.
        """
        return self._ask("/models", lambda client, **sent: [str(model.id) for model in client.models.list(**sent).data])

    def complete(self, body: Mapping[str, Any]) -> str:
        """Sends a chat completion request; returns the answer's text.

        Raises:
            UserError: if it refuses the request.
            ServerGone: if it does not answer, or with something else.
        """
        return self._ask(
            "/chat/completions",
            lambda client, **sent: _text_of(client.chat.completions.create(**dict(body), **sent)),
        )

    def _ask(self, path: str, request: Callable[..., T]) -> T:
        client = self._client
        from openai import APIConnectionError, APIStatusError, Omit, OpenAIError

        try:
            return request(client, **({} if self._key else {"extra_headers": {"Authorization": Omit()}}))
        except APIStatusError as error:
            code = error.status_code
            if code in PASSING or code >= 500:
                raise ServerGone(self._shown(f"HTTP {code} ({error.message})")) from None
            raise self._refusal(error, path) from None
        except APIConnectionError as error:
            raise ServerGone(self._shown(f"{error.message} {error.__cause__ or ''}".strip())) from None
        except (OpenAIError, ValueError, LookupError, TypeError, AttributeError):
            raise ServerGone("its answer is no chat completion") from None

    def _refusal(self, error: "APIStatusError", path: str) -> UserError:
        """A refusal that a repetition would meet again, with what to type."""
        advice = (
            "type its final URL up to /v1, such as http://127.0.0.1:8000/v1, name a model that it serves as "
            f"queries.server_model, and set {' or '.join(KEYS)} in the environment if it demands a key"
        )
        code = error.status_code
        kind = RequestRefused if code in OF_ONE_REQUEST else UserError
        return kind(self._shown(f"http:{self.url}: {path} answers HTTP {code} ({_message(error)}); {advice}"))

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


def _text_of(answer: Any) -> str:
    text = str(answer.choices[0].message.content or "")
    return text.encode(errors="replace").decode()  # JSON can write lone surrogates, which no file can hold


def _message(error: "APIStatusError") -> str:
    """What the server says of a refusal, at most 300 characters."""
    body = error.body
    text = body.get("message", body.get("detail", body)) if isinstance(body, dict) else body or error.message
    return str(text)[:300]
