"""Rows of a middle training: passages, packed rows, pairs of related texts, excerpts.

packed rows    passages end to end, cut without regard to where they begin, as `run_mlm` does by default

    passages, specials included    |[CLS] a b [SEP]|[CLS] c [SEP]|[CLS] d e f [SEP]| …   in groups of 1000
    rows of 4 tokens               |[CLS] a b [SEP]|[CLS] c [SEP] [CLS]|d e f [SEP]| …   a group's rest is dropped

  Where a row lies follows from the passages' lengths alone, so nothing has to be stored, and any row can be read.

pairs          two spans of a document, or a passage and a query for it. Row i of "passage" and of "context" are a
               pair; no two of the texts share a number, by which masks are drawn
excerpts       of each passage so many tokens in a row, which begin anywhere, all places alike, another at each visit;
               as the published code of query-as-context, bag of words and Condenser reads texts longer than a row

    passage          [CLS] a b c d e f g [SEP]
    excerpt of 5     [CLS] c d e [SEP]

What is drawn depends on (seed, epoch, row) alone. This module is imported without torch, as `training.examples`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from midmask.core.arrays import Floats, Ints32
from midmask.errors import UserError
from midmask.retrieve.blocks import passage_blocks
from midmask.retrieve.views import load_array
from midmask.store.place import Place
from midmask.training.examples import (
    Examples,
    ExampleSource,
    TextColumns,
    TextRows,
    TokenTable,
    draw_rows,
    groups_of_pools,
    join_texts,
)
from midmask.training.plan import Rows

if TYPE_CHECKING:
    from midmask.objectives import ObjectiveConfig


class Passages:
    """The passages of a tokens artifact by row, with their term weights where a `weights` artifact is given."""

    def __init__(self, tokens: Place, weights: Place | None, *, planned: int | None = None) -> None:
        self._ids = TokenTable(tokens / "passages", planned=planned)
        self._weights = TokenTable(weights / "weights", "weights", planned=planned) if weights else None
        self.count = self._ids.count

    def read(self, rows: Rows) -> TextRows:
        return join_texts(self._ids.read(rows), rows, self._weights.read(rows) if self._weights else None)


class TeacherVectors:
    """The dense vectors of an encoding of all passages by row, a block of them for each row group of the tokens.

    Args:
        tokens: an artifact of the same passages. planned: rows of the batch plan.
    """

    def __init__(self, encoded: Place, tokens: Place, *, planned: int) -> None:
        self._encoded, self._blocks = encoded, passage_blocks(tokens)
        self._starts = np.array([block.start for block in self._blocks])
        self._open = lru_cache(groups_of_pools(len(self._blocks), planned))(self._load)

    def read(self, rows: Rows) -> Floats:
        """The vectors of passages, [B, D]."""
        blocks = np.searchsorted(self._starts, rows, side="right") - 1
        places = rows - self._starts[blocks]
        return np.stack([self._open(int(block))[place] for block, place in zip(blocks, places, strict=True)])

    def _load(self, number: int) -> Floats:
        """All vectors of a block, memory-mapped where they are a local file."""
        block = self._blocks[number]
        vectors = load_array(self._encoded / "dense" / f"{block.name}.npy")
        if len(vectors) != block.rows:
            raise ValueError(f"{len(vectors)} vectors for {block.rows} passages: they belong to other tokens")
        return vectors


def lengths_of(tokens: Place) -> Ints32:
    """The tokens of each passage, int32."""
    return (tokens / "lengths.npy").read_array()


@dataclass(frozen=True)
class PassageExamples:
    """Pre-training: a row is a passage of the tokens artifact, or one that has pseudo-queries, with one of them."""

    tokens: Place
    fingerprint: str
    weights: Place | None = None  # an artifact of term weights
    # Whether batches are grouped by length; not where rows of a batch meet: a text's negatives would be of its length
    by_length: bool = True
    pseudo_queries: Place | None = None  # an artifact of them, of which each visit draws one
    excerpt: int | None = None  # tokens that each visit reads of a passage, [CLS] and [SEP] among them; none: all
    vectors: Place | None = None  # an encoding of the passages by a teacher

    def open(self) -> "PassageSource":
        return PassageSource(self)


class PassageSource(ExampleSource):
    """Passages by row number: all, or those that have a pseudo-query, in the order of the corpus."""

    def __init__(self, examples: PassageExamples) -> None:
        self._excerpt, lengths = examples.excerpt, lengths_of(examples.tokens)
        self._kept: Rows | None = None
        if examples.pseudo_queries is not None:
            counts: Ints32 = (examples.pseudo_queries / "counts.npy").read_array()
            self._kept = np.flatnonzero(counts)
            self._counts, lengths = counts[self._kept], lengths[self._kept]
            self._queries = TokenTable(examples.pseudo_queries / "pseudo_queries", planned=len(lengths))
        self.count = len(lengths)
        self._passages = Passages(examples.tokens, examples.weights, planned=self.count)
        self._vectors: TeacherVectors | None = None
        if examples.vectors is not None:
            self._vectors = TeacherVectors(examples.vectors, examples.tokens, planned=self.count)
        if examples.by_length:
            self.lengths = lengths if self._excerpt is None else np.minimum(lengths, self._excerpt)

    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns:
        passages = rows if self._kept is None else self._kept[rows]
        columns = {"passage": self._passages.read(passages)}
        if self._vectors is not None:
            columns["passage"] = columns["passage"]._replace(teacher=self._vectors.read(passages))
        if self._kept is not None:
            picks = draw_rows(seed, epoch, rows, QUERY, self._counts[rows])
            columns["context"] = join_texts(self._queries.read(passages, picks), self._passages.count + passages)
        if self._excerpt is not None:
            whole = columns["passage"]
            starts = draw_rows(seed, epoch, rows, EXCERPT, np.maximum(whole.lengths - self._excerpt, 0) + 1)
            columns["passage"] = cut_excerpts(whole, starts, self._excerpt)
        return columns


PACKED_GROUP = 1000
"""Passages that are put end to end (the default batch of Hugging Face's datasets, which run_mlm.py leaves as it is)."""


@dataclass(frozen=True)
class PackedExamples:
    """Pre-training: a row is exactly `length` tokens of passages end to end."""

    tokens: Place
    fingerprint: str
    length: int
    weights: Place | None = None

    def open(self) -> "PackedSource":
        return PackedSource(self)


class PackedSource(ExampleSource):
    """Packed rows by number. `dropped`: tokens that fill no row."""

    def __init__(self, examples: PackedExamples) -> None:
        self._length = examples.length
        self._ends = np.cumsum(lengths_of(examples.tokens), dtype=np.int64)
        bounds = np.append(np.arange(0, len(self._ends), PACKED_GROUP), len(self._ends))
        self._group_starts = np.concatenate([[0], self._ends])[bounds]
        rows = np.diff(self._group_starts) // self._length
        self._first_rows = np.concatenate([[0], np.cumsum(rows)])
        self.count = int(self._first_rows[-1])
        self.dropped = int(self._ends[-1]) - self.count * self._length
        if not self.count:
            raise UserError(
                f"tokens.max_length = {self._length}: {self._ends[-1]} tokens do not fill one packed row; set "
                "objective.packing=false or a smaller tokens.max_length"
            )
        self._passages = Passages(examples.tokens, examples.weights, planned=self.count)

    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns:
        starts = self._start(rows)
        first = np.searchsorted(self._ends, starts, side="right")
        last = np.searchsorted(self._ends, starts + self._length - 1, side="right")
        read = self._passages.read(np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]))
        begins = np.concatenate([[0], np.cumsum(read.lengths, dtype=np.int64)])
        places = np.concatenate([[0], np.cumsum(last - first + 1)])[:-1]
        before = starts - np.concatenate([[0], self._ends])[first]
        positions = ((begins[places] + before)[:, None] + np.arange(self._length)).reshape(-1)
        lengths = np.full(len(rows), self._length, dtype=np.int32)
        weights = None if read.weights is None else read.weights[positions]
        return {"passage": TextRows(read.flat[positions], lengths, rows, weights)}

    def _start(self, rows: Rows) -> Rows:
        """The place of each row's first token among all tokens."""
        group = np.searchsorted(self._first_rows, rows, side="right") - 1
        return np.asarray(self._group_starts[group] + (rows - self._first_rows[group]) * self._length)


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


class SpanSource(ExampleSource):
    """Documents by number. Batches are not grouped by length: it is drawn with the span."""

    def __init__(self, spans: Place, context: ContextKind) -> None:
        self._starts: Rows = (spans / "starts.npy").read_array()
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


def _read_sharing(spans: Place) -> NDArray[np.int8]:
    """How many other spans share a phrase with each. Raises UserError if the artifact was made without them."""
    if not (spans / "sharing.npy").exists():
        raise UserError(f"{spans}: it is not noted which spans have words in common; set spans.recurring=true")
    return (spans / "sharing.npy").read_array()


def cut_excerpts(whole: TextRows, starts: Rows, length: int) -> TextRows:
    """The first and the last token of each row, and between them the `length` - 2 tokens after `starts` skipped ones.

    Args:
        starts: int64 [B], tokens after [CLS] that are skipped; 0 for a row of at most `length` tokens, which is whole.
    """
    ends = np.cumsum(whole.lengths, dtype=np.int64)
    lengths = np.minimum(whole.lengths, length)
    first = np.repeat(np.cumsum(lengths, dtype=np.int64) - lengths, lengths)
    place = np.arange(int(lengths.sum())) - first  # in its excerpt
    row = np.repeat(np.arange(len(lengths)), lengths)
    positions = (ends - whole.lengths)[row] + place + np.where(place > 0, starts[row], 0)
    positions = np.where(place == lengths[row] - 1, ends[row] - 1, positions)
    weights = None if whole.weights is None else whole.weights[positions]
    return whole._replace(flat=whole.flat[positions], lengths=lengths, weights=weights)


def pretraining_examples(
    objective: "ObjectiveConfig",
    places: Mapping[str, Place],
    fingerprint: str,
    max_length: int,
    excerpt: int | None = None,
) -> Examples:
    """The rows that an objective reads. Where the loss compares rows, batches are not grouped by length: all negatives
    of a text would have its length.

    Args:
        places: artifacts by name: tokens, and of spans, pseudo_queries, weights and vectors what the objective reads.
        fingerprint: of the artifact whose rows are read, which their order depends on.
        max_length: tokens of a packed row. excerpt: tokens that each visit reads of a passage; none: all.
    """
    from midmask.objectives import PRETRAINING, CoupledObjective  # here, since they import torch

    form = objective.row_form()
    weights = places["weights"] if form.term_weights else None
    by_length = not issubclass(PRETRAINING[objective.name], CoupledObjective)
    if form.rows == "packed":
        return PackedExamples(places["tokens"], fingerprint, max_length, weights)
    if form.rows == "spans":
        return SpanExamples(places["spans"], fingerprint, form.context)
    queries = places["pseudo_queries"] if form.rows == "pseudo_queries" else None
    vectors = places["vectors"] if form.teacher is not None else None
    return PassageExamples(places["tokens"], fingerprint, weights, by_length, queries, excerpt, vectors)
