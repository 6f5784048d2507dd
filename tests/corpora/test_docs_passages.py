"""Cutting documents: nothing lost, nothing twice, offsets that reproduce the text, ids that state the place."""

import os
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from midmask.corpora.documents.blocks import LONGEST, TextBlock, paragraph, text_blocks
from midmask.corpora.documents.passages import BETWEEN, WORD, cut_passages
from midmask.corpora.provenance import Provenance, provenance_of
from tests.support.corpora.documents import count_words, extracted_text

words = st.text("abcé.?!(", min_size=1, max_size=9)
sentences = st.lists(words, min_size=1, max_size=30).map(lambda own: " ".join(own) + ". ")
paragraphs = st.lists(sentences, min_size=1, max_size=6).map("".join).map(str.strip)
blocks = st.builds(
    TextBlock,
    st.one_of(paragraphs, st.text("图书馆ab 。", min_size=1, max_size=80).filter(str.strip).map(str.strip)),
    st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
    st.sampled_from(["\n\n", "\n", " ", ""]),
)
documents = st.lists(blocks, min_size=1, max_size=12)


@settings(max_examples=60)
@given(documents, st.integers(10, 60))
def test_without_overlap_each_word_below_a_heading_is_in_one_passage(document: list[TextBlock], size: int) -> None:
    passages = list(cut_passages(iter(document), "", size, 0))
    text = extracted_text(document)
    assert all(text[one.start : one.end] == one.text == one.text.strip() for one in passages)
    assert all(before.end <= after.start for before, after in pairwise(passages))
    covered = bytearray(len(text))
    for one in passages:
        covered[one.start : one.end] = b"\1" * (one.end - one.start)
    place = 0
    for number, block in enumerate(document):
        place += len(block.before) if number else 0
        marks = {covered[place + at] for at, character in enumerate(block.text) if not character.isspace()}
        bare = block.level and (number + 1 == len(document) or 0 < document[number + 1].level <= block.level)
        assert marks == ({0} if block.level and not bare else {1})
        place += len(block.text)


@settings(max_examples=60)
@given(documents, st.integers(10, 60), st.integers(0, 5))
def test_passages_are_no_longer_than_asked_and_begin_with_the_overlap(document, size, overlap) -> None:
    body = [block for block in document if not block.level]
    passages = list(cut_passages(iter(body), "", size, overlap))
    assert all(0 < count_words(one.text) <= size for one in passages)
    text = extracted_text(body)
    assert all(text[one.start : one.end] == one.text for one in passages)
    own = list(cut_passages(iter(body), "", size - overlap, 0))
    assert [one.end for one in passages] == [one.end for one in own]
    for before, plain, one in zip(own, own[1:], passages[1:], strict=False):
        repeated = WORD.findall(text[one.start : plain.start])
        assert repeated == WORD.findall(before.text)[len(WORD.findall(before.text)) - len(repeated) :]
        assert len(repeated) == min(overlap, count_words(before.text))


def test_titles_are_the_path_of_headings() -> None:
    levels = {"intro": 0, "Install": 1, "a": 0, "Linux": 2, "b": 0, "Use": 1, "c": 0}
    document = [TextBlock(text, level) for text, level in levels.items()]
    titles = [one.title.split(BETWEEN) for one in cut_passages(iter(document), "Manual", 50, 0)]
    assert titles == [["Manual"], ["Manual", "Install"], ["Manual", "Install", "Linux"], ["Manual", "Use"]]
    assert [one.title for one in cut_passages(iter(document), "", 50, 0, untitled="file")][:2] == ["file", "Install"]
    assert [one.title for one in cut_passages(iter(document[1:3]), "Install - Site", 50, 0)] == ["Install"]


def test_sentences_stay_whole_and_a_section_does_not_end_in_a_crumb() -> None:
    text = " ".join(f"This is sentence {number} of five." for number in range(21))
    found = [one.text for one in cut_passages(iter([TextBlock(text)]), "", 60, 0)]
    assert [count_words(one) for one in found] == [60, 30, 36]
    assert all(one.startswith("This is") and one.endswith("of five.") for one in found)


def test_a_paragraph_that_does_not_fit_begins_a_passage() -> None:
    first, second = ("Some words of it. " * 9).strip(), ("Other words of that. " * 9).strip()
    found = [one.text for one in cut_passages(iter([TextBlock(first), TextBlock(second)]), "", 50, 0)]
    assert found == [first, second]


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["word ", "x" * 9_000, "\n", " " * 7_000, "ab\n", "\n\n"]), max_size=60))
@example(["x" * 9_000] * 5)
def test_a_long_paragraph_is_cut_into_blocks_without_loss(parts: list[str]) -> None:
    text = "".join(parts)
    whole = list(text_blocks(text.splitlines(keepends=True)))
    assert all(block.text == block.text.strip() and 0 < len(block.text) <= LONGEST for block in whole)
    assert "".join("".join(block.text for block in whole).split()) == "".join(text.split())
    single = list(paragraph(text))
    assert "".join("".join(block.text for block in single).split()) == "".join(text.split())
    assert all(0 < len(block.text) <= LONGEST for block in single)


names = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
    st.binary(min_size=1).filter(lambda name: b"\0" not in name).map(os.fsdecode),
)
spans = st.tuples(st.integers(0, 10**9), st.integers(1, 10**6)).map(lambda span: (span[0], span[0] + span[1]))
rows = st.integers(1, 10**9)


@given(names, spans, rows)
def test_an_id_gives_its_provenance_back(name: str, span: tuple[int, int], row: int) -> None:
    for one in (Provenance(name, *span), Provenance(name, row=row), Provenance(name, *span, row)):
        assert len(one.doc_id.split()) == 1 and one.doc_id.encode() and one.doc_id.count("#") == 1
        assert provenance_of(one.doc_id) == one


@pytest.mark.parametrize(
    ("doc_id", "wanted"),
    [
        ("guide/install.md#120-860", Provenance("guide/install.md", 120, 860)),
        ("faq.csv#12", Provenance("faq.csv", row=12)),
        ("faq.csv#12:0-640", Provenance("faq.csv", 0, 640, 12)),
        ("a%2541.txt#0-5", Provenance("a%41.txt", 0, 5)),
        ("my%20notes%231.txt#0-5", Provenance("my notes#1.txt", 0, 5)),
        *((other, None) for other in ("d12", "a.md#", "#1-2", "a.md#0", "a.md#5-5", "a.md#1:", "a.md#x-y", "a b#1-2")),
    ],
)
def test_ids_are_written_as_documented(doc_id: str, wanted: Provenance | None) -> None:
    assert provenance_of(doc_id) == wanted
    assert wanted is None or wanted.doc_id == doc_id
