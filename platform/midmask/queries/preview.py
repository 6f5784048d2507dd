"""Some made queries beside their passages, for a person to judge: as plain text and as a page.

The page has no scripts and reaches for nothing outside of it; every text in it is escaped.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Artifact, Place
from midmask.queries.candidates import Candidate
from midmask.queries.made import MadeQuery, Passage
from midmask.randomness.texts import hash64

SAVED_EXAMPLES = 200

EXAMPLES = pa.schema(
    [
        *((name, pa.string()) for name in ("query_id", "query", "source", "split", "doc_id")),
        ("rank", pa.int32()),
        ("title", pa.string()),
        ("hides_title", pa.bool_()),
        ("parts", pa.list_(pa.struct([("text", pa.string()), ("hidden", pa.bool_())]))),
    ]
)

ExampleRow = dict[str, Any]
"""A row of EXAMPLES; parts: the passage's text from beginning to end, hidden parts marked."""

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 50rem; padding: 0 1rem; color: #1b1b1b;
  background: #fff }
article { border-top: 1px solid #ccc; padding: .8rem 0; overflow-wrap: anywhere }
h2 { font-size: 1.05rem; margin: 0 } h3 { font-size: .95rem; margin: .6rem 0 0 }
p { margin: .3rem 0 } .about { color: #555; font-size: .85rem } del { background: #fde2e1; color: #7a1f1a }
@media (prefers-color-scheme: dark) { body { background: #16181b; color: #e6e6e6 } .about { color: #a8a8a8 }
  article { border-color: #444 } del { background: #4a2020; color: #ffc9c4 } }
"""


def examples_of(
    kept: Sequence[Candidate],
    hiding: Mapping[str, Sequence[MadeQuery]],
    passages: Mapping[str, Passage],
    splits: Mapping[str, str],
) -> list[ExampleRow]:
    """Up to 200 kept queries, the first by a hash of their ids, with their passages as they were."""
    hashes = hash64([one.query_id for one in kept], "examples").tolist()
    order = sorted(range(len(kept)), key=lambda row: (hashes[row], kept[row].query_id))
    return [
        _example(kept[row], hiding[kept[row].made.doc_id], passages[kept[row].made.doc_id], splits)
        for row in order[:SAVED_EXAMPLES]
    ]


def _example(one: Candidate, others: Sequence[MadeQuery], passage: Passage, splits: Mapping[str, str]) -> ExampleRow:
    return {
        "query_id": one.query_id,
        "query": one.made.text,
        "source": one.source,
        "split": splits[one.query_id],
        "doc_id": passage.doc_id,
        "rank": one.rank,
        "title": passage.title,
        "hides_title": any(other.hides_title for other in others),
        "parts": list(_parts(passage.text, sorted(other.hidden for other in others if other.hidden))),
    }


def _parts(text: str, hidden: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    at = 0
    for start, end in hidden:
        yield {"text": text[at:start], "hidden": False}
        yield {"text": text[start:end], "hidden": True}
        at = end
    yield {"text": text[at:], "hidden": False}


def write_examples(place: Place, examples: Sequence[ExampleRow]) -> None:
    with place.writing() as stream:
        pq.write_table(pa.Table.from_pylist(list(examples), EXAMPLES), stream, compression="zstd")


def _read_examples(artifact: Artifact, count: int) -> list[ExampleRow]:
    with (artifact.place / "examples.parquet").reading() as stream:
        rows: list[ExampleRow] = pq.read_table(stream).slice(0, count).to_pylist()
    return rows


def queries_preview(artifact: Artifact, count: int = 50) -> str:
    """Kept queries of a queries artifact as plain text, each with its passage; [-what is hidden-] stands in brackets.

    Args:
        count: of queries, 200 at most.
    """
    return "\n\n".join(_as_text(row) for row in _read_examples(artifact, count)) + "\n"


def _as_text(row: ExampleRow) -> str:
    title = f"[-{row['title']}-]" if row["hides_title"] else row["title"]
    text = "".join(f"[-{part['text']}-]" if part["hidden"] else part["text"] for part in row["parts"])
    passage = " ".join(f"{title}: {text}".removeprefix(": ").split())
    return f"{row['query']}\n    {_about(row)}\n    {passage}"


def _about(row: ExampleRow) -> str:
    found = f"BM25 rank {row['rank']}" if row["rank"] is not None else "not found by BM25"
    return f"{row['source']} · {row['split']} · {found} · {row['doc_id']}"


def queries_page(artifact: Artifact, count: int = 50) -> str:
    """Kept queries of a queries artifact as a page of HTML; what is hidden from the passages is struck out.

    Args:
        count: of queries, 200 at most.
    """
    return page(str(artifact.result.get("name", "")), _read_examples(artifact, count))


def page(name: str, examples: Sequence[ExampleRow]) -> str:
    """The page of these examples. name: of the collection."""
    title = escape(f"Made queries of {name}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        f"<p>{len(examples)} of the queries that were kept, drawn by a hash, each with the passage that it was made "
        "of. <del>Struck out</del> is what the searched passage lacks.</p>\n"
        + "\n".join(_article(row) for row in examples)
        + "\n</body></html>\n"
    )


def _article(row: ExampleRow) -> str:
    heading = _struck(row["title"], row["hides_title"])
    text = "".join(_struck(part["text"], part["hidden"]) for part in row["parts"])
    return (
        f'<article><h2>{escape(row["query"])}</h2><p class="about">{escape(_about(row))}</p>'
        f"{f'<h3>{heading}</h3>' if heading else ''}<p>{text}</p></article>"
    )


def _struck(text: str, hidden: bool) -> str:
    return f"<del>{escape(text)}</del>" if hidden and text else escape(text)
