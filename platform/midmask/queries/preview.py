"""Made queries beside their passages as a page, and the first rows of spans or pseudo-queries as plain text.

The page has no scripts and reaches for nothing outside of it, and every text in it is escaped.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from jinja2 import Environment, PackageLoader

from midmask.core.randomness import hash64
from midmask.queries.collection import MadeQuery, parts_of
from midmask.queries.sources import Candidate
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_batches
from midmask.text.vocabulary import load_tokenizer

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


SHOWN_ROWS = 10
WIDTH = 100
"""Characters of a text that are shown."""


def preview(name: str, artifact: Artifact, tokens: Place) -> str:
    """The counts of an artifact of spans or pseudo-queries, then its first spans, or queries of passages.

    Args:
        name: "spans" or "pseudo_queries".
        tokens: the artifact whose tokenizer made the ids.
    """
    tokenizer = load_tokenizer((tokens / "tokenizer").local())
    folder = artifact.place / name
    rows = (row for shard in folder.names() for batch in read_batches(folder / shard, 256) for row in batch.to_pylist())
    lines = [*_counts(artifact.result), ""]
    for row in islice(rows, SHOWN_ROWS):
        texts = row["queries"] if "queries" in row else [tokenizer.decode(row["ids"], skip_special_tokens=True)]
        lines += [f"{row['doc_id']}: {textwrap.shorten(text, WIDTH, placeholder='…')}" for text in texts]
    return "\n".join(lines)


def _counts(result: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in result.items():
        label = f"{before}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            yield from _counts(value, f"{label}: ")
        else:
            yield f"{label:<28}{value:>14,}"
