"""The collection that queries are made for: as it was, as it will be searched, and its splits by document.

It is searched without what queries hide. What a system was trained or chosen on shares no document with what is
reported. Passages are divided before queries are made of them, since what a source makes depends on what it is for
(`sources.roles_of`).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from midmask.core.arrays import Ints
from midmask.core.randomness import hash64
from midmask.corpora.documents.passages import document_of
from midmask.corpora.duplicates import BANDS, ROWS, clusters, signatures, similar_pairs
from midmask.queries.config import DEV, TEST, TRAIN, QueriesConfig
from midmask.retrieve.bm25.index import StemmedWords
from midmask.store import tables
from midmask.store.place import Place

BLOCK = 256
"""Passages that a source is given at a time."""

DOCUMENT_END = "#"
"""Divides the document of a `docs:` passage from the rest of its id."""


class Passage(NamedTuple):
    """A row of a prepared corpus."""

    doc_id: str
    title: str
    text: str


@dataclass(frozen=True)
class MadeQuery:
    """A query that one passage answers. It hides the part that it was taken from, which any system would match."""

    doc_id: str
    text: str
    hidden: tuple[int, int] | None = None  # characters [start, end) that are removed from the passage's text
    hides_title: bool = False  # whether the passage's title is removed


class CollectionFacts:
    """A prepared corpus and its statistics, collected in one pass; texts are not held.

    stems: text -> the stem ids of its words, in order; a stem has the same id in every text.
    """

    def __init__(self, corpus: Place) -> None:
        self.corpus = corpus
        self.doc_ids: list[str] = []  # in row order
        self.stems = StemmedWords().ids
        self.frequency: Counter[int] = Counter()  # stem -> number of passages that contain it, in title or text
        self.titles: Counter[str] = Counter()  # title -> number of passages with it
        self._titles: dict[str, str] = {}  # of passages that have one
        blocks = [np.empty((0, BANDS * ROWS), np.uint32)]
        for passages in read_passages(corpus):
            self.doc_ids += [passage.doc_id for passage in passages]
            self._titles |= {passage.doc_id: passage.title for passage in passages if passage.title}
            self.titles.update(passage.title for passage in passages)
            for passage in passages:
                self.frequency.update(set(self.stems(f"{passage.title} {passage.text}")))
            blocks.append(signatures([passage.text for passage in passages]))
        cluster: Ints = clusters(len(self.doc_ids), similar_pairs(np.concatenate(blocks)))
        copied = np.flatnonzero(np.bincount(cluster, minlength=1)[cluster] > 1)
        groups: dict[int, list[str]] = {}
        for row in copied.tolist():
            groups.setdefault(int(cluster[row]), []).append(self.doc_ids[row])
        self._copies = {doc_id: group for group in map(sorted, groups.values()) for doc_id in group}
        self._marked = all(DOCUMENT_END in doc_id[1:] for doc_id in self.doc_ids)

    def idf(self, stem: int) -> float:
        """Lucene's inverse document frequency: ln(1 + (N - n + 0.5) / (n + 0.5)), above 0."""
        passages = self.frequency[stem]
        return math.log(1 + (len(self.doc_ids) - passages + 0.5) / (passages + 0.5))

    def copies_of(self, doc_id: str) -> list[str]:
        """The passage and its near-duplicates: sorted ids."""
        return self._copies.get(doc_id, [doc_id])

    def document_of(self, doc_id: str) -> str:
        """The document of a passage: what stands before `#` if all ids of the collection have one; else the title, for
        it names an article or a module whose passages share it; else the passage itself.
        """
        if self._marked:
            return document_of(doc_id) or doc_id
        return self._titles.get(doc_id, doc_id)


def read_passages(corpus: Place) -> Iterator[list[Passage]]:
    """The passages of a prepared corpus in order, some at a time."""
    for shard in (corpus / "docs").names():
        for columns in tables.read_passages(corpus / "docs" / shard):
            yield list(map(Passage, *columns))


def draw_passages(doc_ids: Sequence[str], seed: int, purpose: str, limit: int) -> set[str]:
    """Draws at most `limit` passages: the first by a hash for this seed and purpose."""
    if limit >= len(doc_ids):
        return set(doc_ids)
    hashes = hash64(doc_ids, f"queries {seed} {purpose}")
    first = np.argpartition(hashes, limit)[:limit]
    return {doc_ids[row] for row in first.tolist()}


def read_drawn(corpus: Place, drawn: Collection[str] | None) -> Iterator[list[Passage]]:
    """Reads the drawn passages of a prepared corpus in its order, in blocks; drawn = None: all passages."""
    passages = chain.from_iterable(read_passages(corpus))
    rows = (passage for passage in passages if drawn is None or passage.doc_id in drawn)
    while block := list(islice(rows, BLOCK)):
        yield block


def parts_of(passage: Passage, queries: Sequence[MadeQuery]) -> list[tuple[str, bool]]:
    """The passage's text from beginning to end in parts, each with whether one of these queries hides it. What queries
    of a passage hide does not overlap.
    """
    edges = [0, *chain.from_iterable(sorted(query.hidden for query in queries if query.hidden)), len(passage.text)]
    return [(passage.text[start:end], number % 2 == 1) for number, (start, end) in enumerate(pairwise(edges))]


def without_hidden(passage: Passage, queries: Sequence[MadeQuery]) -> Passage:
    """The passage without what these queries hide; a space stands for each part of the text."""
    parts = parts_of(passage, queries)
    left = [part.strip() for part, is_hidden in parts if not is_hidden and part.strip()]
    title = "" if any(query.hides_title for query in queries) else passage.title
    return Passage(passage.doc_id, title, " ".join(left) if len(parts) > 1 else passage.text)


def read_as_searched(corpus: Place, hiding: Mapping[str, Sequence[MadeQuery]]) -> Iterator[Passage]:
    """Reads all passages, each without the parts that its queries (doc_id -> queries) hide."""
    for passage in chain.from_iterable(read_passages(corpus)):
        queries = hiding.get(passage.doc_id, ())
        yield without_hidden(passage, queries) if queries else passage


def query_row(query_id: str, text: str, source: str = "", document: str = "") -> dict[str, Any]:
    """A made query as a row of a BEIR folder's `queries.jsonl`; document: the one that it was made of."""
    return {"_id": query_id, "text": text, "metadata": {"source": source, "document": document}}


BY_DOCUMENT = "by document"
BY_PASSAGE = "by passage: there are too few documents for three splits"

ENOUGH = 0.4
"""Smallest part of its intended size that each split must have for a division to be used."""


def split_passages(known: CollectionFacts, config: QueriesConfig) -> tuple[dict[str, str], str]:
    """doc_id -> train, dev or test, without passages that have too many copies; and the rule of the division."""
    groups = {doc_id: known.copies_of(doc_id) for doc_id in known.doc_ids}
    copies = {doc_id: group for doc_id, group in groups.items() if len(group) <= config.copies}
    documents = {doc_id: [known.document_of(member) for member in group] for doc_id, group in copies.items()}
    return split_by_document(documents, copies, config)


def split_by_document(
    documents: Mapping[str, Sequence[str]], passages: Mapping[str, Sequence[str]], config: QueriesConfig
) -> tuple[dict[str, str], str]:
    """doc_id -> train, dev or test, and the rule of the division.

    A group of passages that share a document, directly or through other passages, is in one split.

    Args:
        documents: doc_id -> its document and those of its copies.
        passages: doc_id -> itself and its copies; used as documents where there are too few of these.
    """
    shares = {TRAIN: 1 - config.dev_share - config.test_share, DEV: config.dev_share, TEST: config.test_share}
    splits: dict[str, str] = {}
    for members, rule in ((documents, BY_DOCUMENT), (passages, BY_PASSAGE)):
        splits = _divide(members, config)
        counts = Counter(splits.values())
        if all(counts[name] >= max(1, ENOUGH * share * len(splits)) for name, share in shares.items()):
            return splits, rule
    return splits, BY_PASSAGE


def _divide(members: Mapping[str, Sequence[str]], config: QueriesConfig) -> dict[str, str]:
    """Divides groups in the order of a hash of their names: the first ones are test, the next dev, the rest train.

    A group belongs to the split in which its middle passage falls.
    """
    groups = _groups(members)
    names = sorted(groups)
    order = sorted(zip(hash64(names, f"queries {config.seed} splits").tolist(), names, strict=True))
    splits: dict[str, str] = {}
    before, whole = 0, len(members)
    for _, name in order:
        group = groups[name]
        middle = (before + len(group) / 2) / whole
        split = TEST if middle < config.test_share else DEV if middle < config.test_share + config.dev_share else TRAIN
        splits.update(dict.fromkeys(group, split))
        before += len(group)
    return splits


def _groups(members: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Smallest member -> the passages that are joined by common members."""
    queries = sorted(members)
    number: dict[str, int] = {}
    pairs = []
    for row, query_id in enumerate(queries):
        for name in members[query_id]:
            pairs.append((number.setdefault(name, row), row))
    root = clusters(len(queries), np.array(pairs, np.int64).reshape(-1, 2)).tolist()
    groups: dict[int, list[str]] = {}
    for query_id, first in zip(queries, root, strict=True):
        groups.setdefault(first, []).append(query_id)
    return {min(name for query_id in group for name in members[query_id]): group for group in groups.values()}
