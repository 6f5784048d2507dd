"""What is dropped before any search: queries without a word, of copied passages, asked twice, or that stand in what
they ask for.
"""

from collections.abc import Sequence

from midmask.queries.candidates import Candidate, CandidatePool
from midmask.queries.collection import CollectionFacts, without_hidden
from midmask.queries.config import QueriesConfig
from midmask.queries.made import MadeQuery
from midmask.queries.words import normalised

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
