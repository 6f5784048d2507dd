"""Words of a query in a passage."""

from hypothesis import given
from hypothesis import strategies as st

from midmask.choice.highlight import LENGTH, excerpt, highlight
from tests.support.verdicts import PUMP

TEXT = st.text(max_size=2_000)


@given(TEXT, st.text(max_size=50))
def test_the_parts_are_the_text(text: str, query: str) -> None:
    assert "".join(part.text for part in highlight(text, query)) == text
    found = excerpt(text, query)
    shown = "".join(part.text for part in found.parts)
    assert shown in text and (found.before or found.after or shown == text)


def test_words_are_equal_if_their_stems_are() -> None:
    found = highlight("Resetting pumps, or the pumping of it: RESET a PumpX", "how to reset the pump of it")
    assert [part.text for part in found if part.marked] == ["Resetting", "pumps", "pumping", "RESET"]
    assert not any(part.marked for part in highlight("how to do it", "how to reset it")), "function words say nothing"
    assert [part.text for part in highlight("how is it done", "how is it") if part.marked] == ["how", "is", "it"]


def test_a_short_passage_is_shown_whole_and_a_text_without_spaces_is_cut() -> None:
    found = excerpt("a" * int(1.3 * LENGTH), "query")
    assert not found.before and not found.after and len(found.parts[0].text) == int(1.3 * LENGTH)
    found = excerpt("ポンプの点検" * 200, "query")
    assert found.after and LENGTH - 1 <= len(found.parts[0].text) <= LENGTH


def test_an_excerpt_is_where_most_of_the_querys_words_are() -> None:
    found = excerpt(PUMP, "temperature of bearings, greased")
    shown = "".join(part.text for part in found.parts)
    assert {part.text for part in found.parts if part.marked} == {"temperature", "bearings", "greased"}
    assert found.before and len(shown) <= LENGTH + 40
    assert {shown.split()[0], shown.split()[-1]} <= set(PUMP.split()), "whole words"
    start = excerpt(PUMP, "isolating valve")
    assert not start.before and start.after and start.parts[0].text.startswith("Before any work")
