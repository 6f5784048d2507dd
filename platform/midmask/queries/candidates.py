"""Candidates: the queries that all sources make of their passages, each with the reason why it was dropped, if it was.

A source reads the first passages by a hash of their ids, of the documents of the splits that its queries are for. What
a model or a server has written is remembered (`written.QueryCache`), so that a step that was killed asks for it once.

Screening drops, before any search, queries without a word, of copied passages, made twice, or repeated in the rest of
their passage.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from midmask.queries.collection import CollectionFacts, MadeQuery, Passage, draw_passages, read_drawn, without_hidden
from midmask.queries.config import SPLITS, QueriesConfig, kind_and_place
from midmask.queries.sources import Opening, Roles, class_of, draw, open_source
from midmask.store.place import Place

WRITTEN = "written"
"""Folder for the answers of models and servers while the step runs."""

OTHER_PURPOSE = "its document is for queries of other sources"


@dataclass
class Candidate:
    """A query that was made, and whether and why it was dropped."""

    made: MadeQuery
    passage: Passage
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
        return class_of(self.source).IS_WEAK


def collect(
    opening: Opening, roles: Roles, splits: Mapping[str, str], out: Place
) -> tuple[list[Candidate], dict[str, dict[str, int]]]:
    """Makes the queries of all sources.

    Args:
        splits: doc_id -> split.

    Returns:
        The candidates, sorted by query_id, and source -> what it counted, of sources that count anything.
    """
    config, known = opening.config, opening.known
    candidates: dict[str, Candidate] = {}
    facts: dict[str, dict[str, int]] = {}
    for number, (source, weight) in enumerate(config.sources.items()):
        count = sum(config.wanted(split) * roles.share(source, split) for split in SPLITS)
        limit = math.ceil(config.candidates * count)
        opened = open_source(source, replace(opening, limit=limit, cache=out / WRITTEN / f"{number:02d}"))
        purpose = roles.splits(source)
        for block in read_drawn(known.corpus, _drawn(source, config, known, purpose, splits, limit)):
            by_id = {passage.doc_id: passage for passage in block}
            seen: Counter[MadeQuery] = Counter()
            for made in opened.queries(block):
                kind, split = kind_and_place(source)[0], splits.get(made.doc_id, "")
                name = (kind, seen[made], made.doc_id, str(made.hidden), made.text)
                seen[made] += 1
                # The first of exponential waiting times: a source of twice the weight comes first twice as often.
                draw_key = -math.log((draw(config.seed, *name) + 0.5) / 2.0**64) / weight
                query_id = f"{kind}-{draw(0, source, *name):016x}"
                reason = OTHER_PURPOSE if split and split not in purpose else ""
                candidates[query_id] = Candidate(made, by_id[made.doc_id], source, query_id, split, draw_key, reason)
        if opened.facts:
            facts[source] = dict(opened.facts)
    return sorted(candidates.values(), key=lambda candidate: candidate.query_id), facts


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
    if class_of(source).READS_ALL:
        return None
    doc_ids = [doc_id for doc_id in known.doc_ids if splits.get(doc_id) in (None, *purpose)]
    return draw_passages(doc_ids, config.seed, kind_and_place(source)[0], limit)


def normalised(text: str) -> str:
    """The text's words in lower case, one space between them: equal for queries that count as the same."""
    return " ".join(re.findall(r"\w+", text.lower()))


NO_WORD = "no word"
MANY_COPIES = "its passage has too many copies"
COPY_SHOWS_IT = "a copy of its passage has what it hides"
AMBIGUOUS = "other passages make the same query"
REPEATED = "the same query again"
STANDS_THERE = "it stands in its passage"
ENOUGH = "its passage has enough queries"
OVERLAPS = "another query hides the same part"
LITTLE_LEFT = "little of its passage would be left"

FEWEST_WORDS = 8
"""Words of a passage that are left when all its queries' parts are hidden; fewer only if it had fewer."""

COPIED_WORDS = 3
"""Fewest words of a hidden text whose second occurrence in its passage gives the passage away."""


def screen(candidates: Sequence[Candidate], known: CollectionFacts, config: QueriesConfig) -> None:
    """Drops unusable candidates before any search, by setting their `reason`."""
    for query in candidates:
        size = known.sizes[known.cluster_of(query.made.doc_id)]
        if not known.weights.stems(query.made.text):
            query.reason = NO_WORD
        elif size > config.copies:
            query.reason = MANY_COPIES
        elif size > 1 and hides(query.made):
            query.reason = COPY_SHOWS_IT
    _drop_repeated(candidates, known)
    _take_per_passage(candidates, config.per_passage)


def hides(made: MadeQuery) -> bool:
    """Whether a made query hides its passage's title or a part of its text."""
    return made.hides_title or made.hidden is not None


def _drop_repeated(candidates: Sequence[Candidate], known: CollectionFacts) -> None:
    """Drops candidates with equal texts: all but one if their passages are near-duplicates, otherwise all."""
    by_text: dict[str, list[Candidate]] = {}
    for query in candidates:
        by_text.setdefault(normalised(query.made.text), []).append(query)
    for same in by_text.values():
        clusters = {known.cluster_of(query.made.doc_id) for query in same}
        left = sorted((query for query in same if query.is_in), key=lambda query: (query.draw_key, query.query_id))
        for query in left if len(clusters) > 1 else left[1:]:
            query.reason = AMBIGUOUS if len(clusters) > 1 else REPEATED


def _take_per_passage(candidates: Sequence[Candidate], each: int) -> None:
    """Keeps up to `each` candidates of every passage, in the order of their draw keys."""
    taken: dict[str, list[MadeQuery]] = {}
    left = [query for query in candidates if query.is_in]
    for query in sorted(left, key=lambda query: (query.draw_key, query.query_id)):
        others = taken.setdefault(query.made.doc_id, [])
        query.reason = _fault(query, others, each)
        if query.is_in:
            others.append(query.made)


def _fault(candidate: Candidate, others: Sequence[MadeQuery], each: int) -> str:
    made, passage = candidate.made, candidate.passage
    if len(others) >= each:
        return ENOUGH
    for other in others:
        if made.hidden and other.hidden and made.hidden[0] < other.hidden[1] and other.hidden[0] < made.hidden[1]:
            return OVERLAPS
    if not hides(made):
        return ""
    left = without_hidden(passage, [*others, made])
    if len(left.text.split()) < min(FEWEST_WORDS, len(passage.text.split())):
        return LITTLE_LEFT
    words = normalised(made.text)
    rest = f"{normalised(left.title)} {normalised(left.text)}".strip()
    copied = f" {words} " in f" {rest} " and len(words.split()) >= COPIED_WORDS
    return STANDS_THERE if copied or words == rest else ""
