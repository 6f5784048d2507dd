"""Candidates: the queries that all sources make of their passages, each with the reason why it was dropped, if it was.

A source reads the first passages by a hash of their ids, of the documents of the splits that its queries are for. What
a model or a server has written is remembered (`cache`), so that a step that was killed asks for it once.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from midmask.artifact import Place
from midmask.queries.collection import CollectionFacts, draw_passages, read_drawn
from midmask.queries.config import SPLITS, QueriesConfig, kind_and_place
from midmask.queries.draws import draw
from midmask.queries.files import FileQueries
from midmask.queries.made import MadeQuery, Passage
from midmask.queries.roles import Roles
from midmask.queries.sources import WHOLE, Known, open_source
from midmask.retrieve.bm25_search import Bm25Index

WRITTEN = "written"
"""Folder of what models and servers wrote, while the step runs."""

OTHER_PURPOSE = "its document is for queries of other sources"


@dataclass
class Candidate:
    """A query that was made. split: of its document; "" if its passage has too many copies to be in one. draw_key: sort
    key of a weighted random draw (exponential race); the smallest is drawn first. reason: why it was dropped; "" while
    it is in. rank: of the first relevant passage by BM25, None where it was not found or not searched.
    by_encoder: whether the encoder finds it instead. overlap: share of the query's words, by idf, that its passage has.
    """

    made: MadeQuery
    source: str
    query_id: str
    split: str
    draw_key: float
    reason: str = ""
    rank: int | None = None
    by_encoder: bool = False
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
    config: QueriesConfig,
    corpus: Place,
    known: CollectionFacts,
    roles: Roles,
    splits: Mapping[str, str],
    index: Bm25Index | None,
    out: Place,
) -> CandidatePool:
    """Lets all sources make their queries.

    Args:
        splits: passage -> its split. index: BM25 over the corpus, needed for sources that are files.
    """
    found: dict[str, Candidate] = {}
    passages: dict[str, Passage] = {}
    facts: dict[str, dict[str, int]] = {}
    index_known = Known(known.weights, known.titles, index)
    for number, (source, weight) in enumerate(config.sources.items()):
        wanted = sum(config.wanted(split) * roles.share(source, split) for split in SPLITS)
        limit = math.ceil(config.candidates * wanted)
        opened = open_source(source, config, index_known, limit, out / WRITTEN / f"{number:02d}")
        purpose = roles.splits(source)
        drawn = _drawn(source, config, known, purpose, splits, limit)
        for some in read_drawn(corpus, drawn):
            of = {passage.doc_id: passage for passage in some}
            seen: Counter[MadeQuery] = Counter()
            for made in opened.queries(some):
                one = _candidate(made, seen[made], source, weight, config.seed, splits.get(made.doc_id, ""))
                seen[made] += 1
                if one.split and one.split not in purpose:
                    one.reason = OTHER_PURPOSE
                found[one.query_id] = one
                passages[made.doc_id] = of[made.doc_id]
        if isinstance(opened, FileQueries):
            facts[source] = dict(opened.facts)
    return CandidatePool(sorted(found.values(), key=lambda one: one.query_id), passages, facts)


def _drawn(
    source: str,
    config: QueriesConfig,
    known: CollectionFacts,
    wanted: Sequence[str],
    splits: Mapping[str, str],
    limit: int,
) -> Collection[str] | None:
    """The passages that a source reads: some of those in the splits that it makes queries for, and of those that are in
    none, so that it is told why; None for all.
    """
    kind = kind_and_place(source)[0]
    if kind in WHOLE:
        return None
    return draw_passages([one for one in known.doc_ids if splits.get(one) in (None, *wanted)], config.seed, kind, limit)


def _candidate(made: MadeQuery, times: int, source: str, weight: float, seed: int, split: str) -> Candidate:
    """times: how often the source made this very query before."""
    kind = kind_and_place(source)[0]
    name = (kind, times, made.doc_id, str(made.hidden), made.text)
    # The first of exponential waiting times: a source of twice the weight comes first twice as often.
    uniform = (draw(seed, *name) + 0.5) / 2.0**64
    return Candidate(made, source, f"{kind}-{draw(0, source, *name):016x}", split, -math.log(uniform) / weight)
