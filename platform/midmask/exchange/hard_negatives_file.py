"""The layout of sentence-transformers' msmarco-hard-negatives: a line a query,

    {"qid": …, "pos": [passages], "neg": {system: [passages, best first]}}

plain or gzip'd. Ids may be integers or strings; they come back as strings.
"""

import json
from typing import Any, NamedTuple

from midmask.errors import quoted


class HardNegatives(NamedTuple):
    """A query's relevant passages, and its negatives by the system that found them, best first."""

    query_id: str
    positives: list[str]
    negatives: dict[str, list[str]]


def line_of(entry: HardNegatives) -> bytes:
    """A line of the layout."""
    row = {"qid": entry.query_id, "pos": entry.positives, "neg": entry.negatives}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def entry_of(row: Any) -> HardNegatives:
    """A line of the layout, as JSON.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: for another layout.
    """
    negatives = {id_in(system): ids_in(ids) for system, ids in row["neg"].items()}
    return HardNegatives(id_in(row["qid"]), ids_in(row["pos"]), negatives)


def ids_in(value: object) -> list[str]:
    """A list of ids as strings.

    Raises:
        ValueError: if it is no list (a string is not), or holds anything but whole numbers and strings.
    """
    if not isinstance(value, list):
        raise ValueError(f"{quoted(value)} is not a list")
    return [id_in(item) for item in value]


def id_in(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{quoted(value)} is not an id")
    text = str(value)
    text.encode()  # a lone surrogate, written as an escape, is no text
    return text
