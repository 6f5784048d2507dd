"""Why candidates are dropped before any search, on a collection made for it."""

from pathlib import Path

import pytest

from midmask.queries import screening
from midmask.queries.candidates import Candidate, CandidatePool
from midmask.queries.collection import CollectionFacts, without_hidden
from midmask.queries.config import QueriesConfig
from midmask.queries.made import MadeQuery, Passage
from tests.support.queries.articles import articles, corpus_of

PASSAGES = articles(4)
LONG = PASSAGES[0].text
A, B, C = (one.doc_id for one in PASSAGES[:3])


def reasons(folder: Path, made: list[MadeQuery], extra: list[Passage] | None = None, **fields: int) -> list[str]:
    """Candidates take their places in the order in which they stand here."""
    passages = [*PASSAGES, *(extra or [])]
    known = CollectionFacts(corpus_of(folder, passages).place)
    some = [Candidate(one, one.source, f"q{n:03d}", "train", float(n)) for n, one in enumerate(made)]
    screening.screen(CandidatePool(some, {one.doc_id: one for one in passages}, {}), known, QueriesConfig(**fields))
    return [one.reason for one in some]


def asked(doc_id: str, text: str, hidden: tuple[int, int] | None = None, title: bool = False) -> MadeQuery:
    return MadeQuery(doc_id, text, "spans", hidden, title)


def test_one_text_of_several_passages_is_no_query(tmp_path: Path) -> None:
    made = [asked(A, "What is it?"), asked(B, "what  IS it"), asked(C, "another one"), asked(C, "Another one!")]
    assert reasons(tmp_path, made) == [screening.AMBIGUOUS, screening.AMBIGUOUS, "", screening.REPEATED]


def test_copies(tmp_path: Path) -> None:
    twin = Passage("twin", "", PASSAGES[0].text)
    made = [
        asked(A, "the same"),
        asked("twin", "The same"),
        asked(A, "a span", (0, 20)),
        asked(A, "a title", None, True),
    ]
    wanted = ["", screening.REPEATED, screening.COPY_SHOWS_IT, screening.COPY_SHOWS_IT]
    assert reasons(tmp_path / "two", made, [twin], copies=2) == wanted
    assert reasons(tmp_path / "one", made, [twin], copies=1) == [screening.MANY_COPIES] * 4


def test_words_places_and_parts(tmp_path: Path) -> None:
    words = LONG.split()
    early, late = " ".join(words[:6]), " ".join(words[-6:])
    ends = (len(early), len(LONG) - len(late))
    made = [
        asked(A, "? a"),
        asked(A, early, (0, ends[0])),
        asked(A, " ".join(words[3:9]), (ends[0] - 3, ends[0] + 20)),
        asked(A, late, (ends[1], len(LONG))),
        asked(A, "one too many of it"),
    ]
    wanted = [screening.NO_WORD, "", screening.OVERLAPS, "", screening.ENOUGH]
    assert reasons(tmp_path, made, per_passage=2) == wanted


@pytest.mark.parametrize(("left", "reason"), [(8, ""), (7, screening.LITTLE_LEFT)])
def test_something_of_a_passage_is_left(tmp_path: Path, left: int, reason: str) -> None:
    kept, hidden = " ".join(f"kept{n}" for n in range(left)), " ".join(f"gone{n}" for n in range(9))
    passage = Passage("small#0", "", f"{hidden} {kept}")
    assert reasons(tmp_path, [asked("small#0", hidden, (0, len(hidden)))], [passage]) == [reason]


def test_what_stands_there_a_second_time_gives_it_away(tmp_path: Path) -> None:
    rest = "and all the other words of the passage that are left of it"
    passages = [
        Passage("twice#0", "", f"wings flutter much. {rest} Wings  flutter, MUCH!"),
        Passage("short#0", "", "wings flutter. Here something else is told, of which wings flutter is a part"),
        Passage("title#0", "Fluttering wings", "fluttering wings"),
    ]
    made = [
        asked("twice#0", "wings flutter much", (0, 19)),
        asked("short#0", "wings flutter", (0, 14)),
        asked("title#0", "Fluttering wings", None, True),
    ]
    assert reasons(tmp_path, made, passages) == [screening.STANDS_THERE, "", screening.STANDS_THERE]


def test_hidden_parts_leave_a_space() -> None:
    passage = Passage("p", "A title", "one two three, four five six.")
    hide = [asked("p", "", (15, 24)), asked("p", "", (4, 7)), asked("p", "", None)]
    assert without_hidden(passage, hide) == Passage("p", "A title", "one three, six.")
    assert without_hidden(passage, [asked("p", "", (0, 3), True)]) == Passage("p", "", "two three, four five six.")
    assert without_hidden(passage, hide[2:]) == passage
