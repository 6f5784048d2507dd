"""Ids, texts and grades in the fields of a row, whatever the format: what is taken, what is nothing and refused."""

import math
from collections.abc import Mapping
from typing import Any

from midmask.corpora.chunks import MALFORMED, NO_GRADE, Fault
from midmask.errors import quoted


def is_nothing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, or pandas' NaT and NA. An infinite number and "" do not."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas' NA has no truth value
        return True
    except ValueError:  # a comparison that gives an array
        return False


def read_id(row: Mapping[str, Any], *names: str) -> str:
    """The id in the first of these fields that has one.

    Raises:
        Fault: if there is none, or it is neither a text nor a whole number.
    """
    value = _first_value(row, names)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _refusal(row, names, value, "which is neither a text nor a whole number")
    return str(value)


def read_text(row: Mapping[str, Any], *names: str) -> str:
    """The text in the first of these fields that has one; "" where it is there and holds nothing.

    Raises:
        Fault: if the row has none of the fields, or the value is no text.
    """
    value = _first_value(row, names)
    if is_nothing(value) and any(name in row for name in names):
        return ""
    if not isinstance(value, str):
        raise _refusal(row, names, value, "which is no text")
    return value


def read_title(row: Mapping[str, Any]) -> str:
    """The title of a row; "" where there is none, or nothing in the field.

    Raises:
        Fault: for a value that is no text.
    """
    return read_text({"title": row.get("title")}, "title")


def whole_grade(value: Any, field: str = "score") -> int:
    """A grade of 32 bits, from a number or its digits.

    Raises:
        Fault: for any other number, or none.
    """
    try:
        number = float(value)
    except (ValueError, TypeError, OverflowError):
        number = math.nan
    if not number.is_integer() or abs(number) >= 2**31:  # infinities and NaN are no integers
        kind = NO_GRADE if math.isfinite(number) else MALFORMED
        raise Fault(kind, f"{field} is {quoted(value)}, not a whole number")
    return int(number)


def split_columns(text: str, *names: str) -> list[str]:
    """The columns of a line divided by tabs; ValueError if it has another number of them."""
    cells = text.split("\t")
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} columns instead of {len(names)} ({', '.join(names)})")
    return cells


def _first_value(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first of the fields that holds something; else the first that is there; else None."""
    present = [row[name] for name in names if name in row]
    return next((value for value in present if not is_nothing(value)), present[0] if present else None)


def _refusal(row: Mapping[str, Any], names: tuple[str, ...], value: Any, fault: str) -> Fault:
    present = [name for name in names if name in row]
    if not present:
        fields = quoted(list(row)) if row else "none"
        return Fault(MALFORMED, f"no field {names[0]}; its fields are {fields}")
    return Fault(MALFORMED, f"{present[0]} is {quoted(value)}, {fault}")
