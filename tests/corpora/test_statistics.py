import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.corpora.statistics import TextStatistics


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
