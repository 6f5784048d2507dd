"""Credentials are taken out of every text that is printed, logged or stored.

Three forms are known: user and password of a URI (`scheme://user:password@host`), values whose names say that they are
secret (`?sig=…`, `secret_access_key=…`, `"token": "…"`, `Authorization: Bearer …`), and, wherever they stand, values
given to `remember`, such as passwords in this process's environment.
"""

import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from types import TracebackType
from urllib.parse import unquote

HIDDEN = "***"

SHORTEST = 8
"""Characters of a value that is remembered, and then hidden as a whole word: shorter ones also stand in plain text."""

_NAMES = (
    r"(?:password|passwd|passphrase|pwd|secret|token|signature|credentials?"
    r"|(?:api|access|account|shared|secret|private)[_-]?key(?:[_-]?id)?)"
)
_NAMED = rf"(?:[\w.-]*[_.-]|aws|account)?{_NAMES}"

_USERINFO = re.compile(r"(?<=://)(?:[^/?#\s'\"]*|[^/?#\s'\"@:]*:[^\s'\"]*)@")
_ASSIGNED = re.compile(rf"((?<![\w.-]){_NAMED}=[\"']?)[^\s&\"',;)\]}}]+", re.IGNORECASE)
_QUERIED = re.compile(r"((?<=[?&])(?:sig|key|sas|code)=)[^&\s'\"]+", re.IGNORECASE)
_KEYED = re.compile(rf"([\"']{_NAMED}\\*[\"']\s*:\s*\\*[\"'])[^\"'\\]+", re.IGNORECASE)  # also in quoted JSON
_HEADER = re.compile(r"(\b(?:basic|bearer)\s+)[\w+/=.~-]{8,}", re.IGNORECASE)

_PASSWORD = re.compile(r"://[^/?#\s@:]*:(?P<password>\S*)@")
_PORT = re.compile(r"://[^/?#\s@:]*:\d+/")
_SECRET_VARIABLE = re.compile(rf"(?!PWD$)(?:\w*_)?{_NAMES}", re.IGNORECASE)

_remembered: set[str] = set()


def redacted(text: str) -> str:
    """The text with `***` in place of every credential."""
    for value in sorted(_remembered, key=len, reverse=True):
        if value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", HIDDEN, text)
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    for pattern in (_ASSIGNED, _QUERIED, _KEYED, _HEADER):
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def has_credentials(uri: str) -> bool:
    """Whether a URI contains a password or a signature; a user's or container's name alone is none."""
    if "://" not in uri:
        return False
    has_password = _PASSWORD.search(uri) and not _PORT.search(uri)
    return bool(has_password or _ASSIGNED.search(uri) or _QUERIED.search(uri))


def remember(values: Iterable[str]) -> None:
    """Hides these values in every text from now on."""
    _remembered.update(value for value in values if len(value) >= SHORTEST and value != HIDDEN)


def passwords_in(uri: str) -> set[str]:
    """The password of a URI as it is written, and as a library may show it, decoded."""
    return {form for found in _PASSWORD.finditer(uri) for form in (found["password"], unquote(found["password"]))}


def secrets_in(environment: Mapping[str, str]) -> set[str]:
    """Values of variables with names of secrets (such as TOKEN), and the passwords of URIs in the others."""
    named = {value for name, value in environment.items() if _SECRET_VARIABLE.fullmatch(name)}
    return named.union(*(passwords_in(value) for value in environment.values()))


class RedactedRecord(logging.LogRecord):
    """A log record without credentials, in its message and in the traceback of its exception."""

    def getMessage(self) -> str:
        return redacted(super().getMessage())

    @property
    def exc_text(self) -> str | None:
        """The traceback, which every formatter takes from here instead of making its own."""
        if not self.exc_info or self.exc_info[0] is None:
            return None
        return redacted("".join(traceback.format_exception(*self.exc_info))).rstrip()

    @exc_text.setter
    def exc_text(self, text: str | None) -> None: ...


def redact_output(arguments: Iterable[str] = ()) -> None:
    """From now on, no log record and no traceback of this process contains a credential.

    Args:
        arguments: of the command line, whose URIs may contain passwords.
    """
    remember(secrets_in(os.environ).union(*map(passwords_in, arguments)))
    logging.setLogRecordFactory(RedactedRecord)
    sys.excepthook = _print_exception
    threading.excepthook = _print_exception_of_thread


def _print_exception_of_thread(args: threading.ExceptHookArgs) -> None:
    """Prints a thread's exception; nothing for SystemExit, as in Python, since Ray ends its waiting threads by it."""
    if args.exc_type is not SystemExit:
        _print_exception(args.exc_type, args.exc_value, args.exc_traceback)


def _print_exception(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    print(redacted("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)
