"""The level on people's queries: a prediction interval over collections, checked by simulation."""

import numpy as np
import pytest
from scipy import stats

from midmask.choice.levels import PRIOR_SPREAD, LevelRecord, level_interval, load_levels, write_levels


def test_without_experience_the_prior_decides():
    value, low, high = level_interval(0.5, [], 0.9)
    assert value == 0.5
    assert high - value == pytest.approx(1.6448536 * PRIOR_SPREAD) == value - low


def test_a_collection_with_many_records_counts_once():
    records = [LevelRecord("a", str(seed), 0.6, 0.5) for seed in range(9)] + [LevelRecord("b", "all", 0.6, 0.6)]
    assert level_interval(0.6, records, 0.9)[0] == pytest.approx(0.55), "the mean offset is expected here"


@pytest.mark.parametrize(("spread", "least", "most"), [(PRIOR_SPREAD, 0.9, 0.96), (0.2, 0.84, 0.9)])
def test_intervals_cover_what_they_state(spread: float, least: float, most: float):
    """Offsets of collections are drawn anew 4,000 times, with the spread that is assumed, and with a larger one."""
    draw, hits = np.random.default_rng(5), 0
    for _ in range(4_000):
        offsets = draw.normal(0.1, spread, 4)
        records = [LevelRecord(str(number), "all", 0.5, 0.5 + offset) for number, offset in enumerate(offsets[:3])]
        _, low, high = level_interval(0.5, records, 0.9)
        hits += low <= 0.5 + offsets[3] <= high
    assert least < hits / 4_000 < most


def test_a_few_collections_count_beside_what_is_assumed():
    """By hand: 4 degrees of freedom of 0.15\u00b2 and 2 of the offsets' variance; t with 6."""
    offsets = [-0.28, 0.08, 0.08]
    records = [LevelRecord(str(n), "all", 0.5, 0.5 + offset) for n, offset in enumerate(offsets)]
    value, low, high = level_interval(0.5, records, 0.9)
    variance = (4 * 0.15**2 + 2 * np.var(offsets, ddof=1)) / 6
    assert value == pytest.approx(0.5 + np.mean(offsets))
    assert high - value == pytest.approx(stats.t.ppf(0.95, 6) * np.sqrt(variance * (1 + 1 / 3))) == value - low


def test_records_are_read_as_they_were_written(tmp_path):
    records = [LevelRecord("squad", "titles", 0.61, 0.68), LevelRecord("cranfield", "all", 0.5, 0.38)]
    write_levels(records, tmp_path / "levels.jsonl")
    assert load_levels(tmp_path / "levels.jsonl") == records
    assert all(0 <= one.made <= 1 and 0 <= one.judged <= 1 for one in load_levels()), "those that come along"
