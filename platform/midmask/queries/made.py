"""What sources of queries read and give."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Passage:
    """A row of a prepared corpus."""

    doc_id: str
    title: str
    text: str


@dataclass(frozen=True)
class MadeQuery:
    """A query that one passage answers.

    hidden: characters [start, end) of the passage's text that the query was taken from; the collection's passage lacks
    them, since a query that stands in its passage is found by any system. hides_title: the same of the title.
    """

    doc_id: str
    text: str
    source: str
    hidden: tuple[int, int] | None = None
    hides_title: bool = False


class Source(Protocol):
    """Makes queries of one kind; the same passages give the same queries, however they are divided into calls."""

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        """Any number of queries for each passage, in the order of the passages."""
