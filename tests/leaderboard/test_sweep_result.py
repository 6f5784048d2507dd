"""`sweep.json` as it is read and written, and what a sweep suggests next."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from midmask.errors import UserError
from midmask.leaderboard.sweep_next import suggestions
from midmask.leaderboard.sweep_result import parse_sweep
from tests.support.cluster.swept import decoder, parameter, sizes
from tests.support.dashboards import swept
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


Change = Callable[[dict[str, Any]], None]


def plain() -> dict[str, Any]:
    """A sweep over one width whose best is in the middle, with nothing to suggest."""
    points = [swept.point(width, 16) for width in (16, 32, 64)]
    for point, value in zip(points, (0.3, 0.6, 0.4), strict=True):
        point["values"]["nDCG@10"] = value
        point["to_best"] = {"difference": -0.2, "p": 0.01, "p_corrected": 0.01, "detectable": 0.02,
                            "distinguishable": True}  # fmt: skip
    points[1]["to_best"] = None
    share = {swept.WIDTH: 0.4, swept.WORDS: 0.3, swept.VIEW: 0.3}
    found = {**swept.told(), "points": points, "best": points[1]["label"]}
    return {**found, "importance": {"evaluator": "PED-ANOVA", "trials": 13, "quantile": 0.4, "shares": share}}


def best_is(at: int) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["points"][1]["to_best"] = data["points"][0]["to_best"]
        data["points"][at]["to_best"] = None
        data["best"] = data["points"][at]["label"]

    return change


def alike(data: dict[str, Any]) -> None:
    data["points"][0]["to_best"] = {**data["points"][0]["to_best"], "distinguishable": False}


def shares(**found: float) -> Change:
    paths = {"width": swept.WIDTH, "words": swept.WORDS}
    return lambda data: data["importance"].update(shares={paths[name]: share for name, share in found.items()})


def ranked(data: dict[str, Any], shown: bool = True) -> None:
    data["proxies"] = [
        {"share": share, "trials": 9, "tau": 0.8, "low": 0.5, "high": 1.0, "shown_to_rank": shown}
        for share in (0.5, 0.25)
    ]


def pruned(data: dict[str, Any]) -> None:
    ranked(data, shown=False)
    data["points"].append(swept.pruned())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: None, []),
        (best_is(2), ["64, is the largest"]),
        (best_is(0), ["16, is the smallest"]),
        (alike, ["1 of the other 2 points", "CLS width=16 N=16 is one of them and has 30% less"]),
        (shares(width=0.7, words=0.3), ["CLS width has 70%"]),
        (shares(width=0.48, words=0.02), ["N: below 5%"]),
        (ranked, ["at 25% of"]),
        (pruned, ["1 trials were pruned by probes that are not shown to rank"]),
    ],
)
def test_each_rule_is_met_by_one_change(change: Change, expected: list[str]) -> None:
    data = plain()
    change(data)
    found = suggestions(parse_sweep(data))
    assert len(found) == len(expected) and all(words in one for words, one in zip(expected, found, strict=True))
