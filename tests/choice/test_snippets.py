"""What of a passage is shown, which words are marked, and where it comes from."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from midmask.choice.snippets import Origin, marked_parts, origin_of, snippet

TEXT = (
    "The installed server runs. " + "Filler words here. " * 60 + "Restoring a backup needs its date. " + "More. " * 200
)


def marked(parts: list) -> list[str]:
    return [part.text for part in parts if part.marked]


def test_words_with_the_stem_of_a_query_word_are_marked() -> None:
    parts = marked_parts("Installing, INSTALLED or install: how the setup does it.", "how to install")
    assert marked(parts) == ["Installing", "INSTALLED", "install"]
    assert marked(marked_parts("how is it done", "how is it")) == ["how", "is", "it"], "common words alone"
    assert marked(marked_parts("nothing", "zzz")) == []
    assert marked_parts("", "x") == [("", False)]


@settings(deadline=None)
@given(text=some.text(), query=some.text())
def test_parts_join_to_the_text(text: str, query: str) -> None:
    assert "".join(part.text for part in marked_parts(text, query)) == text


def test_a_snippet_is_around_most_words_of_the_query() -> None:
    parts = snippet(TEXT, "restore the backup of a server", 200)
    shown = "".join(part.text for part in parts)
    assert set(marked(parts)) == {"Restoring", "backup"} and shown.startswith("… ") and shown.endswith(" …")
    assert 200 <= len(shown) <= 300
    assert "".join(part.text for part in snippet(TEXT, "server", 200)).startswith("The installed")
    short = "A short text."
    assert "".join(part.text for part in snippet(short, "text", 200)) == short


@settings(deadline=None)
@given(text=some.text(max_size=2000), query=some.text(max_size=40), length=some.integers(40, 400))
def test_a_snippet_is_a_stretch_of_the_text_of_bounded_length(text: str, query: str, length: int) -> None:
    shown = "".join(part.text for part in snippet(text, query, length))
    assert len(shown) <= length * 5 // 4 + 84
    assert shown.removeprefix("… ").removesuffix(" …").strip() in text


@pytest.mark.parametrize(
    ("doc_id", "origin"),
    [
        ("guide/install.md#1200-1980", Origin("guide/install.md", 1200, 1980)),
        ("a%20b.md#0-5", Origin("a b.md", 0, 5)),
        ("c#d#10-20", Origin("c#d", 10, 20)),
        ("plain", Origin("plain")),
        ("file#9-3", Origin("file#9-3")),
        ("file#x-3", Origin("file#x-3")),
    ],
)
def test_the_origin_is_read_from_the_id(doc_id: str, origin: Origin) -> None:
    assert origin_of(doc_id) == origin
