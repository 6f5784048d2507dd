"""A verdict as data: what is written is read, finalists by rank, and the recommended system."""

import json
from dataclasses import replace

import pytest

from midmask.choice.verdict import Recommendation, Verdict
from midmask.errors import UserError
from tests.support.verdicts import undecided, verdict


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
