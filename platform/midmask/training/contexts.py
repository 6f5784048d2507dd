"""Rows that are pairs of texts which belong together: two spans of a document, a passage and a query for it.

Which text is drawn depends on (seed, epoch, row) alone. Row i of "passage" and of "context" are a pair; no two of the
texts share a number, by which masks are drawn.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from midmask.arrays import Ints32
from midmask.artifact import Place
from midmask.errors import UserError
from midmask.training.examples import Passages, TextColumns, draw_rows, join_texts, lengths_of
from midmask.training.plan import Rows
from midmask.training.table import TokenTable

WINDOW = 100
"""How far off a random context may be, in spans (CoT-MAE)."""

RANDOM, NEARBY, OVERLAP, ANY = range(4)

ANCHOR, CONTEXT, KIND, QUERY, EXCERPT = range(5)
"""What a number is drawn for."""

ContextKind = Literal["any", "random", "nearby", "overlap", "mixed", "recurring"]


@dataclass(frozen=True)
class SpanExamples:
    """Pre-training: a row is a document of a spans artifact; each visit draws a span of it, and a context for that.

    context: any, another span, all alike (coCondenser); random, one at most 100 spans off; nearby, the one before or
    after; overlap, as stored with the span; mixed, one of the last three (CoT-MAE, which draws random and nearby once
    and for all); recurring, one that shares a phrase with it, as stored: documents without such spans sit out (Spider).
    """

    spans: Place
    fingerprint: str
    context: ContextKind = "any"

    def open(self) -> "SpanSource":
        return SpanSource(self.spans, self.context)


class SpanSource:
    """Documents by number. Batches are not grouped by length: it is drawn with the span."""

    group = 1
    lengths: Ints32 | None = None

    def __init__(self, spans: Place, context: ContextKind) -> None:
        with (spans / "starts.npy").reading() as stream:
            self._starts: Rows = np.load(stream, allow_pickle=False)
        self._kept = np.arange(len(self._starts) - 1)
        self._context = context
        if context == "recurring":
            self._shared = _read_sharing(spans)
            self._kept = np.flatnonzero(np.add.reduceat(self._shared, self._starts[:-1], dtype=np.int64))
            self._partners = TokenTable(spans / "spans", "sharing", planned=len(self._kept))
        self.count = len(self._kept)
        self._ids = TokenTable(spans / "spans", planned=self.count)
        overlaps = context in ("overlap", "mixed")
        self._overlaps = TokenTable(spans / "spans", "overlap_ids", planned=self.count) if overlaps else None

    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns:
        documents = self._kept[rows]
        starts, counts = self._starts[documents], np.diff(self._starts)[documents]
        if self._context == "recurring":
            anchors, others = self._draw_sharing(rows, seed, epoch, starts, counts)
            texts = {"passage": starts + anchors, "context": starts + others}
            return {name: join_texts(self._ids.read(spans), spans) for name, spans in texts.items()}
        anchors = draw_rows(seed, epoch, rows, ANCHOR, counts)
        kinds = self._draw_kinds(rows, seed, epoch)
        windows = np.choose(kinds, [np.full(len(rows), WINDOW), np.ones_like(rows), np.ones_like(rows), counts])
        others = starts + self._draw_neighbours(rows, seed, epoch, anchors, counts, windows)
        contexts = self._ids.read(others)
        if self._overlaps is not None:
            overlapping = kinds == OVERLAP
            stored = self._overlaps.read((starts + anchors)[overlapping])
            for place, ids in zip(np.flatnonzero(overlapping), stored, strict=True):
                contexts[place] = ids
            others = np.where(overlapping, self._starts[-1] + starts + anchors, others)
        passages = join_texts(self._ids.read(starts + anchors), starts + anchors)
        return {"passage": passages, "context": join_texts(contexts, others)}

    def _draw_kinds(self, rows: Rows, seed: int, epoch: int) -> Rows:
        if self._context == "mixed":
            return draw_rows(seed, epoch, rows, KIND, 3)
        return np.full(len(rows), {"random": RANDOM, "nearby": NEARBY, "overlap": OVERLAP, "any": ANY}[self._context])

    def _draw_sharing(self, rows: Rows, seed: int, epoch: int, starts: Rows, counts: Rows) -> tuple[Rows, Rows]:
        """A span of each document that shares a phrase with another one, and one of those; all of them alike."""
        having = [
            np.flatnonzero(self._shared[start : start + count]) for start, count in zip(starts, counts, strict=True)
        ]
        picks = draw_rows(seed, epoch, rows, ANCHOR, [len(spans) for spans in having])
        anchors = np.array([spans[pick] for spans, pick in zip(having, picks, strict=True)], np.int64)
        partners = self._partners.read(starts + anchors)
        picks = draw_rows(seed, epoch, rows, CONTEXT, [len(spans) for spans in partners])
        return anchors, np.array([spans[pick] for spans, pick in zip(partners, picks, strict=True)], np.int64)

    @staticmethod
    def _draw_neighbours(rows: Rows, seed: int, epoch: int, anchors: Rows, counts: Rows, windows: Any) -> Rows:
        """Another span of each document, at most `windows` off, all of them alike."""
        low, high = np.maximum(anchors - windows, 0), np.minimum(anchors + windows, counts - 1)
        chosen = low + draw_rows(seed, epoch, rows, CONTEXT, high - low)
        return np.asarray(chosen + (chosen >= anchors))

    def names(self, rows: Rows) -> list[str]:
        return self._ids.doc_ids(self._starts[self._kept[rows]])


def _read_sharing(spans: Place) -> NDArray[np.int8]:
    """How many other spans share a phrase with each.

    Raises:
        UserError: if the artifact was made without them.
    """
    if not (spans / "sharing.npy").exists():
        raise UserError(f"{spans}: it is not noted which spans have words in common; set spans.recurring=true")
    with (spans / "sharing.npy").reading() as stream:
        shared: NDArray[np.int8] = np.load(stream, allow_pickle=False)
    return shared


@dataclass(frozen=True)
class PseudoQueryExamples:
    """Pre-training: a row is a passage that has pseudo-queries; each visit draws one of them."""

    tokens: Place
    pseudo_queries: Place
    fingerprint: str
    weights: Place | None = None
    by_length: bool = True

    def open(self) -> "PseudoQuerySource":
        return PseudoQuerySource(self)


class PseudoQuerySource:
    """The passages that have a query, in the order of the corpus."""

    group = 1

    def __init__(self, examples: PseudoQueryExamples) -> None:
        with (examples.pseudo_queries / "counts.npy").reading() as stream:
            counts: Ints32 = np.load(stream, allow_pickle=False)
        self._kept = np.flatnonzero(counts)
        self._counts = counts[self._kept]
        self.count = len(self._kept)
        self.lengths: Ints32 | None = lengths_of(examples.tokens)[self._kept] if examples.by_length else None
        self._passages = Passages(examples.tokens, examples.weights, planned=self.count)
        self._queries = TokenTable(examples.pseudo_queries / "pseudo_queries", planned=self.count)

    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns:
        passages = self._kept[rows]
        picks = draw_rows(seed, epoch, rows, QUERY, self._counts[rows])
        queries = join_texts(self._queries.read(passages, picks), self._passages.count + passages)
        return {"passage": self._passages.read(passages), "context": queries}

    def names(self, rows: Rows) -> list[str]:
        return self._passages.names(self._kept[rows])
