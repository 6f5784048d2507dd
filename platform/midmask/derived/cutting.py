"""A document's tokens and sentences, and the spans that are made of them."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from midmask.corpora.sentences import sentences
from midmask.randomness.streams import python_stream


class Document(NamedTuple):
    """Token ids of a text without specials; ends: where each of its sentences ends, ascending, windows included.

    characters: where these ends are in the text. spans: the sentences of each span, if they are given.
    """

    doc_id: str
    ids: list[int]
    ends: list[int]
    text: str = ""
    characters: tuple[int, ...] = ()
    spans: tuple[range, ...] = ()

    def text_of(self, span: range) -> str:
        """The text of a span."""
        start = self.characters[span.start - 1] if span.start else 0
        return self.text[start : self.characters[span.stop - 1]].strip()


def cut_into_spans(document: Document, limit: int, short_share: float, random_: random.Random) -> list[range]:
    """Sentence numbers of each span: as many whole sentences as fit into `limit` tokens, or into fewer, drawn."""

    def target() -> int:
        return random_.randint(2, limit) if random_.random() < short_share else limit

    spans: list[range] = []
    first, begin, room = 0, 0, target()
    for number, (before, end) in enumerate(pairwise([0, *document.ends])):
        if number > first and end - begin > room:
            spans.append(range(first, number))
            first, begin, room = number, before, target()
    if document.ends:
        spans.append(range(first, len(document.ends)))
    return spans


def overlap(document: Document, spans: list[range], number: int, limit: int, random_: random.Random) -> list[int]:
    """CoT-MAE's overlapping context of a span: 1 to half of its sentences, from its end, and what comes next.

    The last span: from its beginning, after what comes before. A span of one sentence gives half of its tokens (the
    published code: all of them).
    """
    starts = [0, *document.ends]
    span = spans[number]
    taken = random_.randint(1, max(1, len(span) // 2))
    middle = (starts[span.start] + starts[span.stop]) // 2
    if number < len(spans) - 1:
        start = starts[span.stop - taken] if len(span) > 1 else middle
        return document.ids[start : start + limit]
    end = starts[span.start + taken] if len(span) > 1 else max(middle, starts[span.start] + 1)
    return document.ids[max(0, end - limit) : end]


def join_spans(doc_id: str, parts: list[Document], limit: int) -> Document:
    """One document of spans that are given, one after the other; one of more than `limit` tokens is cut as documents
    are.
    """
    ids: list[int] = []
    ends: list[int] = []
    text = ""
    characters: list[int] = []
    spans: list[range] = []
    for part in parts:
        before = len(ends)
        for span in cut_into_spans(part, limit, 0.0, python_stream(0)):
            spans.append(range(before + span.start, before + span.stop))
        ends += [len(ids) + end for end in part.ends]
        characters += [len(text) + place for place in part.characters]
        ids += part.ids
        text += f"{part.text}\n"
    return Document(doc_id, ids, ends, text, tuple(characters), tuple(spans))


def tokenise_pieces(documents: list[tuple[str, str]], tokenizer: Any, limit: int) -> Iterator[Document]:
    """(doc_id, text) as tokens: each text is cut into tokens as a whole, so that words at sentence ends stay as they
    are.
    """
    texts = [text for _, text in documents]
    encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    for (doc_id, text), ids, offsets in zip(documents, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        last_characters = np.array([end for _, end in offsets], np.int64) - 1
        bounds = np.cumsum([len(sentence) for sentence in sentences(text)])
        ends = _windows(np.searchsorted(last_characters, bounds).tolist(), limit)
        yield Document(doc_id, list(ids), ends, text, tuple(offsets[end - 1][1] for end in ends))


def _windows(ends: list[int], limit: int) -> list[int]:
    """The sentence ends, each once, and between two that are more than `limit` apart the ends of windows of `limit`."""
    cut = []
    for before, end in pairwise([0, *sorted(set(ends) - {0})]):
        cut += [*range(before + limit, end, limit), end]
    return cut
