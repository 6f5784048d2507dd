"""Which candidates are kept: screened, found again by BM25 or by an encoder, not too easy, each source its share.

Screening drops, before any search, queries without a word, of copied passages, asked twice, or that stand in what they
ask for. The round trip asks whether a search finds a query's passage again, in the collection as it will be searched.
If BM25 alone decided, all queries that stay would be such that it answers: of the sentences of three collections it
finds 61 to 74%, and its nDCG@10 on these is 10 to 13 points higher than on those that it or minilm finds
(docs/results/made_queries.md).
"""

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from midmask.core.arrays import Floats
from midmask.core.process import usable_cores
from midmask.encoders.precision import Precision
from midmask.encoders.representation import Side
from midmask.queries.candidates import Candidate, CandidatePool, Roles
from midmask.queries.collection import CollectionFacts, draw_passages, read_as_searched, without_hidden
from midmask.queries.config import JUDGE, TRAIN, QueriesConfig
from midmask.queries.plain_sources import MadeQuery, Passage, normalised
from midmask.retrieve.bm25.index import Bm25IndexConfig, index_texts
from midmask.retrieve.bm25.search import Bm25Index
from midmask.retrieve.text_encoder import TextEncoder
from midmask.retrieve.views import Views
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig

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
"""From so many words on, a hidden text that stands in its passage a second time gives it away."""


def screen(pool: CandidatePool, known: CollectionFacts, config: QueriesConfig) -> None:
    """Sets the reasons of the candidates that are dropped."""
    for one in pool.candidates:
        size = known.sizes[known.cluster_of(one.made.doc_id)]
        if not known.weights.stems(one.made.text):
            one.reason = NO_WORD
        elif size > config.copies:
            one.reason = MANY_COPIES
        elif size > 1 and hides(one.made):
            one.reason = COPY_SHOWS_IT
    _drop_repeated(pool.candidates, known)
    _take_per_passage(pool, config.per_passage)


def hides(made: MadeQuery) -> bool:
    """Whether a part of the passage is hidden for it."""
    return made.hides_title or made.hidden is not None


def _drop_repeated(candidates: Sequence[Candidate], known: CollectionFacts) -> None:
    """One text is one query: of the passages of one cluster the first is kept, of several none."""
    asked: dict[str, list[Candidate]] = {}
    for one in candidates:
        asked.setdefault(normalised(one.made.text), []).append(one)
    for same in asked.values():
        clusters = {known.cluster_of(one.made.doc_id) for one in same}
        left = sorted((one for one in same if one.is_in), key=lambda one: (one.draw_key, one.query_id))
        for one in left if len(clusters) > 1 else left[1:]:
            one.reason = AMBIGUOUS if len(clusters) > 1 else REPEATED


def _take_per_passage(pool: CandidatePool, each: int) -> None:
    """Takes up to `each` candidates of every passage, in the order of their places."""
    taken: dict[str, list[MadeQuery]] = {}
    for one in sorted((one for one in pool.candidates if one.is_in), key=lambda one: (one.draw_key, one.query_id)):
        others = taken.setdefault(one.made.doc_id, [])
        one.reason = _fault(one, others, pool, each)
        if one.is_in:
            others.append(one.made)


def _fault(one: Candidate, others: Sequence[MadeQuery], pool: CandidatePool, each: int) -> str:
    made, passage = one.made, pool.passages[one.made.doc_id]
    if len(others) >= each:
        return ENOUGH
    if made.hidden and any(_meet(made.hidden, other.hidden) for other in others if other.hidden):
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


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


AT_ONCE = 2_048


def hiding_of(candidates: Iterable[Candidate]) -> dict[str, list[MadeQuery]]:
    """Passage -> its queries."""
    found: dict[str, list[MadeQuery]] = {}
    for one in candidates:
        found.setdefault(one.made.doc_id, []).append(one.made)
    return found


def bm25_over(corpus: Place, hiding: Mapping[str, Sequence[MadeQuery]], folder: Place) -> Bm25Index:
    """Index of the corpus without what these queries hide, written to the folder."""
    index_texts(Bm25IndexConfig(), _texts(read_as_searched(corpus, hiding)), folder, str(corpus))
    return Bm25Index(folder)


def _texts(passages: Iterator[Passage]) -> Iterator[tuple[list[str], list[str]]]:
    ids: list[str] = []
    texts: list[str] = []
    for passage in passages:
        ids.append(passage.doc_id)
        texts.append(f"{passage.title} {passage.text}")
        if len(ids) == AT_ONCE:
            yield ids, texts
            ids, texts = [], []
    yield ids, texts


def relevant_of(candidates: Sequence[Candidate], known: CollectionFacts) -> dict[str, list[str]]:
    """Query -> its passage and that passage's near-duplicates, sorted."""
    numbers = {one.query_id: known.cluster_of(one.made.doc_id) for one in candidates}
    members = known.members(sorted(set(numbers.values())))
    return {query_id: members[number] for query_id, number in numbers.items()}


def search_again(
    candidates: Sequence[Candidate],
    corpus: Place,
    passages: Mapping[str, Passage],
    known: CollectionFacts,
    depth: int,
) -> pa.Table:
    """Sets rank and overlap of the candidates, and returns BM25's ranked list of them to this depth. Hidden is what
    these candidates hide, and nothing else.
    """
    hiding = hiding_of(candidates)
    with tempfile.TemporaryDirectory() as folder:
        index = bm25_over(corpus, hiding, Place(folder))
        ranked = index.search([one.query_id for one in candidates], [one.made.text for one in candidates], depth)
        del index  # its arrays are memory maps of the folder's files
    relevant = relevant_of(candidates, known)
    ranks: dict[str, int] = {}
    columns = [ranked[name].to_pylist() for name in ("query_id", "doc_id", "rank")]
    for query_id, doc_id, rank in zip(*columns, strict=True):
        if doc_id in relevant[query_id]:
            ranks[query_id] = min(rank, ranks.get(query_id, rank))
    for one in candidates:
        passage = without_hidden(passages[one.made.doc_id], hiding[one.made.doc_id])
        one.rank = ranks.get(one.query_id)
        one.overlap = known.weights.overlap(one.made.text, f"{passage.title} {passage.text}")
    return ranked


OTHERS = 2_000
"""Passages that are searched beside those of the queries: a whole collection would take most of a small budget."""


def find_by_encoder(
    candidates: Sequence[Candidate],
    inputs: Mapping[str, Artifact],
    known: CollectionFacts,
    depth: int,
    precision: Precision,
) -> None:
    """Sets `by_encoder` of those that BM25 does not find within these ranks. Hidden is what all candidates hide.

    A sample of the collection is searched, and the depth is its share of that of the whole: a passage is expected among
    the first 20 of all where it is among the first 4 of a fifth of them.

    Args:
        inputs: encoder, tokens and corpus of the step.
    """
    lost = [one for one in candidates if one.rank is None or one.rank > depth]
    if not lost:
        return
    relevant = relevant_of(lost, known)
    pool = {doc_id for own in relevant.values() for doc_id in own}
    pool.update(draw_passages(known.doc_ids, 0, "round trip", OTHERS))
    hiding = hiding_of(candidates)
    searched = [one for one in read_as_searched(inputs["corpus"].place, hiding) if one.doc_id in pool]
    row = {one.doc_id: number for number, one in enumerate(searched)}
    passages_PD = _encode_passages(searched, inputs, precision)
    queries_QD = _encode_queries([one.made.text for one in lost], inputs, precision)
    allowed = max(1, depth * len(searched) // len(known.doc_ids))
    for one, query_D in zip(lost, queries_QD, strict=True):
        scores_P = passages_PD @ query_D
        best = max(float(scores_P[row[doc_id]]) for doc_id in relevant[one.query_id])
        one.by_encoder = int((scores_P > best).sum()) < allowed


def _encode_passages(passages: Sequence[Passage], inputs: Mapping[str, Artifact], precision: Precision) -> Floats:
    """Dense vectors [P, D]."""
    reader = _reader("passage", inputs, precision)
    cut = TokensConfig.model_validate(inputs["tokens"].record["config"]).cut_passages(reader.tokenizer)
    rows, _ = cut([one.title for one in passages], [one.text for one in passages])
    return _dense(reader.encode([np.array(row) for row in rows]))


def _encode_queries(texts: Sequence[str], inputs: Mapping[str, Artifact], precision: Precision) -> Floats:
    """Dense vectors [Q, D]."""
    return _dense(_reader("query", inputs, precision).encode_queries(texts))


def _reader(side: Side, inputs: Mapping[str, Artifact], precision: Precision) -> TextEncoder:
    return TextEncoder(inputs["encoder"], inputs["tokens"], side, threads=usable_cores(), precision=precision)


def _dense(views: Views) -> Floats:
    assert views.dense_ND is not None, "the step's encoder is scored by its dense vectors"
    return views.dense_ND


NOT_FOUND = "its passage is not found again"
TOO_EASY = "too easy for BM25"
NOT_DRAWN = "enough queries"

CUT = 10
"""Rank up to which a found passage counts in RR@10."""


def drop_unfound(candidates: Iterable[Candidate], depth: int) -> bool:
    """Drops those whose passage is not within these ranks, nor found by the encoder; whether there was one."""
    lost = [one for one in candidates if not one.by_encoder and (one.rank is None or one.rank > depth)]
    for one in lost:
        one.reason = NOT_FOUND
    return bool(lost)


def reciprocal_rank(one: Candidate) -> float:
    """RR@10 of BM25."""
    return 1 / one.rank if one.rank is not None and one.rank <= CUT else 0.0


def thin(candidates: Sequence[Candidate], target: float, slack: float = 0.0) -> bool:
    """Drops the easiest queries of each source until BM25's mean RR@10 on the rest is at most `target`; whether it
    dropped any. Easiest are those of the best rank, of these those that share most with their passage. A lower target
    drops all that a higher one drops. Weak labels stay: BM25 chose them.

    Args:
        slack: a mean that is above the target by no more is let be.
    """
    dropped = False
    for source in sorted({one.source for one in candidates if not one.is_weak}):
        own = [one for one in candidates if one.source == source]
        own.sort(key=lambda one: (-reciprocal_rank(one), -(one.overlap or 0.0), one.query_id))
        whole, left = math.fsum(map(reciprocal_rank, own)), len(own)
        if whole <= (target + slack) * left:
            continue
        for one in own:
            if whole <= target * left or reciprocal_rank(one) <= target:
                break
            one.reason, dropped = TOO_EASY, True
            whole, left = whole - reciprocal_rank(one), left - 1
    return dropped


def draw_shares(candidates: Sequence[Candidate], roles: Roles, config: QueriesConfig) -> None:
    """Keeps as many as are wanted to train and to judge, of each source its share."""
    for splits in ((TRAIN,), JUDGE):
        own = [one for one in candidates if one.split in splits]
        _draw(own, roles.of(splits[0]), sum(map(config.wanted, splits)))


def _draw(candidates: Sequence[Candidate], weights: Mapping[str, float], total: int) -> None:
    """Keeps at most `total`, each source its share by weight; drops the others in the order of their places."""
    of: dict[str, list[Candidate]] = {source: [] for source in weights}
    for one in sorted(candidates, key=lambda one: (one.draw_key, one.query_id)):
        of[one.source].append(one)
    counts = shares(weights, {source: len(own) for source, own in of.items()}, total)
    for source, own in of.items():
        for one in own[counts[source] :]:
            one.reason = NOT_DRAWN


def shares(weights: Mapping[str, float], available: Mapping[str, int], total: int) -> dict[str, int]:
    """How many queries each source gives: its weight's share of `total`; what a source lacks is divided among the
    others by their weights. Remainders go to the largest fractions, ties by name.
    """
    counts: dict[str, int] = {}
    left = min(total, sum(available.values()))
    open_ = dict(weights)
    while open_:
        whole = sum(open_.values())
        short = [source for source, weight in open_.items() if available[source] <= left * weight / whole]
        if not short:
            exact = {source: left * weight / whole for source, weight in open_.items()}
            counts |= {source: int(value) for source, value in exact.items()}
            rest = left - sum(counts[source] for source in exact)
            for source in sorted(exact, key=lambda source: (counts[source] - exact[source], source))[:rest]:
                counts[source] += 1
            return counts
        for source in short:
            counts[source] = available[source]
            del open_[source]
        left -= sum(available[source] for source in short)
    return counts
