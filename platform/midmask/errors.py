"""Mistakes a person can mend. Everything else is a bug and keeps its traceback."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A user's mistake: one line that names the field or file, the value, the choices and what to type next.

    Jobs print it without a traceback and end with exit code 2.
    """

    def __reduce__(self) -> tuple[type["UserError"], tuple[str]]:
        return (UserError, (str(self),))


SHOWN = 40
"""Names that a reader looks through; of more, the nearest are told."""


def unknown(kind: str, value: object, choices: Iterable[str], *, hint: str = "") -> UserError:
    """The error for a name that is not in a closed list: the nearest name, then all of them, or, of very many, the
    nearest ten."""
    names = sorted(choices)
    nearest = get_close_matches(str(value), names, n=10, cutoff=0.5)
    guess = f"; did you mean {nearest[0]!r}?" if nearest else "."
    known = f"Known: {', '.join(names)}."
    if len(names) > SHOWN:
        known = (
            f"Of {len(names)} the nearest: {', '.join(sorted(nearest))}."
            if nearest
            else f"None of {len(names)} is like it."
        )
    tail = f" {hint}" if hint else ""
    return UserError(f"unknown {kind} {str(value)!r}{guess} {known}{tail}")
