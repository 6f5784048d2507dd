import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.corpora.statistics import TextStatistics, statistics_table


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 7))
def test_streamed_lengths_equal_numpy_on_all_at_once(lengths: list[int], block: int) -> None:
    statistics = TextStatistics()
    for start in range(0, len(lengths), block):
        part = lengths[start : start + block]
        statistics.add(pa.table({"words": part, "question": [length % 2 == 0 for length in part]}))
    summary = statistics.summary()
    array = np.array(lengths, np.float64)
    assert summary["words"]["mean"] == pytest.approx(array.mean())
    assert summary["words"]["median"] == np.percentile(array, 50, method="inverted_cdf")
    assert summary["words"]["p90"] == np.percentile(array, 90, method="inverted_cdf")
    assert summary["words"]["max"] == array.max()
    assert summary["question_share"] == pytest.approx((array % 2 == 0).mean())


def test_the_table_shows_lengths_and_splits_and_who_made_them() -> None:
    part = {"count": 1398, "question_share": 0.25, "words": {"mean": 164.3, "median": 144, "p90": 280, "max": 669}}
    facts = {
        "passages": part,
        "queries": part,
        "splits": {"dev": {"queries": 40, "judgements": 334}, "test": {"queries": 7, "judgements": 0, "answered": 7}},
        "splits_made_here": ["test"],
        "titled": 1200,
        "self_matches": {"rule": "id", "pairs": 3},
    }
    lines = statistics_table(facts).splitlines()
    assert lines[1].split() == ["passages", "1,398", "164.3", "144", "280", "669", "25.0%"]
    assert lines[3].split()[:4] == ["dev", "40", "queries", "334"] and "split made here" not in lines[3]
    assert lines[4].split()[-6:] == ["7", "with", "answers", "(split", "made", "here)"]
    assert lines[5] == "titles: 1,200 of 1,398 passages have one"
    assert lines[6].startswith("3 passages are a query itself (by id)")
