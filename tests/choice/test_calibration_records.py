"""Records of gains and levels, as written and read, and the level on people's queries."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from midmask.choice.calibration_records import GainRecord, load_records, write_records
from midmask.choice.levels import PRIOR_SPREAD, LevelRecord, level_interval, load_levels, write_levels
from midmask.errors import UserError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
NUMBER = st.floats(-1, 1, allow_nan=False)
ERROR = st.floats(0, 1)
LINE = {"collection": "a", "source": "all", "system": "s", "made": 0.1, "made_error": 0.01, "judged": 0.2, "over": ""}
WHOLE = {**LINE, "judged_error": 0.02, "seed": 0}


@given(
    st.lists(st.builds(GainRecord, TEXT, TEXT, TEXT, NUMBER, ERROR, NUMBER, ERROR, TEXT, st.integers(0)), max_size=5)
)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, records: list[GainRecord]) -> None:
    path = tmp_path_factory.mktemp("records") / "found.jsonl"
    write_records(records, path)
    path.write_text("\n" + path.read_text() + "  \n")
    assert load_records(path) == records, "blank lines are skipped"
    assert all(isinstance(one, GainRecord) for one in load_records()), "the package's own"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "no JSON"),
        ("[1]", "is no record"),
        (json.dumps(LINE), "collection, source"),
        (json.dumps({**WHOLE, "more": 1}), "is no record"),
        (json.dumps({**WHOLE, "made": True}), "made = True"),
        (json.dumps({**WHOLE, "judged": float("nan")}), "judged = nan"),
        (json.dumps({**WHOLE, "made_error": -0.1}), "made_error = -0.1"),
        (json.dumps({**WHOLE, "source": 3}), "source = 3"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "found.jsonl"
    path.write_text(f"{json.dumps(WHOLE)}\n{line}\n")
    with pytest.raises(UserError) as error:
        load_records(path)
    assert str(error.value).startswith(f"{path}, line 2: ") and said in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.jsonl: calibration records cannot be read"):
        load_records(tmp_path / "gone.jsonl")


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
