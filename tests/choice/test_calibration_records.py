"""Records of gains: what is written is read, and a line that is none is named."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.choice.calibration_records import GainRecord, load_records, write_records
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
