"""Which pairs a run is trained on: artifacts written here by hand, in which every text says what it is. The batch plan:
every row once an epoch, any step without those before, little padding, a new order each time.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from midmask.store.place import Place
from midmask.training.examples import TextColumns
from midmask.training.plan import BLOCK, BatchPlan
from midmask.training.pretraining_rows import ContextKind, PassageExamples, SpanExamples
from midmask.training.rehearsal import even_split

COUNTS = [2, 5, 3, 9, 2, 4]
"""Spans of each document."""

STARTS = np.concatenate([[0], np.cumsum(COUNTS)])
OVERLAP = 1000
VISITS = 2000

PARTNERS = {1: {0: [3], 1: [2, 3], 2: [1], 3: [0, 1]}, 5: {1: [3], 3: [1]}}
"""Document -> span -> the spans that share a phrase with it, as numbers within the document."""


@pytest.fixture(scope="module")
def spans(tmp_path_factory) -> Place:
    """Span s has the ids [s, s]; its overlap [1000 + s]. Two shards, of three documents each."""
    folder = tmp_path_factory.mktemp("spans")
    (folder / "spans").mkdir()
    np.save(folder / "starts.npy", STARTS)
    ids = pa.list_(pa.int32())
    columns = {"doc_id": pa.string(), "number": pa.int32(), "ids": ids, "overlap_ids": ids, "sharing": ids}
    counts = []
    for shard, documents in enumerate((range(3), range(3, 6))):
        rows = [
            (f"d{document}", number, [span, span], [OVERLAP + span], PARTNERS.get(document, {}).get(number, []))
            for document in documents
            for number, span in enumerate(range(STARTS[document], STARTS[document + 1]))
        ]
        counts += [len(row[-1]) for row in rows]
        table = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], pa.schema(columns))
        pq.write_table(table, folder / "spans" / f"{shard:05d}.parquet", row_group_size=4)
    np.save(folder / "sharing.npy", np.array(counts, np.int8))
    return Place(str(folder))


def firsts(texts: TextColumns, name: str) -> list[int]:
    return [int(piece[0]) for piece in texts[name].pieces()]


def visits(spans: Place, kind: ContextKind, document: int, row: int | None = None) -> Counter[tuple[int, int]]:
    """How often each (span, context) of a document was drawn, as numbers within it; an overlap is 1000 + its span."""
    source = SpanExamples(spans, "f", kind).open()
    pairs: Counter[tuple[int, int]] = Counter()
    start = int(STARTS[document])
    for epoch in range(VISITS):
        texts = source.read(np.array([document if row is None else row]), 7, epoch)
        pairs[firsts(texts, "passage")[0] - start, firsts(texts, "context")[0] - start] += 1
    return pairs


def alike(pairs: Counter[tuple[int, int]], expected: dict[tuple[int, int], float]) -> bool:
    """Whether draws have their probabilities; a right sampler fails once in 10,000 choices of the seed."""
    assert set(pairs) <= set(expected)
    total = pairs.total()
    return bool(chisquare([pairs[p] for p in expected], [total * share for share in expected.values()]).pvalue > 1e-4)


def within(count: int, window: int) -> dict[tuple[int, int], float]:
    """Every span alike, and of the others at most `window` off one, all alike."""
    shares = {}
    for anchor in range(count):
        others = [other for other in range(count) if other != anchor and abs(other - anchor) <= window]
        shares |= {(anchor, other): 1 / count / len(others) for other in others}
    return shares


def mixed() -> dict[tuple[int, int], float]:
    """Of nine spans, by a window of 3: overlapping, nearby and random ones alike."""
    expected = {(span, OVERLAP + span): 1 / 27 for span in range(9)}
    for window in (1, 3):
        for pair, share in within(9, window).items():
            expected[pair] = expected.get(pair, 0) + share / 3
    return expected


@pytest.mark.parametrize(
    ("kind", "document", "window", "expected"),
    [("any", 0, 8, within(2, 2)), ("any", 3, 3, within(9, 9)), ("nearby", 1, 8, within(5, 1)),
     ("random", 3, 8, within(9, 8)), ("random", 3, 3, within(9, 3)), ("mixed", 3, 3, mixed()),
     ("overlap", 1, 8, {(span, OVERLAP + span): 1 / 5 for span in range(5)})],
)  # fmt: skip
def test_contexts_have_the_chances_of_their_kind(spans, monkeypatch, kind, document, window, expected):
    monkeypatch.setattr("midmask.training.pretraining_rows.WINDOW", window)
    assert alike(visits(spans, kind, document), expected)


def test_recurring_contexts_share_a_phrase_and_other_documents_sit_out(spans):
    source = SpanExamples(spans, "f", "recurring").open()
    assert source.count == 2
    for row, document in enumerate((1, 5)):
        own, pairs = PARTNERS[document], visits(spans, "recurring", document, row)
        assert alike(pairs, {(s, other): 1 / len(own) / len(own[s]) for s in own for other in own[s]})


@pytest.mark.parametrize("kind", ["any", "mixed", "recurring"])
def test_draws_depend_on_seed_epoch_and_document_alone(spans, kind):
    source = SpanExamples(spans, "f", kind).open()
    rows = np.arange(source.count)

    def drawn(order: NDArray[np.int64], seed: int, epoch: int) -> list[tuple[int, int]]:
        texts = source.read(order, seed, epoch)
        return list(zip(firsts(texts, "passage"), firsts(texts, "context"), strict=True))

    whole = [drawn(rows, 3, epoch) for epoch in range(50)]
    assert [drawn(rows[::-1].copy(), 3, epoch)[::-1] for epoch in range(50)] == whole
    assert [[drawn(rows[row : row + 1], 3, epoch)[0] for row in rows] for epoch in range(50)] == whole
    assert any(each != whole[0] for each in whole) and [drawn(rows, 4, epoch) for epoch in range(50)] != whole


def test_no_two_texts_share_the_number_that_masks_are_drawn_by(spans):
    source = SpanExamples(spans, "f", "mixed").open()
    by_text: dict[int, set[tuple[int, ...]]] = {}
    for epoch in range(60):
        texts = source.read(np.arange(len(COUNTS)), 0, epoch)
        assert not set(texts["passage"].rows) & set(texts["context"].rows), "a pair's masks would be alike"
        for text in texts.values():
            for number, piece in zip(text.rows, text.pieces(), strict=True):
                by_text.setdefault(int(number), set()).add(tuple(piece.tolist()))
    assert all(len(pieces) == 1 for pieces in by_text.values())
    assert len(by_text) == 2 * STARTS[-1], "every span and every overlap is drawn sometime"


@pytest.fixture(scope="module")
def queries(tokens, tmp_path_factory) -> tuple[Place, list[int]]:
    """Query k of passage r has the ids [r, k]; passage r has r % 4 of them."""
    folder = tmp_path_factory.mktemp("queries")
    (folder / "pseudo_queries").mkdir()
    first, counts = 0, []
    for name in (tokens / "passages").names():
        rows = range(first, first + pq.read_metadata(f"{tokens}/passages/{name}").num_rows)
        counts += [row % 4 for row in rows]
        ids = [[[row, pick] for pick in range(row % 4)] for row in rows]
        table = pa.table({"ids": pa.array(ids, pa.list_(pa.list_(pa.int32())))})
        pq.write_table(table, folder / "pseudo_queries" / name, row_group_size=30)
        first = rows.stop
    np.save(folder / "counts.npy", np.array(counts, np.int32))
    return Place(str(folder)), counts


def test_a_row_is_a_passage_with_one_of_its_queries(tokens, queries):
    source = PassageExamples(tokens, "f", pseudo_queries=queries[0]).open()
    with_query = [row for row, count in enumerate(queries[1]) if count]
    assert source.count == len(with_query)
    rows = np.random.default_rng(0).permutation(source.count)
    texts = source.read(rows, 0, 0)
    passages = pq.read_table(f"{tokens}/passages")["ids"].to_pylist()
    assert [piece.tolist() for piece in texts["passage"].pieces()] == [passages[with_query[row]] for row in rows]
    assert firsts(texts, "context") == [with_query[row] for row in rows]
    assert source.lengths[rows].tolist() == texts["passage"].lengths.tolist()
    assert not set(texts["passage"].rows) & set(texts["context"].rows)


def test_every_query_of_a_passage_is_as_likely(tokens, queries):
    """A right sampler fails once in 10,000 choices of the seed. Row 5 is d7, which has three."""
    source = PassageExamples(tokens, "f", pseudo_queries=queries[0]).open()
    texts = [next(source.read(np.array([5]), 1, epoch)["context"].pieces()) for epoch in range(VISITS)]
    picks = Counter(int(text[1]) for text in texts)
    assert set(picks) == {0, 1, 2}
    assert chisquare(list(picks.values())).pvalue > 1e-4


def some_lengths(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(3, 130, count).astype(np.int32)


@settings(max_examples=40)
@given(
    count=st.integers(1, 5000), batch_size=st.integers(1, 300), seed=st.integers(0, 2**31 - 1), grouped=st.booleans()
)
def test_an_epoch_holds_every_row_once_but_the_rest(count, batch_size, seed, grouped):
    if batch_size > count:
        return
    plan = BatchPlan(count, batch_size, seed, "c", some_lengths(count) if grouped else None)
    for epoch in (0, 1):
        first = epoch * plan.steps_per_epoch
        rows = np.concatenate([plan.rows(first + step) for step in range(plan.steps_per_epoch)])
        assert len(np.unique(rows)) == len(rows) == count - plan.left_out
        assert 0 <= rows.min() and rows.max() < count
        assert plan.left_out == count % batch_size


@pytest.mark.parametrize("grouped", [False, True])
def test_several_pools_hold_every_row_once_and_a_step_is_found_without_those_before(grouped):
    count = 150_001
    lengths = some_lengths(count) if grouped else None
    plan = BatchPlan(count, 64, 5, "c", lengths)
    batches = [plan.rows(step) for step in range(plan.steps_per_epoch)]
    rows = np.concatenate(batches)
    assert len(np.unique(rows)) == len(rows) == count - count % 64
    for step in (2187, 3, 2188, 0):
        np.testing.assert_array_equal(BatchPlan(count, 64, 5, "c", lengths).rows(step), batches[step])


def test_rows_lie_in_few_blocks_so_that_little_is_read():
    plan = BatchPlan(1_000_000, 64, 0, "c")
    blocks = {int(block) for step in range(900) for block in plan.rows(step) // BLOCK}
    assert len(blocks) <= 34  # 900 steps of 64 lie in the first of 16 pools


@pytest.mark.parametrize("grouped", [False, True])
def test_every_epoch_seed_and_corpus_has_its_own_order(grouped):
    lengths = some_lengths(3000) if grouped else None
    plan = BatchPlan(3000, 32, 0, "c", lengths)
    first = [plan.rows(step).tolist() for step in range(plan.steps_per_epoch)]
    seed, corpus = (BatchPlan(3000, 32, *own, lengths) for own in ((1, "c"), (0, "d")))
    for other, start in ((plan, plan.steps_per_epoch), (seed, 0), (corpus, 0)):
        batches = [sorted(other.rows(start + step)) for step in range(plan.steps_per_epoch)]
        assert not any(sorted(batch) in batches for batch in first), "a batch of the same rows came twice"


@given(size=st.integers(1, 7), step=st.integers(0, 50))
@settings(max_examples=30)
def test_the_shares_of_the_workers_are_the_batch(size, step):
    plan = BatchPlan(999, 30, 0, "c", some_lengths(999))
    shares = [plan.share(step, rank, size) for rank in range(size)]
    assert sorted(np.concatenate(shares).tolist()) == sorted(plan.rows(step).tolist())
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def padded_share(plan: BatchPlan, lengths: np.ndarray, size: int) -> float:
    slots = tokens = 0
    for step in range(plan.steps_per_epoch):
        for rank in range(size):
            share = lengths[plan.share(step, rank, size)]
            slots += len(share) * int(share.max())
            tokens += int(share.sum())
    return 1 - tokens / slots


@pytest.mark.parametrize("size", [1, 2])
def test_padding_stays_under_a_tenth(size):
    """With lengths as spread as those of Wikipedia's passages."""
    lengths = np.random.default_rng(0).lognormal(4.3, 0.5, 30_000).astype(np.int32)
    assert padded_share(BatchPlan(len(lengths), 32, 0, "wiki", lengths), lengths, size) < 0.1
    assert padded_share(BatchPlan(len(lengths), 32, 0, "wiki"), lengths, size) > 0.1, "grouping is not needed here"


@pytest.mark.parametrize(("share", "fitting", "rows"), [(256, 100, 86), (256, 128, 128), (17, 16, 9), (5, 1, 1)])
def test_pieces_are_few_and_about_equal(share, fitting, rows):
    assert even_split(share, fitting) == rows
