"""Mistakes a person can mend. Everything else is a bug and keeps its traceback."""

import json
import reprlib
import shlex
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

LONGEST = 4_000
"""Characters of a message. A longer one keeps its beginning and its end."""


class UserError(Exception):
    """A user's mistake: one line that names the field or file, the value, the choices and what to type next.

    Jobs print it without a traceback and end with exit code 2. A message that is longer than `LONGEST` is cut in the
    middle; characters that UTF-8 cannot express (lone surrogates) are written as escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_shorten(message.encode("utf-8", "backslashreplace").decode()))


def _shorten(message: str) -> str:
    if len(message) <= LONGEST:
        return message
    cut = f" … ({len(message) - LONGEST:,} characters left out) … "
    return message[: LONGEST * 3 // 4] + cut + message[-LONGEST // 4 :]


QUOTED = 80
"""Characters of a value that messages quote."""

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = QUOTED
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 10


def quoted(value: object) -> str:
    """`repr(value)` for a message: long texts, collections and deep nesting are cut, whatever the value is."""
    try:
        text = _REPR.repr(value)
        return text if len(text) <= 3 * QUOTED else f"{text[: 3 * QUOTED]}…"
    except ValueError:  # Python refuses to write whole numbers of more than 4,300 digits
        return f"(a {type(value).__name__} that is too long to be shown)"


def reason(error: BaseException) -> str:
    """An exception of a library as part of a message: its type, and the first line of its text."""
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def last_line(error: BaseException) -> str:
    """The last line of an exception's text, where Ray and faiss say what happened; its type if it has no text."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()


def how_to_set(changes: Mapping[str, object]) -> str:
    """How to give fields of a recipe these values, for a message: in the shell, and in Python, which has no flags. A
    value in capital letters stands for one that the reader chooses.
    """
    open_values = {path: value for path, value in changes.items() if isinstance(value, str) and value.isupper()}
    texts = {path: open_values.get(path, json.dumps(value)) for path, value in changes.items()}
    typed = " ".join(f"--set {shlex.quote(f'{path}={text}')}" for path, text in texts.items())
    written = ", ".join(f'"{path}": {open_values.get(path, repr(value))}' for path, value in changes.items())
    return f"{typed} (in Python: settings={{{written}}})"


def how_to_install(extra: str) -> str:
    """What to type for the packages of an extra, in a checkout and without one."""
    return f"pip install 'midmask[{extra}]'"


SHOWN = 40
"""Number of names that a message lists in full. Of a longer list it shows the nearest ten."""


def known_names(names: Iterable[str]) -> str:
    """The choices as the end of a message, in the order given."""
    return f"Known: {', '.join(names)}." if (names := list(names)) else "There is none to choose from."


def unknown(kind: str, value: object, choices: Iterable[str], *, hint: str = "") -> UserError:
    """The error for a name that is not in a closed list: the nearest name, then all names, or the nearest ten if there
    are more than `SHOWN`. Nearest to the end of a dotted path are the paths that end with it, the shortest first.
    """
    names = sorted(choices)
    name = value if isinstance(value, str) else quoted(value)
    ends = sorted((choice for choice in names if choice.endswith(f".{name}")), key=len)
    alike = [choice for choice in get_close_matches(name[:QUOTED], names, n=10, cutoff=0.5) if choice not in ends]
    nearest = [*ends, *alike][:10]
    guess = f"; did you mean {nearest[0]!r}?" if nearest else "."
    known = known_names(names)
    if len(names) > SHOWN:
        known = (
            f"Of {len(names)} the nearest: {', '.join(sorted(nearest))}."
            if nearest
            else f"None of {len(names)} is like it."
        )
    tail = f" {hint}" if hint else ""
    return UserError(f"unknown {kind} {quoted(name)}{guess} {known}{tail}")
