"""The batch plan: every row once an epoch, any step without those before, little padding, a new order each time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.training.plan import BLOCK, BatchPlan
from midmask.training.rehearsal import even_split


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
