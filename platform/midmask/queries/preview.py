"""Made queries beside their passages as a page.

It has no scripts and reaches for nothing outside of it, and every text in it is escaped.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader

from midmask.core.randomness import hash64
from midmask.queries.collection import MadeQuery, parts_of
from midmask.queries.sources import Candidate

PAGE = "queries.html"
SHOWN = 50
"""Queries on the page."""

_templates = Environment(loader=PackageLoader("midmask.queries"), autoescape=True, keep_trailing_newline=True)


def queries_page(
    name: str, kept: Sequence[Candidate], hiding: Mapping[str, Sequence[MadeQuery]], count: int = SHOWN
) -> str:
    """HTML page of the first queries by a hash of their ids, with their passages as they were.

    Args:
        name: of the collection.
        hiding: doc_id -> queries, whose hidden parts are struck out.
    """
    hashes = hash64([query.query_id for query in kept], "examples").tolist()
    order = sorted(range(len(kept)), key=lambda row: (hashes[row], kept[row].query_id))
    examples = [_example(kept[row], hiding[kept[row].made.doc_id]) for row in order[:count]]
    return _templates.get_template("queries.html.jinja").render(name=name, examples=examples)


def _example(query: Candidate, hiding: Sequence[MadeQuery]) -> dict[str, Any]:
    """A query as the template takes it; parts: the passage's text from beginning to end, each with whether it is
    hidden.
    """
    rank = "not found by BM25" if query.rank is None else f"BM25 rank {query.rank}"
    return {
        "query": query.made.text,
        "about": f"{query.source} · {query.split} · {rank} · {query.passage.doc_id}",
        "title": query.passage.title,
        "hides_title": any(other.hides_title for other in hiding),
        "parts": parts_of(query.passage, hiding),
    }
