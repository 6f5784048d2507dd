"""Candidates: the queries that all sources make of their passages, each with the reason why it was dropped, if it was.

A source reads the first passages by a hash of their ids. What a model or a server has written is remembered (`cache`),
so that a step that was killed asks for it once.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from midmask.artifact import Place
from midmask.queries.collection import CollectionFacts, read_passages
from midmask.queries.config import QueriesConfig, kind_and_place
from midmask.queries.draws import draw
from midmask.queries.files import FileQueries
from midmask.queries.made import MadeQuery, Passage
from midmask.queries.sources import WHOLE, Known, open_source
from midmask.randomness.texts import hash64
from midmask.retrieve.bm25_search import Bm25Index

BLOCK = 256
"""Passages that a source is given at a time."""

WRITTEN = "written"
"""Folder of what models and servers wrote, while the step runs."""


@dataclass
class Candidate:
    """A query that was made. place: candidates are taken in its order, smallest first; larger weights give smaller
    numbers. reason: why it was dropped; "" while it is in. rank: of the first relevant passage, None where it was not
    found or not searched. overlap: share of the query's words, by idf, that its passage has.
    """

    made: MadeQuery
    source: str
    query_id: str
    place: float
    reason: str = ""
    rank: int | None = None
    overlap: float | None = None

    @property
    def is_in(self) -> bool:
        return not self.reason

    @property
    def is_weak(self) -> bool:
        """Whether its positive is BM25's own choice."""
        return kind_and_place(self.source)[0] == "file"


@dataclass(frozen=True)
class CandidatePool:
    """All candidates, sorted by id, and the passages that they were made of. facts: source -> what it counted."""

    candidates: list[Candidate]
    passages: dict[str, Passage]
    facts: dict[str, dict[str, int]]


def collect(
    config: QueriesConfig, corpus: Place, known: CollectionFacts, index: Bm25Index | None, out: Place
) -> CandidatePool:
    """Lets all sources make their queries. index: BM25 over the corpus, needed for sources that are files."""
    whole = sum(config.sources.values())
    found: dict[str, Candidate] = {}
    passages: dict[str, Passage] = {}
    facts: dict[str, dict[str, int]] = {}
    index_known = Known(known.weights, known.titles, index)
    for number, (source, weight) in enumerate(config.sources.items()):
        limit = math.ceil(config.candidates * config.max_queries * weight / whole)
        opened = open_source(source, config, index_known, limit, out / WRITTEN / f"{number:02d}")
        drawn = draw_passages(known.doc_ids, config.seed, kind_and_place(source)[0], limit)
        read = _blocks(corpus, drawn)
        for some in read:
            of = {passage.doc_id: passage for passage in some}
            seen: Counter[MadeQuery] = Counter()
            for made in opened.queries(some):
                one = _candidate(made, seen[made], source, weight, config.seed)
                seen[made] += 1
                found[one.query_id] = one
                passages[made.doc_id] = of[made.doc_id]
        if isinstance(opened, FileQueries):
            facts[source] = dict(opened.facts)
    return CandidatePool(sorted(found.values(), key=lambda one: one.query_id), passages, facts)


def draw_passages(doc_ids: Sequence[str], seed: int, kind: str, limit: int) -> set[str] | None:
    """The passages that a source reads: the first by a hash; None for all."""
    if kind in WHOLE or limit >= len(doc_ids):
        return None
    hashes = hash64(doc_ids, f"queries {seed} {kind}")
    first = np.argpartition(hashes, limit)[:limit]
    return {doc_ids[row] for row in first.tolist()}


def _blocks(corpus: Place, drawn: set[str] | None) -> Iterator[list[Passage]]:
    rows = (
        passage
        for passages in read_passages(corpus)
        for passage in passages
        if drawn is None or passage.doc_id in drawn
    )
    while block := list(islice(rows, BLOCK)):
        yield block


def _candidate(made: MadeQuery, times: int, source: str, weight: float, seed: int) -> Candidate:
    """times: how often the source made this very query before."""
    kind = kind_and_place(source)[0]
    name = (kind, times, made.doc_id, str(made.hidden), made.text)
    # The first of exponential waiting times: a source of twice the weight comes first twice as often.
    uniform = (draw(seed, *name) + 0.5) / 2.0**64
    return Candidate(made, source, f"{kind}-{draw(0, source, *name):016x}", -math.log(uniform) / weight)
