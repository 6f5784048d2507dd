"""The audit's numbers, counted again one candidate at a time."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from midmask.mining.audit import MARGINS, Audit
from midmask.mining.filters import ALLOWED, FilterConfig, verdicts
from midmask.mining.negatives import Choice, Stretch, draw, examine
from tests.support.mining.candidates import (
    QUERIES,
    SOURCES,
    Lists,
    candidates,
    known,
    lists_of,
    relevant,
    scored,
    teachers,
)

lists = lists_of(st.integers(1, 40))
NAMES = [source.name for source in SOURCES]

PER_QUERY = 3
LEVEL = [("d0", 4.0), ("d1", 3.0), ("d2", 2.0), ("d3", 1.0)]
"""A list whose candidates the teacher puts level with the positive d0, above it and below it (`TEACHER`)."""
TEACHER = {("q0", doc): score for doc, score in (("d0", 1.0), ("d1", 1.0), ("d2", 2.0), ("d3", 0.0))}


def audited(found: Lists, positives: dict[str, set[str]], teacher: dict[tuple[str, str], float], pieces: int):
    """The audit over the queries in so many stretches; and the one stretch of all."""
    audit = Audit(NAMES, PER_QUERY)
    for piece in range(pieces):
        own = {
            name: {query: docs for query, docs in queries.items() if int(query[1:]) % pieces == piece}
            for name, queries in found.items()
        }
        if any(own.values()):
            one(own, positives, teacher, audit)
    return audit.report(len(QUERIES)), one(found, positives, teacher, Audit(NAMES, PER_QUERY))


def one(found: Lists, positives, teacher, audit: Audit) -> tuple[Stretch, np.ndarray, np.ndarray]:
    stretch = examine(candidates(found), SOURCES, known(positives), scored(teacher), 0)
    verdict = verdicts(stretch.facts, FilterConfig(), range(2, 9))
    chosen = draw(stretch, verdict, Choice(PER_QUERY))
    audit.add(stretch, verdict, chosen)
    return stretch, verdict, chosen


@settings(max_examples=40)
@given(lists, relevant, teachers, st.integers(1, 3))
@example({"a": {"q0": LEVEL}, "b": {"q0": LEVEL}}, {query: {"d0"} for query in QUERIES}, TEACHER, 1)
def test_every_number_counted_again(found, positives, teacher, pieces):
    report, (stretch, _, chosen) = audited(found, positives, teacher, pieces)
    rows = stretch.table.to_pylist()
    window = [row for row in rows if 2 <= row["rank"] < 9]
    taken = [rows[place] for place in chosen]
    shares = report["false_negatives"]

    def is_positive(row) -> bool:
        return row["doc_id"] in positives[row["query_id"]]

    def lowest(row) -> float | None:
        known_ = [teacher.get((row["query_id"], doc)) for doc in positives[row["query_id"]]]
        return None if None in known_ else min(known_)

    judged = [row for row in window if is_positive(row)]
    assert (shares["judged_relevant"] or {"count": 0})["count"] == len(judged)
    if window:
        assert shares["judged_relevant"]["of"] == len(window)
    for name, some in (("teacher_above_positive", window), ("chosen_teacher_above_positive", taken)):
        asked = [
            row
            for row in some
            if not is_positive(row) and lowest(row) is not None and (row["query_id"], row["doc_id"]) in teacher
        ]
        above = [row for row in asked if teacher[row["query_id"], row["doc_id"]] > lowest(row)]
        assert shares[name] is None if not asked else shares[name] == {
            "count": len(above), "of": len(asked), "share": round(len(above) / len(asked), 6),
        }  # fmt: skip
    assert report["negatives"] == len(taken)
    have = [sum(row["query_id"] == query for row in taken) for query in QUERIES]
    assert report["queries_short"] == sum(count < PER_QUERY for count in have)
    assert report["queries_without"] == have.count(0)
    for name in NAMES:
        assert sum(report["verdicts"][name].values()) == sum(row["source"] == name for row in rows)
        assert report["verdicts"][name].get("chosen", 0) == sum(row["source"] == name for row in taken)
        drawn = report["scores"][name]
        if drawn is not None:
            assert sum(drawn["negatives"]) == sum(row["source"] == name for row in taken)
            assert sum(drawn["positives"]) == sum(row["source"] == name and is_positive(row) for row in rows)
    overlaps = []
    for query in QUERIES:
        one_, other = ({doc for doc, _ in found[name].get(query, [])} for name in NAMES)
        if one_ and other:
            overlaps.append(len(one_ & other) / len(one_ | other))
    if overlaps:
        (pair,) = report["overlap"]
        assert pair["queries"] == len(overlaps) and pair["jaccard"] == pytest.approx(np.mean(overlaps), abs=1e-4)
    else:
        assert report["overlap"] == []


@settings(max_examples=40)
@given(lists, relevant, teachers)
def test_the_price_of_a_margin_is_what_the_margin_then_costs(found, positives, teacher):
    """Each price against a run with that margin; a margin beside no other rule refuses just what the audit said."""
    report, (stretch, verdict, _) = audited(found, positives, teacher, 1)
    unscored = np.isnan(stretch.facts.teacher) | np.isnan(stretch.facts.positive_teacher)
    for kind, margins in MARGINS.items():
        asked = (verdict == ALLOWED) & (True if kind == "relative_margin" else ~unscored)
        for margin, price in zip(margins, report["stricter"].get(kind, []), strict=False):
            strict = verdicts(stretch.facts, FilterConfig.model_validate({kind: margin}), range(2, 9))
            left = stretch.query[asked & (strict == ALLOWED)]
            assert price["margin"] == margin
            assert price["candidates_lost"]["count"] == (asked & (strict != ALLOWED)).sum()
            assert price["candidates_lost"]["of"] == asked.sum()
            assert price["queries_short"] == (np.bincount(left, minlength=len(stretch.query_ids)) < PER_QUERY).sum()


def test_a_chosen_positive_ends_the_run():
    found = {"a": {"q0": [("d0", 2.0), ("d1", 1.0)]}}
    stretch = examine(candidates(found), SOURCES, known({"q0": {"d1"}}), None, 0)
    verdict = verdicts(stretch.facts, FilterConfig(), range(1, 9))
    with pytest.raises(ValueError, match="passage 'd1' is relevant to query 'q0'"):
        Audit(NAMES, 3).add(stretch, verdict, np.array([0, 1]))
