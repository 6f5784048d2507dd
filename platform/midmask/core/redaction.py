"""Credentials are refused in flags, and hidden in the URIs that are printed, logged or stored.

Two forms are known: user and password of a URI (`scheme://user:password@host`), and values whose names say that they
are secret (`?sig=…`, `secret_access_key=…`).
"""

import re

HIDDEN = "***"

_NAMES = (
    r"(?:password|passwd|passphrase|pwd|secret|token|signature|credentials?"
    r"|(?:api|access|account|shared|secret|private)[_-]?key(?:[_-]?id)?)"
)
_USERINFO = re.compile(r"(?<=://)(?:[^/?#\s'\"]*|[^/?#\s'\"@:]*:[^\s'\"]*)@")
_ASSIGNED = re.compile(rf"((?<![\w.-])(?:[\w.-]*[_.-]|aws|account)?{_NAMES}=[\"']?)[^\s&\"',;)\]}}]+", re.IGNORECASE)
_QUERIED = re.compile(r"((?<=[?&])(?:sig|key|sas|code)=)[^&\s'\"]+", re.IGNORECASE)

_PASSWORD = re.compile(r"://[^/?#\s@:]*:\S*@")
_PORT = re.compile(r"://[^/?#\s@:]*:\d+/")


def redacted(text: str) -> str:
    """A URI, or a text that names one, with `***` in place of every credential."""
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    for pattern in (_ASSIGNED, _QUERIED):
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def has_credentials(uri: str) -> bool:
    """Whether a URI contains a password or a signature; a user's or container's name alone is none."""
    if "://" not in uri:
        return False
    has_password = _PASSWORD.search(uri) and not _PORT.search(uri)
    return bool(has_password or _ASSIGNED.search(uri) or _QUERIED.search(uri))
