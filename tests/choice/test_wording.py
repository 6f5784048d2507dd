"""A verdict as data, and its numbers, times and sentences."""

import json
import math
import re
from dataclasses import replace

import pytest

from midmask.choice.verdict import Calibration, Recommendation, Verdict
from midmask.choice.wording import (
    belief,
    certainty,
    duration,
    headline,
    loading_lines,
    query_sentence,
    readable,
    score,
    search_command,
    signed,
    size,
)
from midmask.errors import UserError
from tests.support.verdicts import undecided, verdict


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "under 1 s"), (0.49, "under 1 s"), (0.6, "1 s"), (1, "1 s"), (59.4, "59 s"), (59.6, "1 min")),
        *((187, "3 min 7 s"), (240, "4 min"), (599.4, "9 min 59 s"), (600, "10 min"), (2_520, "42 min")),
        *((3_599, "1 h"), (4_330, "1 h 12 min"), (36_000, "10 h"), (93_600, "26 h"), (172_800, "2 days")),
        *((273_600, "3 days 4 h"), (math.inf, "not known"), (math.nan, "not known")),
    ],
)
def test_times_as_people_write_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "plain", "with_sign"),
    [
        (0.04312, "0.043", "+0.043"),
        (-0.0256, "\u22120.026", "\u22120.026"),
        (0.0, "0.000", "0.000"),
        (-0.0004, "\u22120.000", "0.000"),
        (0.0004, "0.000", "0.000"),
        (math.inf, "not known", "not known"),
        (math.nan, "not known", "not known"),
    ],
)
def test_measures_and_differences(value: float, plain: str, with_sign: str) -> None:
    assert (score(value), signed(value)) == (plain, with_sign)
    assert [size(own) for own in (0, 842.5, 1536, 1_234_567)] == ["0 B", "842 B", "1.5 kB", "1.2 MB"]


def test_what_no_file_can_hold_gets_a_mark() -> None:
    found = readable("a\x00b\ud800c\u202ed\u2066\n\té ポ")
    assert found == "a\ufffdb\ufffdc\ufffdd\ufffd\n\té ポ"
    found.encode("utf-8")


def test_the_headline_is_what_was_measured_and_what_other_collections_suggest_stands_apart() -> None:
    told, apart = headline(verdict()), certainty(verdict())
    assert "“retromae · dense”" in told and all(
        number in told for number in ("+0.065", " 626 ", "+0.036 to +0.093", "1 h 12 min")
    )
    assert all(number in apart for number in ("squad, cranfield, pydocs", "+0.043", "+0.024 to +0.062", "88%"))
    assert "contains 0" not in apart and not {"+0.043", "+0.024"} & set(told.split())
    chosen = replace(verdict().systems[0], gain=0.067, gain_low=-0.043, gain_high=0.177, training="none")
    one = replace(verdict(), systems=(chosen, *verdict().systems[1:]))
    assert "+0.065" in headline(one) and "\u22120.043 to +0.177, which contains 0" in certainty(one)


def test_what_cannot_be_told_apart_and_only_the_cheapest_are_called_so() -> None:
    one = undecided()
    assert headline(one).startswith("Not distinguishable: take the cheapest, which is “none · dense”")
    assert "+0.009 nDCG@10" in certainty(one) and "\u22120.011 to +0.029, which contains 0" in certainty(one)
    dearer = replace(one, recommendation=Recommendation("mlm", "dense", False, ""))
    assert headline(dearer).startswith("Not distinguishable: take “mlm · dense”, for 51 min of computing")
    tied = replace(one, systems=(*one.systems[:5], replace(one.systems[5], gain_high=0.01)))
    assert "cheapest" not in headline(tied), "BM25 is as good for all that is known, and costs nothing"
    worse = tuple(
        each if each.system == "none" else replace(each, gain=-0.1, gain_low=-0.2, gain_high=-0.01)
        for each in one.systems
    )
    assert headline(replace(one, systems=worse)).startswith("Take “none · dense”"), "it beats all others"


@pytest.mark.parametrize(("enough", "found"), [(800.0, "about 14 min"), (400.0, "No middle training"), (None, "Take")])
def test_a_verdict_without_middle_training_opens_with_it(enough: float | None, found: str) -> None:
    one = verdict()
    tuned = tuple(replace(each, training="fine-tuning") for each in one.systems)
    without = replace(one, systems=tuned, budget_seconds=480.0, enough_seconds=enough)
    assert found in headline(without) and headline(without).startswith("No middle") == (enough is not None)
    assert headline(replace(without, systems=one.systems)).startswith("Take"), "some were compared"


def test_belief_and_counts_have_their_figures() -> None:
    found = " ".join(belief(verdict().calibration))
    assert all(told in found for told in ("squad, cranfield, pydocs", "0.710", "86%", "covered 88%")), "(1 + 0.71) / 2"
    assert "narrower" in belief(Calibration(("a",), 0.5, 0.7, 0.9))[-1]
    assert "wider" not in belief(Calibration(("a",), 0.5, 0.99, 0.9))[-1], "a few collections do not show that"
    assert not any("nan" in sentence for sentence in belief(Calibration(("a",), math.nan, 0.9)))
    counts = verdict().queries
    assert re.findall(r"\d[\d,%]*", query_sentence(counts)) == ["4,180", "2,503", "60%", "1,502", "375", "626"]
    assert re.findall(r"\d+", query_sentence(replace(counts, made=0, kept=0)))[:2] == ["0", "0"]


def test_commands_quote_names() -> None:
    one = replace(verdict(), folder="a b'; rm -rf")
    assert search_command(one) == """midmask search 'a b'"'"'; rm -rf'"""
    compile("\n".join(loading_lines(replace(one, model="a\"b'\n\\c"))), "lines", "exec")


@pytest.mark.parametrize("one", [verdict(), undecided()])
def test_what_is_written_is_read(one: Verdict) -> None:
    assert Verdict.from_json(one.as_json()) == one
    fields = json.loads(one.as_json())
    assert {"corpus", "passages", "queries", "systems", "recommendation", "calibration", "model"} <= set(fields)
    turned = replace(one, systems=one.systems[::-1])
    assert [each.rank for each in (*turned.finalists, *turned.given_up)] == [*range(1, 13)]


def test_the_recommended_system_has_that_representation_too() -> None:
    one = replace(verdict(), recommendation=Recommendation("none", "splade", True, ""))
    assert one.recommended.rank == 10
    missing = replace(verdict(), recommendation=Recommendation("retromae", "splade", True, ""))
    with pytest.raises(UserError, match="unknown recommended system 'retromae · splade'; did you mean"):
        _ = missing.recommended
