"""`sweep.json` as it is read and written: what was read is written unchanged, and files of older versions are read."""

import json
from typing import Any

import pytest

from midmask.errors import UserError
from midmask.leaderboard.sweep_result import parse_sweep
from tests.support.cluster.swept import decoder, parameter, sizes
from tests.support.dashboards.swept import told


def written(data: dict[str, Any]) -> dict[str, Any]:
    return parse_sweep(json.loads(json.dumps(data))).model_dump(mode="json")


def test_what_was_read_is_written_unchanged_down_to_the_type_of_each_number() -> None:
    typed = parameter("o.flag", [True, 1, 1.5, "1", None], low=1, high=2.0)
    for data in (told(), {**sizes(), "floor": "none", "systems": told()["systems"], "parameters": [typed]}):
        assert json.dumps(written(data), sort_keys=True) == json.dumps(data, sort_keys=True)


def test_files_from_before_the_comparison_with_the_floor_are_read() -> None:
    data = decoder()
    assert "floor" not in data and not any("to_floor" in system for system in data["systems"])
    found = parse_sweep(data)
    data["importance"]["shares"] = {"o.decoding": 0.3, "o.ratio": 0.7}
    told = parse_sweep(data).importance
    assert told is not None and list(told.shares) == ["o.ratio", "o.decoding"], "the largest first"
    assert found.floor == "" and [system.to_floor for system in found.systems] == [{}, {}]
    assert [system.means for system in found.systems] == [
        {"dev": 0.15, "test": 0.14},
        {"dev": pytest.approx(0.11), "test": 0.1},
    ]


def test_a_field_of_a_later_version_is_left_out_but_another_format_is_refused() -> None:
    assert "later" not in written({**told(), "later": 1})
    for number in (2, None):
        with pytest.raises(UserError, match=f"sweep.json has format {number}; this version reads 1"):
            parse_sweep({**decoder(), "format": number})
    with pytest.raises(UserError, match=r"sweep.json.points.0.label: a value is required"):
        parse_sweep({**decoder(), "points": [{}]})
