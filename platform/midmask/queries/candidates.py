"""Candidates: the queries that all sources make of their passages, each with the reason why it was dropped, if it was.

Here is the table of sources, and what of each is part of an artifact's identity. A source reads the first passages by a
hash of their ids, of the documents of the splits that its queries are for. What a model or a server has written is
remembered (`written.QueryCache`), so that a step that was killed asks for it once.

A system that is trained and judged by queries of one kind has learned the kind: it gains what people's queries do not
show (docs/results/choose.md). So the sources that judge are not those that train (`roles_of`). Titles judge where
passages have their own, for they are most like what people type; else sentences do.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midmask.core.config import library_versions, model_content
from midmask.corpora.documents.passages import splitter
from midmask.errors import UserError
from midmask.queries.collection import CollectionFacts, draw_passages, read_drawn
from midmask.queries.config import ALL, PLAIN, SPLITS, TRAIN, QueriesConfig, kind_and_place
from midmask.queries.plain_sources import (
    FileQueries,
    KeyphraseQueries,
    MadeQuery,
    Passage,
    SentenceQueries,
    Source,
    SpanQueries,
    TermWeights,
    TitleQueries,
    draw,
)
from midmask.queries.written import ModelQueries, ServerQueries
from midmask.retrieve.bm25.search import Bm25Index
from midmask.store.place import Place

WHOLE = ("titles", "file")
"""Kinds that go through all passages: most of these give no query, and it costs nothing."""


@dataclass(frozen=True)
class Known:
    """What sources need to know of the whole collection. titles: title -> number of passages with it. index: BM25 over
    the passages as they were; none where no source asks for it.
    """

    weights: TermWeights
    titles: Mapping[str, int]
    index: Bm25Index | None = None


def open_source(source: str, config: QueriesConfig, known: Known, limit: int, cache: Place) -> Source:
    """The source of this name (`QueriesConfig.sources`).

    Args:
        limit: number of queries that are enough of it. cache: where a model's or a server's answers are kept until
            the step has ended.

    Raises:
        UserError: if its file, model or server is not what it should be.
    """
    kind, place = kind_and_place(source)
    if kind in PLAIN:
        return open_plain(kind, config, known)
    if kind == "file":
        assert known.index is not None
        return FileQueries(Place(place), known.index, config.margin, limit, config.seed)
    return ModelQueries(place, config, cache=cache) if kind == "model" else ServerQueries(place, config, cache=cache)


def open_plain(kind: str, config: QueriesConfig, known: Known) -> Source:
    """A source that needs nothing but the passages."""
    if kind == "titles":
        return TitleQueries(known.titles, config.copies)
    if kind == "sentences":
        return SentenceQueries(config.seed, config.per_passage)
    if kind == "spans":
        return SpanQueries(config.seed, config.per_passage)
    return KeyphraseQueries(known.weights, config.seed, config.per_passage)


def queries_content(config: QueriesConfig) -> dict[str, Any]:
    """Fingerprints of the files and models that the sources name, and versions of the libraries that decide what the
    queries are, as a part of the artifact's identity. A server is known by its URL alone.

    Raises:
        UserError: if a file or a model is not there.
    """
    found: dict[str, Any] = {"libraries": library_versions(("bm25s", "PyStemmer"))}
    for source in config.sources:
        kind, place = kind_and_place(source)
        if kind == "sentences":
            found["sentences"] = splitter()
        if kind == "file":
            if not Place(place).exists() or Place(place).is_folder():
                raise UserError(f"queries.sources, {source}: there is no such file")
            found[source] = Place(place).digest()
        if kind == "model":
            found[source] = model_content(Path(place), "queries.sources")
    return found


JUDGES = ("http", "model", "titles", "sentences")
"""Kinds that may judge, the first that can. A file's queries have weak labels, which BM25 chose; keyphrases and spans
are words of their passage, so that BM25 wins on them whatever people ask.
"""

ENOUGH = 200
"""Queries that a source can make for dev and test, before any is dropped: with fewer it does not judge alone."""

SAMPLE = 500
"""Passages that tell how many queries a source can make."""


@dataclass(frozen=True)
class Roles:
    """train, judge: source -> weight, of the sources whose queries are for it; one source may do both."""

    train: Mapping[str, float]
    judge: Mapping[str, float]

    def of(self, split: str) -> Mapping[str, float]:
        return self.train if split == TRAIN else self.judge

    def splits(self, source: str) -> tuple[str, ...]:
        """The splits that a source makes queries for."""
        return tuple(split for split in SPLITS if source in self.of(split))

    def share(self, source: str, split: str) -> float:
        """The source's share of a split's queries, by weight; 0 if it makes none for it."""
        weights = self.of(split)
        return weights.get(source, 0.0) / sum(weights.values())


def roles_of(config: QueriesConfig, corpus: Place, known: CollectionFacts) -> Roles:
    """By `config.judged_by`; where it is empty, the first of `JUDGES` that has enough judges alone. Where none has, or
    nothing would be left to train on, all sources do both.
    """
    judging = tuple(config.sources) if ALL in config.judged_by else config.judged_by
    judging = judging or _first_judge(config, corpus, known)
    others = {source: weight for source, weight in config.sources.items() if source not in judging}
    if not judging or not others:
        return Roles(config.sources, {source: config.sources[source] for source in judging or config.sources})
    return Roles(others, {source: config.sources[source] for source in judging})


def _first_judge(config: QueriesConfig, corpus: Place, known: CollectionFacts) -> tuple[str, ...]:
    for kind in JUDGES:
        for source in config.sources:
            if kind_and_place(source)[0] == kind and _possible(source, config, corpus, known) >= ENOUGH:
                return (source,)
    return ()


def _possible(source: str, config: QueriesConfig, corpus: Place, known: CollectionFacts) -> float:
    """How many queries the source can make for dev and test, by what it makes of a sample; of a model or a server,
    which are not asked in vain, as many as passages.
    """
    judged = (config.dev_share + config.test_share) * len(known.doc_ids)
    kind = kind_and_place(source)[0]
    if kind not in PLAIN:
        return judged
    drawn = draw_passages(known.doc_ids, config.seed, f"{kind} sample", SAMPLE)
    read = [passage for some in read_drawn(corpus, drawn) for passage in some]
    opened = open_plain(kind, config, Known(known.weights, known.titles))
    makers = {made.doc_id for made in opened.queries(read)}
    return judged * len(makers) / len(read)


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
