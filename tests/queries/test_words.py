"""Term weights against the formula."""

import math

import pytest

from midmask.queries.words import TermWeights, normalised

TEXTS = ("Wings flutter", "the wing stalls", "a flame", "flames and flames")


def test_idf_and_overlap() -> None:
    weights = TermWeights(TEXTS)
    wing, stall, unknown = weights.stems("wing stalling zeppelin")
    assert [weights.frequency(stem) for stem in (wing, stall, unknown)] == [2, 1, 0]
    of = {n: math.log(1 + (4 - n + 0.5) / (n + 0.5)) for n in (0, 1, 2)}
    assert weights.idf(wing) == pytest.approx(of[2]) and weights.idf(unknown) == pytest.approx(of[0])
    whole = of[2] + of[1] + of[0]
    assert weights.overlap("winged? Wing stalls, zeppelin", "two wings") == pytest.approx(of[2] / whole)
    assert weights.overlap("wing stall", "The stalled wings") == 1.0
    assert weights.overlap("? !", "anything") == 0.0


def test_texts_that_differ_in_case_and_signs_are_one_query() -> None:
    assert normalised(" What's  a (Wing)? ") == normalised("what s a wing") == "what s a wing"
