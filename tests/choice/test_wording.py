"""Numbers, times and sentences of a verdict."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.choice.verdict import Calibration, Recommendation
from midmask.choice.wording import (
    belief,
    certainty,
    duration,
    headline,
    loader,
    loading_lines,
    query_sentence,
    rank_words,
    readable,
    score,
    search_command,
    signed,
    size,
)
from tests.support.verdicts import undecided, verdict

UNITS = {"s": 1, "min": 60, "h": 3600, "days": 86_400}


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


@given(st.floats(0.51, 1e7))
def test_a_time_that_is_read_back_is_close(seconds: float) -> None:
    words = duration(seconds).split()
    read = sum(int(number) * UNITS[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
    assert read == pytest.approx(seconds, rel=0.06, abs=0.51)


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


def test_sizes_and_ranks() -> None:
    assert [size(value) for value in (0, 842.5, 1536, 1_234_567, math.nan)] == [
        *("0 B", "842 B", "1.5 kB", "1.2 MB", "not known")
    ]
    assert (rank_words(3), rank_words(None)) == ("rank 3", "not found")


def test_what_no_file_can_hold_gets_a_mark() -> None:
    found = readable("a\x00b\ud800c\u202ed\u2066\n\té ポ")
    assert found == "a\ufffdb\ufffdc\ufffdd\ufffd\n\té ポ"
    found.encode("utf-8")


MADE = "+0.065 nDCG@10 over “none · dense” on 626 made test queries of these documents (90% interval +0.036 to +0.093)"


def test_the_headline_is_what_was_measured_on_these_documents() -> None:
    assert headline(verdict()) == f"Take “retromae · dense”: {MADE}, for 1 h 12 min of computing."


def test_what_other_collections_suggest_stands_apart_with_its_source() -> None:
    found = certainty(verdict())
    assert "squad, cranfield, pydocs" in found and "+0.043" in found and "+0.024 to +0.062" in found
    assert "88%" in found and "contains 0" not in found
    assert not {"+0.043", "+0.024"} & set(headline(verdict()).split())


def test_a_measured_gain_is_said_though_other_collections_make_people_s_uncertain() -> None:
    """A join with BM25: the made queries are clear, what people would gain is other collections' mean."""
    chosen = replace(verdict().systems[0], gain=0.067, gain_low=-0.043, gain_high=0.177, training="none")
    recommendation = Recommendation("retromae", "dense", False, "")
    one = replace(verdict(), systems=(chosen, *verdict().systems[1:]), recommendation=recommendation)
    assert headline(one) == f"Take “retromae · dense”: {MADE}, without any training."
    assert "+0.067" in certainty(one) and "\u22120.043 to +0.177, which contains 0" in certainty(one)


def test_no_difference_is_said_first() -> None:
    one = undecided()
    assert headline(one) == "Not distinguishable: take the cheapest, which is “none · dense”, for 21 min of computing."
    assert "“retromae · dense”: +0.009 nDCG@10" in certainty(one)
    assert "(90% interval \u22120.011 to +0.029, which contains 0)" in certainty(one)
    assert "no collection with judgements" in certainty(one)


def test_a_baseline_that_beats_all_others_is_not_called_alike() -> None:
    others = tuple(replace(each, gain=-0.1, gain_low=-0.2, gain_high=-0.01) for each in undecided().systems)
    one = replace(
        undecided(),
        systems=tuple(
            each if each.system == "none" else worse for each, worse in zip(undecided().systems, others, strict=True)
        ),
    )
    assert headline(one).startswith("Take “none · dense”: no other system")


def test_what_is_not_the_cheapest_is_not_called_so() -> None:
    one = replace(undecided(), recommendation=Recommendation("mlm", "dense", False, ""))
    assert headline(one).startswith("Not distinguishable: take “mlm · dense”, for 51 min of computing, with 0.000")
    worse = replace(undecided().systems[5], gain_high=0.01)
    tied = replace(undecided(), systems=(*undecided().systems[:5], worse))
    assert "cheapest" not in headline(tied), "BM25 is as good for all that is known, and costs nothing"


@pytest.mark.parametrize(
    ("enough", "found"),
    [
        (800.0, "No middle training was tried: 8 min are too short, about 14 min would do. Take"),
        (4_000.0, "No middle training was tried: 8 min are too short, about 1 h 10 min would do. Take"),
        (400.0, "No middle training was measured: “Not tried” says why. Take"),
        (None, "Take"),
    ],
)
def test_a_verdict_that_compared_no_middle_training_opens_with_it(enough: float | None, found: str) -> None:
    one = verdict()
    tuned = tuple(replace(each, training="fine-tuning") for each in one.systems)
    without = replace(one, systems=tuned, budget_seconds=480.0, enough_seconds=enough)
    assert headline(without).startswith(found)
    assert headline(replace(without, systems=one.systems)).startswith("Take"), "some were compared"


def test_a_verdict_on_one_system() -> None:
    one = undecided()
    alone = replace(one, systems=tuple(each for each in one.systems if each.label == one.baseline))
    assert certainty(alone) == "No other system was measured on the test queries."


def test_belief_has_the_calibrations_figures() -> None:
    found = " ".join(belief(verdict().calibration))
    assert "On 3 collections with judgements (squad, cranfield, pydocs)" in found
    assert "Kendall's tau of 0.710: without ties, 86% of all pairs" in found, "(1 + 0.71) / 2"
    assert "Stated 90% intervals covered 88% of the judged gains." in found and "should be" not in found
    assert found.endswith("Source: jobs/calibrate.py, docs/results/choose.md")
    narrow, wide = (Calibration(("a",), 0.5, coverage, 0.9) for coverage in (0.7, 0.99))
    assert "On 1 collection with" in " ".join(belief(narrow)) and "narrower than they should be" in belief(narrow)[-1]
    assert "wider" not in belief(wide)[-1], "a few collections do not show that"


def test_without_a_calibration_the_intervals_are_an_assumption() -> None:
    (found,) = belief(Calibration((), 0.0, 0.0, 0.8))
    assert "is an assumption, and so is the width of the 80% intervals" in found and "tau" not in found
    unknown = belief(Calibration(("a",), math.nan, 0.9))
    assert not any("nan" in sentence for sentence in unknown)


def test_counts_of_queries() -> None:
    counts = verdict().queries
    assert query_sentence(counts) == (
        "4,180 queries were made and 2,503 (60%) kept: 1,502 for training, 375 for choosing (dev), 626 for the figures "
        "(test)."
    )
    assert "0 queries were made and 0 kept" in query_sentence(replace(counts, made=0, kept=0))


@pytest.mark.parametrize(
    ("representation", "found"),
    [
        *(("dense", "SentenceTransformer"), ("mean:128", "SentenceTransformer"), ("384+384", "SentenceTransformer")),
        *(("dense+splade", "SentenceTransformer"), ("splade", "SparseEncoder"), ("splade:64", "SparseEncoder")),
        ("OT:768", None),
    ],
)
def test_who_loads_a_representation(representation: str, found: str | None) -> None:
    chosen = replace(verdict().recommended, system="any", representation=representation)
    recommendation = Recommendation("any", representation, True, "")
    one = replace(verdict(), systems=(chosen, *verdict().systems), recommendation=recommendation)
    assert loader(representation) == found
    assert loading_lines(one)[:1] == ([f"from sentence_transformers import {found}"] if found else [])


def test_commands_quote_names() -> None:
    one = replace(verdict(), folder="a b'; rm -rf")
    assert search_command(one) == """midmask search 'a b'"'"'; rm -rf'"""
    compile("\n".join(loading_lines(replace(one, model="a\"b'\n\\c"))), "lines", "exec")
