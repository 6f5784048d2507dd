"""Each source on passages whose queries are known, and the same in whatever pieces passages come."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from midmask.queries.keyphrases import KeyphraseQueries
from midmask.queries.made import MadeQuery, Passage, Source
from midmask.queries.sentences import SentenceQueries
from midmask.queries.spans import SpanQueries
from midmask.queries.titles import TitleQueries, title_query
from midmask.queries.words import STOP_WORDS, TermWeights
from tests.support.queries.articles import STOP, articles, stems

PASSAGES = articles(6)


def weights_of(passages: Sequence[Passage]) -> TermWeights:
    return TermWeights(f"{one.title} {one.text}" for one in passages)


def sources() -> dict[str, Source]:
    shared = Counter(one.title for one in PASSAGES)
    return {
        "titles": TitleQueries(shared, 3),
        "sentences": SentenceQueries(0, 2),
        "spans": SpanQueries(0, 2),
        "keyphrases": KeyphraseQueries(weights_of(PASSAGES), 0, 2),
    }


@pytest.mark.parametrize("name", sources())
def test_the_same_queries_in_whatever_pieces_and_order(name: str) -> None:
    whole = list(sources()[name].queries(PASSAGES))
    assert len({made.doc_id for made in whole}) == len(PASSAGES), "every passage of this collection gives a query"
    assert all(made.source == name for made in whole)
    mixed = random.Random(3).sample(PASSAGES, len(PASSAGES))
    pieces = [made for one in mixed for made in sources()[name].queries([one])]
    assert Counter(pieces) == Counter(whole)
    assert [made.doc_id for made in pieces] == sorted(
        (made.doc_id for made in pieces), key=[one.doc_id for one in mixed].index
    )


@pytest.mark.parametrize(
    ("title", "query"),
    [
        ("Wing flutter", "Wing flutter"),
        ("Guide \u203a Install \u203a On  Linux", "On Linux"),
        ("Linux", ""),
        (" \u203a ", ""),
        (" ".join(["word"] * 20), " ".join(["word"] * 20)),
        (" ".join(["word"] * 21), ""),
    ],
)
def test_a_title_is_its_last_heading(title: str, query: str) -> None:
    assert title_query(title) == query


def test_titles_hide_themselves_and_their_copy_at_the_beginning() -> None:
    passages = [
        Passage("a", "Wing flutter", "Of wings that flutter."),
        Passage("b", "Boundary layers", "BOUNDARY-layers. They are thin."),
        Passage("c", "Guide \u203a Heat transfer", "# Heat transfer\nIt cools."),
        Passage("d", "Heat (transfer)", "Heat transferred by a wall."),
        Passage("e", "Shared name", "One."),
        Passage("f", "Shared name", "Two."),
        Passage("g", "Shared name", "Three."),
        Passage("h", "", "No title at all."),
    ]
    found = list(TitleQueries(Counter(one.title for one in passages), 2).queries(passages))
    assert found == [
        MadeQuery("a", "Wing flutter", "titles", None, True),
        MadeQuery("b", "Boundary layers", "titles", (0, 16), True),
        MadeQuery("c", "Heat transfer", "titles", (0, 15), True),
        MadeQuery("d", "Heat (transfer)", "titles", None, True),
    ]


def test_sentences_are_whole_of_fitting_length_and_no_more_than_half() -> None:
    short, fitting, long = "Too short for it.", "Six words are enough for\na  query.", " ".join(["long"] * 31) + "."
    text = f"{short} {fitting}  {long}"
    start = text.index("Six")
    wanted = MadeQuery("p", "Six words are enough for a query.", "sentences", (start, start + len(fitting)))
    assert list(SentenceQueries(0, 5).queries([Passage("p", "", text)])) == [wanted]
    assert not list(SentenceQueries(0, 5).queries([Passage("p", "", f"{fitting} {short}")])), "more than half"
    one = {made.hidden for made in SentenceQueries(0, 1).queries(PASSAGES)}
    other = {made.hidden for made in SentenceQueries(1, 1).queries(PASSAGES)}
    assert one != other, "another seed draws others"


def test_spans_are_words_of_the_text_that_do_not_meet() -> None:
    of = {one.doc_id: one for one in PASSAGES}
    lengths = Counter()
    taken: dict[str, list[tuple[int, int]]] = {}
    for made in SpanQueries(0, 4).queries(PASSAGES):
        assert made.hidden is not None
        start, end = made.hidden
        assert made.text == of[made.doc_id].text[start:end] == made.text.strip()
        assert all(end <= first or last <= start for first, last in taken.get(made.doc_id, []))
        taken.setdefault(made.doc_id, []).append(made.hidden)
        lengths[len(made.text.split())] += 1
    assert set(lengths) == set(range(4, 11))
    assert not list(SpanQueries(0, 4).queries([Passage("p", "", "one two three four five six seven eight")]))


def test_keyphrases_are_phrases_of_words_that_others_have_too() -> None:
    weights = weights_of(PASSAGES)
    have = Counter(stem for one in PASSAGES for stem in set(stems(f"{one.title} {one.text}")))
    of = {one.doc_id: one for one in PASSAGES}
    used: dict[str, list[str]] = {}
    for made in KeyphraseQueries(weights, 0, 2).queries(PASSAGES):
        words = made.text.split()
        assert 2 <= len(words) <= 5 and made.hidden is None and not made.hides_title
        assert not set(words) & (STOP_WORDS | set(STOP)), "no stop words"
        assert all(have[stem] >= 2 for stem in stems(made.text))
        rest = of[made.doc_id].text.lower()
        for one in words:
            assert one in rest, "in the order of the text"
            rest = rest[rest.index(one) + len(one) :]
        used.setdefault(made.doc_id, []).extend(stems(made.text))
    assert all(len(own) == len(set(own)) for own in used.values()), "no stem is asked for twice"
