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
from typing import Any

from midmask.core.config import library_versions
from midmask.queries.collection import CollectionFacts, draw_passages, read_drawn
from midmask.queries.config import ALL, PLAIN, SPLITS, TRAIN, QueriesConfig
from midmask.queries.plain_sources import (
    FileQueries,
    KeyphraseQueries,
    MadeQuery,
    Passage,
    SentenceQueries,
    Source,
    SpanQueries,
    TitleQueries,
    draw,
)
from midmask.queries.sources import file_content, kind_and_place, source_content
from midmask.queries.written import ModelQueries, ServerQueries
from midmask.retrieve.bm25.search import Bm25Index
from midmask.store.place import Place

SAMPLE = 500
"""Passages in the sample from which the number of a source's queries is estimated."""

WHOLE = ("titles", "file")
"""Kinds that go through all passages: most of these give no query, and it costs nothing."""


def open_source(
    source: str,
    config: QueriesConfig,
    known: CollectionFacts,
    limit: int = SAMPLE,
    index: Bm25Index | None = None,
    cache: Place | None = None,
) -> Source:
    """Opens a source by its name in `QueriesConfig.sources`.

    Args:
        limit: number of queries that are needed from the source.
        index: BM25 over the passages before anything is hidden, for a file.
        cache: where a model's or a server's answers are kept until the step has ended.

    Raises:
        UserError: if its file, model or server is not what it should be.
    """
    kind, place = kind_and_place(source)
    match kind:
        case "titles":
            return TitleQueries(known.titles, config.copies)
        case "sentences":
            return SentenceQueries(config.seed, config.per_passage)
        case "spans":
            return SpanQueries(config.seed, config.per_passage)
        case "keyphrases":
            return KeyphraseQueries(known.weights, config.seed, config.per_passage)
        case "file":
            assert index is not None
            return FileQueries(Place(place), index, config.margin, limit, config.seed)
        case "model":
            return ModelQueries(place, config, cache=cache)
    return ServerQueries(place, config, cache=cache)


def queries_content(config: QueriesConfig) -> dict[str, Any]:
    """Fingerprints of the sources' files and models, and versions of the libraries that determine the queries.

    They are a part of the artifact's identity. A server is identified by its URL alone.

    Raises:
        UserError: if a file or a model is not there.
    """
    content: dict[str, Any] = {"libraries": library_versions(("bm25s", "PyStemmer"))}
    for source in config.sources:
        kind, place = kind_and_place(source)
        if kind == "file":
            content[source] = file_content(place, f"queries.sources, {source}")
        elif deciding := source_content(source, "queries.sources"):
            content[source] = deciding
    return content


JUDGES = ("http", "model", "titles", "sentences")
"""Kinds of sources that may judge, in order of preference. The others favour BM25: it chose the labels of a file's
queries, and keyphrases and spans are words of their passage.
"""

ENOUGH = 200
"""Fewest queries for dev and test, before any is dropped, that let a source judge alone."""


@dataclass(frozen=True)
class Roles:
    """The sources that make queries to train, and those that make queries to judge; a source may do both."""

    train: Mapping[str, float]  # source -> weight
    judge: Mapping[str, float]  # source -> weight

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
    """Divides the sources into those that train and those that judge, by `config.judged_by`.

    If that is empty, the first source, in the order of `JUDGES`, with enough queries judges alone; if none has enough,
    all judge. The sources that judge train as well if no other is left.
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
    """Estimates from a sample how many queries a source can make for dev and test.

    A model or a server, which is not asked for a sample, counts one query per passage.
    """
    judged = (config.dev_share + config.test_share) * len(known.doc_ids)
    kind = kind_and_place(source)[0]
    if kind not in PLAIN:
        return judged
    drawn = draw_passages(known.doc_ids, config.seed, f"{kind} sample", SAMPLE)
    read = [passage for some in read_drawn(corpus, drawn) for passage in some]
    opened = open_source(source, config, known)
    makers = {made.doc_id for made in opened.queries(read)}
    return judged * len(makers) / len(read)


WRITTEN = "written"
"""Folder for the answers of models and servers while the step runs."""

OTHER_PURPOSE = "its document is for queries of other sources"


@dataclass
class Candidate:
    """A query that was made, and whether and why it was dropped."""

    made: MadeQuery
    source: str
    query_id: str
    split: str  # of its document; "" if its passage has too many copies to be in a split
    draw_key: float  # sort key of a weighted random draw (exponential race); the smallest is drawn first
    reason: str = ""  # why it was dropped; "" if it was not
    rank: int | None = None  # of the first relevant passage by BM25; None if it was not found or not searched
    by_encoder: bool = False  # whether the encoder finds a relevant passage that BM25 does not
    overlap: float | None = None  # share of the query's words, weighted by idf, that its passage has

    @property
    def is_in(self) -> bool:
        return not self.reason

    @property
    def is_weak(self) -> bool:
        """Whether its relevant passage was chosen by BM25."""
        return kind_and_place(self.source)[0] == "file"


@dataclass(frozen=True)
class CandidatePool:
    """All candidates and the passages that they were made of."""

    candidates: list[Candidate]  # sorted by query_id
    passages: dict[str, Passage]  # doc_id -> passage
    facts: dict[str, dict[str, int]]  # source -> its counts of lines and queries; of sources that are files


def collect(
    config: QueriesConfig,
    corpus: Place,
    known: CollectionFacts,
    roles: Roles,
    splits: Mapping[str, str],
    index: Bm25Index | None,
    out: Place,
) -> CandidatePool:
    """Makes the queries of all sources.

    Args:
        splits: doc_id -> split.
        index: BM25 over the corpus; needed for sources that are files.
    """
    candidates: dict[str, Candidate] = {}
    passages: dict[str, Passage] = {}
    facts: dict[str, dict[str, int]] = {}
    for number, (source, weight) in enumerate(config.sources.items()):
        count = sum(config.wanted(split) * roles.share(source, split) for split in SPLITS)
        limit = math.ceil(config.candidates * count)
        opened = open_source(source, config, known, limit, index, out / WRITTEN / f"{number:02d}")
        purpose = roles.splits(source)
        drawn = _drawn(source, config, known, purpose, splits, limit)
        for block in read_drawn(corpus, drawn):
            by_id = {passage.doc_id: passage for passage in block}
            seen: Counter[MadeQuery] = Counter()
            for made in opened.queries(block):
                candidate = _candidate(made, seen[made], source, weight, config.seed, splits.get(made.doc_id, ""))
                seen[made] += 1
                if candidate.split and candidate.split not in purpose:
                    candidate.reason = OTHER_PURPOSE
                candidates[candidate.query_id] = candidate
                passages[made.doc_id] = by_id[made.doc_id]
        if isinstance(opened, FileQueries):
            facts[source] = dict(opened.facts)
    return CandidatePool(sorted(candidates.values(), key=lambda candidate: candidate.query_id), passages, facts)


def _drawn(
    source: str,
    config: QueriesConfig,
    known: CollectionFacts,
    purpose: Sequence[str],
    splits: Mapping[str, str],
    limit: int,
) -> Collection[str] | None:
    """Draws the passages that a source reads; None: all passages.

    They are in the splits of `purpose` or in no split: queries of the latter are made to be counted with the reason.
    """
    kind = kind_and_place(source)[0]
    if kind in WHOLE:
        return None
    doc_ids = [doc_id for doc_id in known.doc_ids if splits.get(doc_id) in (None, *purpose)]
    return draw_passages(doc_ids, config.seed, kind, limit)


def _candidate(made: MadeQuery, times: int, source: str, weight: float, seed: int, split: str) -> Candidate:
    """times: how often the source made this very query before."""
    kind = kind_and_place(source)[0]
    name = (kind, times, made.doc_id, str(made.hidden), made.text)
    # The first of exponential waiting times: a source of twice the weight comes first twice as often.
    uniform = (draw(seed, *name) + 0.5) / 2.0**64
    return Candidate(made, source, f"{kind}-{draw(0, source, *name):016x}", split, -math.log(uniform) / weight)
