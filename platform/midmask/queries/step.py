"""The queries step: a collection without queries becomes one with train, dev and test queries that were made for it.

    collection/NAME/      the collection in BEIR's layout, without what queries hide; `beir:…/collection/NAME` names it
    queries.parquet       every candidate: text, passage, source, split, and why it was dropped
    queries.html          some kept queries beside their passages as they were
    statistics.json       the step's result

A query is made of one passage; relevant are that passage and its near-duplicates. Documents are divided first, and each
source makes queries of the documents that it is there for: to train, or to judge (`roles_of`). All draws are hashes, so
the result depends on the rows of the collection, not on shards or on their order.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from jinja2 import Environment, PackageLoader

from midmask.core.randomness import fixed_sample
from midmask.corpora.writer import write_beir
from midmask.errors import UserError
from midmask.queries.collection import (
    CollectionFacts,
    MadeQuery,
    parts_of,
    query_row,
    read_as_searched,
    split_passages,
)
from midmask.queries.config import SPLITS, QueriesConfig
from midmask.queries.selection import (
    draw_shares,
    drop_unretrieved,
    find_by_encoder,
    hiding_of,
    screen,
    search_again,
)
from midmask.queries.sources import WRITTEN, Candidate, Opening, Roles, collect, roles_of
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import write_table

log = logging.getLogger(__name__)

PAGE = "queries.html"
SHOWN = 50
"""Queries on the page."""

TEMPLATES = Environment(loader=PackageLoader("midmask.queries"), autoescape=True, keep_trailing_newline=True)

FEWEST = 30
"""Queries below which nothing is made: dev and test would have a handful each."""

CANDIDATES = pa.schema(
    [
        *((name, pa.string()) for name in ("query_id", "text", "doc_id", "source", "split")),
        ("kept", pa.bool_()),
        ("reason", pa.string()),
        ("rank", pa.int32()),
        ("by_encoder", pa.bool_()),
        ("document", pa.string()),
        *((name, pa.int64()) for name in ("hidden_start", "hidden_end")),
        ("hides_title", pa.bool_()),
    ]
)


def make_queries(config: QueriesConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """Makes and filters queries for a corpus, writes the files listed above and returns the statistics.

    Inputs: corpus; where an encoder takes part in the round trip also `encoder` and tokens.

    Raises:
        UserError: if a source cannot be read, or fewer than 30 queries are kept.
    """
    corpus = inputs["corpus"].place
    name = _name_of(corpus)
    known = CollectionFacts(corpus)
    splits, rule = split_passages(known, config)
    opening = Opening(config, known)
    roles = roles_of(opening)
    candidates = collect(opening, roles, splits, out)
    screen(candidates, known, config)
    _select(config, inputs, candidates, known, roles)
    kept = [query for query in candidates if query.is_in]
    if len(kept) < FEWEST:
        raise UserError(_too_few(config, candidates, len(kept), len(known.doc_ids)))
    if missing := set(SPLITS) - {query.split for query in kept}:
        raise UserError(
            f"queries: {len(kept)} queries cannot be divided into train, dev and test: {', '.join(sorted(missing))} "
            "would be empty; name more sources that judge (queries.judged_by), or give more documents"
        )
    result = {
        "name": name,
        "passages": len(known.doc_ids),
        **_counts(candidates),
        "sources": {source: _counts([one for one in candidates if one.source == source]) for source in config.sources},
        "split_rule": rule,
        "train_sources": list(roles.train),
        "judge_sources": list(roles.judge),
        "documents": len({known.document_of(query.made.doc_id) for query in kept}),
    }
    _write(out, name, candidates, known)
    (out / "statistics.json").write_json(result)
    (out / WRITTEN).delete()
    log.info("kept %d of %d made queries: %s", len(kept), len(candidates), result["splits"])
    return result


def _name_of(corpus: Place) -> str:
    """The collection's short name, as a folder may be called."""
    name = str((corpus / "statistics.json").read_json()["name"])
    return "collection" if name in ("", ".", "..") else name.replace("/", "-")


def _counts(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Numbers of made and kept queries, of kept ones by split, and of dropped ones by reason."""
    kept = Counter(query.split for query in candidates if query.is_in)
    dropped = Counter(query.reason for query in candidates if query.reason)
    splits = {split: kept[split] for split in SPLITS}
    return {"made": len(candidates), "kept": kept.total(), "splits": splits, "dropped": dict(sorted(dropped.items()))}


def _select(
    config: QueriesConfig,
    inputs: Mapping[str, Artifact],
    candidates: Sequence[Candidate],
    known: CollectionFacts,
    roles: Roles,
) -> None:
    """Drops queries that are not found again or too many, and searches the others until none is dropped: a dropped
    query no longer hides a part of its passage.
    """
    is_first, depth = True, config.round_trip_depth
    while left := [query for query in candidates if query.is_in]:
        search_again(left, known, depth)
        if is_first and config.round_trip == "either" and "encoder" in inputs:
            find_by_encoder(left, inputs, known, depth, config.precision)
        if config.round_trip != "none":
            drop_unretrieved(left, depth)
        if is_first:
            draw_shares([query for query in left if query.is_in], roles, config)
        if all(query.is_in for query in left):
            return
        is_first = False


def _too_few(config: QueriesConfig, candidates: Sequence[Candidate], kept: int, passages: int) -> str:
    """The message for a collection with fewer than 30 kept queries: the most frequent reason, and what to do."""
    reasons = Counter(query.reason for query in candidates if query.reason).most_common(1)
    why = "".join(f"; {count} were dropped because {reason}" for reason, count in reasons)
    return (
        f"queries.sources = {', '.join(config.sources)}: {kept} queries of {passages:,} passages are kept, and "
        f"{FEWEST} are the least that can be divided into splits{why}; name more sources (queries.sources, such as "
        '{"titles": 1, "sentences": 1, "keyphrases": 1}), or give more documents'
    )


def _write(out: Place, name: str, candidates: Sequence[Candidate], known: CollectionFacts) -> None:
    kept = [query for query in candidates if query.is_in]
    pairs: dict[str, list[tuple[str, str, int]]] = {split: [] for split in SPLITS}
    for query in kept:
        pairs[query.split] += [(query.query_id, doc_id, 1) for doc_id in known.copies_of(query.made.doc_id)]
    documents = {query.query_id: known.document_of(query.made.doc_id) for query in kept}
    rows = (query_row(query.query_id, query.made.text, query.source, documents[query.query_id]) for query in kept)
    hiding = hiding_of(kept)
    write_beir(out / "collection" / name, read_as_searched(known.corpus, hiding), rows, pairs)
    table = pa.Table.from_pylist([_row(query, known) for query in candidates], CANDIDATES)
    write_table(table, out / "queries.parquet")
    (out / PAGE).write(_page(name, kept, hiding).encode())


def _row(query: Candidate, known: CollectionFacts) -> dict[str, Any]:
    """A candidate as a row of queries.parquet."""
    start, end = query.made.hidden or (None, None)
    return {
        "query_id": query.query_id,
        "text": query.made.text,
        "doc_id": query.made.doc_id,
        "source": query.source,
        "split": query.split if query.is_in else "",
        "kept": query.is_in,
        "reason": query.reason,
        "rank": query.rank,
        "by_encoder": query.by_encoder,
        "document": known.document_of(query.made.doc_id),
        "hidden_start": start,
        "hidden_end": end,
        "hides_title": query.made.hides_title,
    }


def _page(name: str, kept: Sequence[Candidate], hiding: Mapping[str, Sequence[MadeQuery]]) -> str:
    """HTML page of a sample of the kept queries, with their passages as they were; what queries hide is struck out. It
    has no scripts and reaches for nothing outside of it, and every text in it is escaped.
    """
    sample = set(fixed_sample([query.query_id for query in kept], SHOWN))
    examples = [
        {
            "query": query,
            "parts": parts_of(query.passage, hiding[query.made.doc_id]),
            "hides_title": any(other.hides_title for other in hiding[query.made.doc_id]),
        }
        for query in kept
        if query.query_id in sample
    ]
    return TEMPLATES.get_template("queries.html.jinja").render(name=name, examples=examples)
