"""The collection that queries are made for: as it was, and as it will be searched, without what queries hide."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import pyarrow.parquet as pq

from midmask.arrays import Ints
from midmask.artifact import Place
from midmask.corpora.duplicates import BANDS, ROWS, clusters, signatures, similar_pairs
from midmask.corpora.export import write_lines, write_qrels
from midmask.corpora.provenance import document_of
from midmask.queries.made import MadeQuery, Passage
from midmask.queries.words import TermWeights
from midmask.randomness.texts import hash64

ROWS_AT_ONCE = 2_048

BLOCK = 256
"""Passages that a source is given at a time."""

DOCUMENT_END = "#"
"""Divides the document of a `docs:` passage from the rest of its id."""


class CollectionFacts:
    """What is known after one pass over a prepared corpus; texts are not held.

    doc_ids: in row order. weights: of stems. titles: title -> number of passages with it. cluster: number of the
    near-duplicate cluster of each row, the lowest row of it. sizes: cluster -> passages in it.
    """

    def __init__(self, corpus: Place) -> None:
        self.doc_ids: list[str] = []
        self.weights = TermWeights()
        self.titles: Counter[str] = Counter()
        self._titles: list[str] = []
        found = [np.empty((0, BANDS * ROWS), np.uint32)]
        for passages in read_passages(corpus):
            self.doc_ids += [passage.doc_id for passage in passages]
            self._titles += [passage.title for passage in passages]
            self.titles.update(passage.title for passage in passages)
            for passage in passages:
                self.weights.add(f"{passage.title} {passage.text}")
            found.append(signatures([passage.text for passage in passages]))
        self.cluster: Ints = clusters(len(self.doc_ids), similar_pairs(np.concatenate(found)))
        self.sizes = Counter(self.cluster.tolist())
        self.row = {doc_id: row for row, doc_id in enumerate(self.doc_ids)}
        self._marked = all(DOCUMENT_END in doc_id[1:] for doc_id in self.doc_ids)

    def cluster_of(self, doc_id: str) -> int:
        return int(self.cluster[self.row[doc_id]])

    def members(self, numbers: Sequence[int]) -> dict[int, list[str]]:
        """Of each of these clusters the ids of its passages, sorted."""
        rows = np.flatnonzero(np.isin(self.cluster, np.array(numbers, np.int64)))
        found: dict[int, list[str]] = {}
        for row in rows.tolist():
            found.setdefault(int(self.cluster[row]), []).append(self.doc_ids[row])
        return {number: sorted(names) for number, names in found.items()}

    def document_of(self, doc_id: str) -> str:
        """The document of a passage: what stands before `#` if all ids of the collection have one; else the title, for
        it names an article or a module whose passages share it; else the passage itself.
        """
        if self._marked:
            return document_of(doc_id) or doc_id
        return self._titles[self.row[doc_id]] or doc_id


def read_passages(corpus: Place) -> Iterator[list[Passage]]:
    """The passages of a prepared corpus in order, some at a time."""
    for shard in (corpus / "docs").names():
        with (corpus / "docs" / shard).reading() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(batch_size=ROWS_AT_ONCE):
                columns = [batch[name].to_pylist() for name in ("doc_id", "title", "text")]
                yield [Passage(*row) for row in zip(*columns, strict=True)]


def draw_passages(doc_ids: Sequence[str], seed: int, purpose: str, limit: int) -> set[str]:
    """So many of the passages, the first by a hash for this purpose."""
    if limit >= len(doc_ids):
        return set(doc_ids)
    hashes = hash64(doc_ids, f"queries {seed} {purpose}")
    first = np.argpartition(hashes, limit)[:limit]
    return {doc_ids[row] for row in first.tolist()}


def read_drawn(corpus: Place, drawn: Collection[str] | None) -> Iterator[list[Passage]]:
    """These passages of a prepared corpus in its order, in blocks; None: all."""
    rows = (
        passage
        for passages in read_passages(corpus)
        for passage in passages
        if drawn is None or passage.doc_id in drawn
    )
    while block := list(islice(rows, BLOCK)):
        yield block


def without_hidden(passage: Passage, queries: Sequence[MadeQuery]) -> Passage:
    """The passage without what these queries hide, which does not overlap; a space stands for each part of the text."""
    hidden = sorted(query.hidden for query in queries if query.hidden)
    edges = [0, *(edge for part in hidden for edge in part), len(passage.text)]
    left = [passage.text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    text = " ".join(part.strip() for part in left if part.strip()) if hidden else passage.text
    title = "" if any(query.hides_title for query in queries) else passage.title
    return Passage(passage.doc_id, title, text)


def read_as_searched(corpus: Place, hiding: Mapping[str, Sequence[MadeQuery]]) -> Iterator[Passage]:
    """All passages, without what the queries of each hide. hiding: doc_id -> its queries."""
    for passages in read_passages(corpus):
        for passage in passages:
            own = hiding.get(passage.doc_id, ())
            yield without_hidden(passage, own) if own else passage


def write_collection(
    folder: Place,
    passages: Iterator[Passage],
    queries: Sequence[tuple[str, str, str, str]],
    qrels: Mapping[str, Sequence[tuple[str, str]]],
) -> None:
    """Writes a BEIR folder; equal rows give equal bytes.

    Args:
        queries: query_id, text, source, document. qrels: split -> (query_id, doc_id) of relevant pairs.
    """
    write_lines(
        folder / "corpus.jsonl.gz", ({"_id": one.doc_id, "title": one.title, "text": one.text} for one in passages)
    )
    rows = (
        {"_id": query_id, "text": text, "metadata": {"source": source, "document": document}}
        for query_id, text, source, document in queries
    )
    write_lines(folder / "queries.jsonl.gz", rows)
    for split, pairs in qrels.items():
        write_qrels(folder / "qrels" / f"{split}.tsv", ((query_id, doc_id, 1) for query_id, doc_id in pairs))
