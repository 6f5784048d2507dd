"""Reports for people: counts of the candidates, some queries beside their passages, examples of spans.

Counts say what became of the candidates, how hard the kept queries are for BM25, and how much they give away. Examples
are plain text, and for made queries a page as well: it has no scripts and reaches for nothing outside of it, and every
text in it is escaped.
"""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import Environment, PackageLoader

from midmask.core.randomness import hash64
from midmask.corpora.writer import QRELS
from midmask.evaluation import measures
from midmask.queries.collection import CollectionFacts, MadeQuery, parts_of
from midmask.queries.config import SPLITS
from midmask.queries.selection import reciprocal_rank
from midmask.queries.sources import Candidate
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_batches, read_table
from midmask.text.vocabulary import load_tokenizer

MEASURES = ("RR@10", "nDCG@10")


def qrels_table(kept: Sequence[Candidate], known: CollectionFacts) -> pa.Table:
    """The judgements as midmask's measures read them; sorted by split, query and passage."""
    rows = sorted(
        (query.split, query.query_id, doc_id, 1) for query in kept for doc_id in known.copies_of(query.made.doc_id)
    )
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=QRELS)


def give_away(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Means over searched queries: BM25's RR@10, the share whose passage it ranks first, and the overlap."""
    if not candidates:
        return {}
    values = {
        "RR@10": [reciprocal_rank(query) for query in candidates],
        "first": [float(query.rank == 1) for query in candidates],
        "overlap": [query.overlap or 0.0 for query in candidates],
    }
    return {name: _mean(numbers) for name, numbers in values.items()}


def summary(
    candidates: Sequence[Candidate],
    qrels: pa.Table,
    ranked: pa.Table,
    *,
    before: Mapping[str, dict[str, float]],
    facts: Mapping[str, dict[str, int]],
) -> dict[str, Any]:
    """The step's result.

    Args:
        before: source -> `give_away` of the queries that were found again, before the easiest were dropped.
        facts: source -> what it counted itself.
    """
    sources: dict[str, Any] = {}
    for source in sorted({query.source for query in candidates}):
        made = [query for query in candidates if query.source == source]
        kept = [query for query in made if query.is_in]
        sources[source] = {
            "made": len(made),
            "kept": len(kept),
            "splits": dict(sorted(Counter(query.split for query in kept).items())),
            "dropped": _reasons(made),
            "words": _mean([float(len(query.made.text.split())) for query in kept]) if kept else None,
            "weak_labels": any(query.is_weak for query in made),
            "found": before.get(source, {}),
            "bm25": give_away(kept),
            **({"read": facts[source]} if source in facts else {}),
        }
    all_kept = [query for query in candidates if query.is_in]
    weak = {query.query_id for query in all_kept if query.is_weak}
    return {
        "made": len(candidates),
        "kept": len(all_kept),
        "splits": {name: sum(query.split == name for query in all_kept) for name in SPLITS},
        "dropped": _reasons(candidates),
        "weak_labels": len(weak),
        "sources": sources,
        "bm25": {split: _bm25_values(ranked, qrels, split, weak) for split in ("dev", "test")},
    }


def _reasons(candidates: Sequence[Candidate]) -> dict[str, int]:
    return dict(sorted(Counter(query.reason for query in candidates if query.reason).items()))


def _bm25_values(ranked: pa.Table, qrels: pa.Table, split: str, weak: set[str]) -> dict[str, float]:
    """BM25's measures on a split's queries, those with weak labels left out; only their number where none is left."""
    judged = qrels.filter(pc.invert(pc.is_in(qrels["query_id"], value_set=pa.array(sorted(weak), pa.string()))))
    judged = judged.filter(pc.equal(judged["split"], split))
    count = pc.count_distinct(judged["query_id"]).as_py()
    if not count:
        return {"queries": 0}
    values = measures.aggregate(measures.evaluate(ranked, judged, split, MEASURES))
    return {"queries": count, **{name: round(value, 4) for name, value in sorted(values.items())}}


def _mean(numbers: Sequence[float]) -> float:
    return round(sum(numbers) / len(numbers), 4)


SAVED = 200

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
"""A row of examples.parquet; parts: the passage's text from beginning to end, hidden parts marked."""

_templates = Environment(loader=PackageLoader("midmask.queries"), autoescape=True, keep_trailing_newline=True)


def examples_of(kept: Sequence[Candidate], hiding: Mapping[str, Sequence[MadeQuery]]) -> list[ExampleRow]:
    """Up to 200 kept queries, the first by a hash of their ids, with their passages as they were."""
    hashes = hash64([query.query_id for query in kept], "examples").tolist()
    order = sorted(range(len(kept)), key=lambda row: (hashes[row], kept[row].query_id))
    return [_example(kept[row], hiding[kept[row].made.doc_id]) for row in order[:SAVED]]


def _example(query: Candidate, hiding: Sequence[MadeQuery]) -> ExampleRow:
    return {
        "query_id": query.query_id,
        "query": query.made.text,
        "source": query.source,
        "split": query.split,
        "doc_id": query.passage.doc_id,
        "rank": query.rank,
        "title": query.passage.title,
        "hides_title": any(other.hides_title for other in hiding),
        "parts": [{"text": text, "hidden": is_hidden} for text, is_hidden in parts_of(query.passage, hiding)],
    }


def _read_examples(artifact: Artifact, count: int) -> list[ExampleRow]:
    rows: list[ExampleRow] = read_table(artifact.place / "examples.parquet").slice(0, count).to_pylist()
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
    rank = f"BM25 rank {row['rank']}" if row["rank"] is not None else "not found by BM25"
    return f"{row['source']} · {row['split']} · {rank} · {row['doc_id']}"


def queries_page(artifact: Artifact, count: int = 50) -> str:
    """Kept queries of a queries artifact as a page of HTML; what is hidden from the passages is struck out.

    Args:
        count: of queries, 200 at most.
    """
    return page(str(artifact.result.get("name", "")), _read_examples(artifact, count))


def page(name: str, examples: Sequence[ExampleRow]) -> str:
    """HTML page of the examples from the collection `name`."""
    return _templates.get_template("queries.html.jinja").render(name=name, examples=examples, about=_about)


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
