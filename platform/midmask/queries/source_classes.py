"""The sources of queries: titles, sentences, keyphrases, the lines of a file, and a language model.

Numbers that sources draw with are functions of seed, passage and purpose, so never of batches or of order.

    titles      the short name that an author gave to a passage; it is hidden from the passage, and so are its copies
    sentences   the inverse cloze task (Lee et al. 2019): one sentence asks for the rest of its passage
    keyphrases  what a passage is about, in 2 to 5 of its words, as people type into a search box
    file        queries that people or any language model wrote for passages
    model       a language model in a Hugging Face folder writes them (`query_model`)

Phrases are runs of words without a stop word or punctuation between them (RAKE, Rose et al. 2010). A phrase's score is
the sum of its stems' BM25 weights: idf * tf / (tf + 0.9). They are drawn with probabilities as their scores, and words
that only one passage has are left out: a passage's most telling words would be found by any word search.
"""

import logging
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from midmask.core.config import model_content
from midmask.corpora.documents.passages import sentences, splitter
from midmask.errors import UserError
from midmask.queries.collection import MadeQuery, Passage
from midmask.queries.config import file_content
from midmask.queries.given import read_file
from midmask.queries.query_model import QueryGenerator
from midmask.queries.sources import Opening, Source
from midmask.retrieve.bm25.index import WORD
from midmask.store.place import Place

log = logging.getLogger(__name__)

FUNCTION_WORDS = frozenset(
    "a an and are as at be by can do does for from had has have how i if in into is it its may me my no not of on or "
    "our so that the their then there these they this to was we were what when where which who why will with you "
    "your".split()
)
"""English words that are independent of a text's topic; they are not highlighted."""

STOP_WORDS = FUNCTION_WORDS | frozenset(
    "about above after again against all also am any because been before being below between both but cannot could "
    "did doing down during each either else etc ever every few further having he her here hers him himself his "
    "however itself just might more most must myself near neither nor now off often once one only onto other ours out "
    "over own per quite rather same shall she should since some such than theirs them themselves those through thus "
    "too under until up upon us very via whether while whom whose within without would yet yours".split()
)
"""English words that are not part of a keyphrase."""

find_words = re.compile(WORD).finditer


HEADING_SEPARATOR = " \u203a "
"""Separator of the headings above a passage of a document."""

FEWEST_TITLE_WORDS, MOST_TITLE_WORDS = 2, 20


class TitleQueries(Source):
    """At most one query per passage; of a path of headings the last, after the one above if it is a single word. Titles
    of more passages than `config.copies`, of fewer than 2 words or of more than 20 give none.
    """

    READS_ALL = True
    JUDGES = 3

    def queries_of(self, passage: Passage) -> Iterator[MadeQuery]:
        text = title_query(passage.title)
        if text and self.known.titles[passage.title] <= self.config.copies:
            yield MadeQuery(passage.doc_id, text, hidden=_copy(passage, text), hides_title=True)


def _copy(passage: Passage, query: str) -> tuple[int, int] | None:
    """Characters [start, end) of the title, or else of the query, at the beginning of the text, whatever the case."""
    for title in (passage.title, query):
        words = r"\W+".join(map(re.escape, re.findall(r"\w+", title)))
        match = re.match(rf"\W*{words}\b[^\w\s]*", passage.text, re.IGNORECASE) if words else None
        if match:
            return 0, match.end()
    return None


def title_query(title: str) -> str:
    """The query that a title makes; "" if it is too short or too long for one."""
    headings = [" ".join(heading.split()) for heading in title.split(HEADING_SEPARATOR) if heading.strip()]
    last = headings[-1] if headings else ""
    if len(headings) > 1 and len(last.split()) == 1:
        last = f"{headings[-2]} {last}"
    return last if FEWEST_TITLE_WORDS <= len(last.split()) <= MOST_TITLE_WORDS else ""


FEWEST_SENTENCE_WORDS, MOST_SENTENCE_WORDS = 6, 30
"""Fewest and most words of a sentence that is a query, by white space."""


class SentenceQueries(Source):
    """Up to `per_passage` sentences of each passage, drawn by a hash of its id, and hidden from it.

    A sentence has 6 to 30 words, and at most half of the passage's.
    """

    JUDGES = 4

    @classmethod
    def content(cls, place: str, named: str) -> Any:
        return splitter()

    def queries_of(self, passage: Passage) -> Iterator[MadeQuery]:
        fitting = list(_fitting(passage.text))
        order = sorted(range(len(fitting)), key=lambda number: (self.draw("sentences", passage.doc_id, number), number))
        for number in order[: self.config.per_passage]:
            start, end = fitting[number]
            yield MadeQuery(passage.doc_id, " ".join(passage.text[start:end].split()), hidden=(start, end))


def _fitting(text: str) -> Iterator[tuple[int, int]]:
    """Characters [start, end) of the sentences that may be queries, without the white space around them."""
    whole = len(text.split())
    at = 0
    for sentence in sentences(text):
        start, end = at + len(sentence) - len(sentence.lstrip()), at + len(sentence.rstrip())
        at += len(sentence)
        if FEWEST_SENTENCE_WORDS <= (words := len(sentence.split())) <= MOST_SENTENCE_WORDS and 2 * words <= whole:
            yield start, end


FEWEST_PHRASE_WORDS, MOST_PHRASE_WORDS = 2, 5
LONGEST_PHRASE = 3
SATURATION = 0.9
FEWEST_PASSAGES = 2
"""Fewest passages that contain a word of a keyphrase."""

Phrase = tuple[int, ...]
"""Positions of a phrase's words in the passage."""


class KeyphraseQueries(Source):
    """Up to `per_passage` queries of each passage from phrases that are drawn by a hash, in the order in which they
    appear; they share no stem. Nothing is hidden.
    """

    def queries_of(self, passage: Passage) -> Iterator[MadeQuery]:
        words = [match.group() for match in find_words(passage.text.lower())]
        stems = self.known.stems(passage.text)
        ranked = self._draw_order(passage.doc_id, passage.text.lower(), stems)
        used: set[int] = set()
        counts = MOST_PHRASE_WORDS - FEWEST_PHRASE_WORDS + 1
        for number in range(self.config.per_passage):
            count = FEWEST_PHRASE_WORDS + self.draw("terms", passage.doc_id, number) % counts
            chosen = _take(ranked, stems, used, count)
            if len(chosen) < FEWEST_PHRASE_WORDS:
                break
            yield MadeQuery(passage.doc_id, " ".join(words[at] for at in chosen))

    def _draw_order(self, doc_id: str, text: str, stems: list[int]) -> list[Phrase]:
        """Phrases in a random order: each next one is drawn with a probability proportional to its score."""
        counts = Counter(stems)

        def score(phrase: Phrase) -> float:
            unique = sorted({stems[at] for at in phrase})
            return sum(self.known.idf(stem) * counts[stem] / (counts[stem] + SATURATION) for stem in unique)

        phrases = {part for run in self._runs(text, stems) for part in _parts(run)}
        return sorted(phrases, key=lambda phrase: (self._time(doc_id, phrase, score(phrase)), phrase))

    def _time(self, doc_id: str, phrase: Phrase, score: float) -> float:
        """An exponential waiting time; higher scores come sooner."""
        return -math.log((self.draw("phrase", doc_id, *phrase) + 0.5) / 2.0**64) / score

    def _runs(self, text: str, stems: list[int]) -> Iterator[Phrase]:
        """Longest runs of words that may be in a query, with only a space or a hyphen between two."""
        run: list[int] = []
        end = 0
        for at, match in enumerate(find_words(text)):
            word = match.group()
            fits = word not in STOP_WORDS and not word.isdigit()
            fits = fits and self.known.frequency[stems[at]] >= FEWEST_PASSAGES
            if run and (not fits or text[end : match.start()] not in (" ", "-")):
                yield tuple(run)
                run = []
            run += [at] if fits else []
            end = match.end()
        if run:
            yield tuple(run)


def _parts(run: Phrase) -> list[Phrase]:
    """Phrases of a run: all its parts of 3 words, or the run if it is no longer than that."""
    return [run[at : at + LONGEST_PHRASE] for at in range(max(1, len(run) - LONGEST_PHRASE + 1))]


def _take(ranked: list[Phrase], stems: list[int], used: set[int], count: int) -> list[int]:
    """Sorted positions of about `count` words: of the first phrases without a used stem; adds their stems to `used`."""
    chosen: list[int] = []
    for phrase in ranked:
        ids = [stems[at] for at in phrase]
        if len(chosen) + len(phrase) <= MOST_PHRASE_WORDS and len(set(ids)) == len(ids) and not used & set(ids):
            chosen += phrase
            used.update(ids)
        if len(chosen) >= count:
            break
    return sorted(chosen)


class FileQueries(Source):
    """The queries that a file has for passages: lines {"doc_id", "queries"}, {"doc_id", "query"} or doc_id<TAB>query,
    plain or gzip'd.

    Raises:
        UserError: if the file is not there or has no query of a passage.
    """

    READS_ALL = True
    JUDGES = 1

    def __init__(self, place: str, opening: Opening) -> None:
        super().__init__(place, opening)
        named = f"queries.sources, file:{place}"
        known, bad = set(self.known.doc_ids), 0
        self._of: dict[str, list[str]] = {}
        for line in read_file(Place(place)):
            if line.fault is None and line.doc_id in known:
                self._of.setdefault(line.doc_id, []).extend(line.texts)
            else:
                bad += 1
        if bad:
            log.warning("%s: %d lines have no query of a passage of the collection", named, bad)
        if not self._of:
            raise UserError(f'{named}: it has no query of a passage; wanted are lines {{"doc_id": …, "queries": […]}}')

    @classmethod
    def content(cls, place: str, named: str) -> Any:
        return file_content(place, named)

    def queries_of(self, passage: Passage) -> Iterator[MadeQuery]:
        yield from (MadeQuery(passage.doc_id, text) for text in self._of.get(passage.doc_id, ()))


class ModelQueries(Source):
    """At most `per_passage` different queries for each passage, written by a sequence-to-sequence model. It is loaded
    with the first passage that it has written nothing for.

    What it has written is kept, so that a step that is started again makes only what it lacks: files {doc_id: queries},
    each written whole and never changed, since the files of a killed attempt may be links to it.

    Raises:
        UserError: if the folder has no such model, with the first passage.
    """

    JUDGES = 2

    def __init__(self, place: str, opening: Opening) -> None:
        super().__init__(place, opening)
        self._folder, self._kept = Path(place).expanduser(), opening.cache
        self._written: dict[str, list[str]] = {}  # doc_id -> queries
        for file in [self._kept / name for name in self._kept.names() if name.endswith(".json")] if self._kept else ():
            self._written |= file.read_json()

    @classmethod
    def content(cls, place: str, named: str) -> Any:
        return dict(model_content(Path(place), "queries.sources"))

    @cached_property
    def _generator(self) -> QueryGenerator:
        return QueryGenerator(self._folder, self.config.generate, field="queries.sources")

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        # Some batches of the model at a time, so that few of its rows are left empty.
        size = max(1, 4 * self.config.generate.batch_size // self.config.per_passage)
        for first in range(0, len(passages), size):
            some = passages[first : first + size]
            if lacking := [passage for passage in some if passage.doc_id not in self._written]:
                self._write(lacking)
            for passage in some:
                yield from (MadeQuery(passage.doc_id, query) for query in self._written[passage.doc_id])

    def _write(self, passages: Sequence[Passage]) -> None:
        doc_ids = [passage.doc_id for passage in passages]
        texts = [f"{passage.title} {passage.text}".strip() for passage in passages]
        made = self._generator.queries(doc_ids, texts, self.config.per_passage)
        written = {doc_id: list(dict.fromkeys(queries)) for doc_id, queries in zip(doc_ids, made, strict=True)}
        self._written |= written
        if self._kept is not None:
            (self._kept / f"{len(self._written):08d}.json").write_json(written)
