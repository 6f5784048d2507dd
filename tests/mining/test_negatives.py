"""Which negatives are chosen, and what the audit counts, against the same rules in plain Python, one by one."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.mining.known import Known
from midmask.mining.mine import Audit
from midmask.mining.negatives import (
    CANDIDATES,
    CODE,
    VERDICTS,
    FilterConfig,
    draw,
    examine,
    negatives_table,
    verdicts,
)

SOURCES = ["a", "b"]

DOCS = [f"d{row}" for row in range(8)]
QUERIES = [f"q{row}" for row in range(4)]

relevant = st.fixed_dictionaries({query: st.sets(st.sampled_from(DOCS), min_size=1, max_size=2) for query in QUERIES})
teachers = st.dictionaries(st.tuples(st.sampled_from(QUERIES), st.sampled_from(DOCS)), st.integers(-2, 2).map(float))


def lists_of(scores: st.SearchStrategy[int]) -> st.SearchStrategy["Lists"]:
    """Lists a and b of some queries, by falling quarters of scores."""
    one = st.lists(st.tuples(st.sampled_from(DOCS), scores), unique_by=lambda pair: pair[0], min_size=2)
    ranked = one.map(lambda found: sorted([(doc, score / 4) for doc, score in found], key=lambda pair: -pair[1]))
    queries = st.dictionaries(st.sampled_from(QUERIES), ranked, min_size=1)
    return st.fixed_dictionaries({"a": queries, "b": queries})


Sets = dict[str, set[str]]
Pairs = dict[tuple[str, str], float]
Lists = dict[str, dict[str, list[tuple[str, float | None]]]]
"""source -> query -> (passage, score), best first."""


def candidates(lists: Lists) -> pa.Table:
    rows = [
        (query, doc, rank, score, source)
        for source, queries in sorted(lists.items())
        for query, found in sorted(queries.items())
        for rank, (doc, score) in enumerate(found, start=1)
    ]
    return pa.Table.from_pylist([dict(zip(CANDIDATES.names, row, strict=True)) for row in rows], CANDIDATES)


def known(positives: Sets, near: Sets | None = None) -> Known:
    """near: positive -> the passages like it."""
    relevant_ = [(query, doc) for query, docs in positives.items() for doc in sorted(docs)]
    alike = sorted({(query, doc) for query, own in relevant_ for doc in (near or {}).get(own, set())})
    return Known(table_of("query_id doc_id", relevant_), table_of("query_id doc_id", alike))


def table_of(columns: str, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    kinds = {"query_id": pa.string(), "doc_id": pa.string(), "score": pa.float32()}
    schema = pa.schema([(name, kinds[name]) for name in columns.split()])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def scored(scores: Pairs) -> pa.Table:
    return table_of("query_id doc_id score", [(*pair, score) for pair, score in sorted(scores.items())])


lists = lists_of(st.integers(-8, 8))
likes = st.dictionaries(st.sampled_from(DOCS), st.sets(st.sampled_from(DOCS), max_size=2), max_size=3)
margin = st.none() | st.integers(-4, 8).map(lambda value: value / 4)
rules = st.builds(
    FilterConfig, absolute_margin=margin, relative_margin=st.none() | st.integers(0, 4).map(lambda value: value / 8)
)


def slow_verdict(
    found: Lists, row: dict[str, Any], positives: set[str], near: Sets, teacher: Pairs, rule: FilterConfig, ranks: range
) -> str:
    """The first rule that refuses a candidate, asked one after the other."""
    query, doc, rank, score = (row[name] for name in ("query_id", "doc_id", "rank", "score"))
    listed = dict(found[row["source"]][query])
    if rank not in ranks:
        return "outside_ranks"
    if doc in positives:
        return "positive"
    if any(doc in near.get(positive, set()) for positive in positives):
        return "near_duplicate"
    if rule.teacher_margin is not None:
        if teacher[query, doc] > min(teacher[query, positive] for positive in positives) - rule.teacher_margin:
            return "teacher_margin"
    asked = [value for value in (rule.absolute_margin, rule.relative_margin) if value is not None]
    if asked and any(positive not in listed for positive in positives):
        return "positive_not_ranked"
    lowest = min((listed[positive] for positive in positives if positive in listed), default=math.nan)
    if rule.absolute_margin is not None and score + rule.absolute_margin > lowest:
        return "absolute_margin"
    if rule.relative_margin is not None and score > lowest - abs(lowest) * rule.relative_margin:
        return "relative_margin"
    return "not_drawn"


every_pair = st.fixed_dictionaries({(query, doc): st.integers(-2, 2).map(float) for query in QUERIES for doc in DOCS})


@settings(max_examples=40)
@given(lists, relevant, likes, every_pair, rules, margin, st.integers(1, 3), st.integers(3, 8))
def test_every_candidate_gets_the_first_rule_that_refuses_it(found, positives, near, teacher, rule, least, low, more):
    ranks, rule = range(low, low + more), rule.model_copy(update={"teacher_margin": least})
    table = candidates(found)
    codes = verdicts(examine(table, SOURCES, known(positives, near), scored(teacher), seed=0), rule, ranks)
    for row, code in zip(table.to_pylist(), codes, strict=True):
        assert VERDICTS[code] == slow_verdict(found, row, positives[row["query_id"]], near, teacher, rule, ranks), row


def test_a_candidate_just_at_the_margin_may_be_a_negative():
    """As in sentence-transformers: refused where s + margin > p."""
    found = {"a": {"q0": [("d0", 2.0), ("d1", 1.25), ("d2", 1.0), ("d3", 0.75)]}}
    stretch = examine(candidates(found), SOURCES, known({"q0": {"d0"}}), None, 0)
    for rule in (FilterConfig(absolute_margin=1.0), FilterConfig(relative_margin=0.5)):
        assert (verdicts(stretch, rule, range(1, 9)) == CODE["not_drawn"]).tolist() == [False, False, True, True]
    below = {"a": {"q0": [("d0", -2.0), ("d1", -2.5), ("d2", -3.0), ("d3", -3.5)]}}
    stretch = examine(candidates(below), SOURCES, known({"q0": {"d0"}}), None, 0)
    codes = verdicts(stretch, FilterConfig(relative_margin=0.5), range(1, 9))
    assert (codes == CODE["not_drawn"]).tolist() == [False, False, True, True]


@settings(max_examples=40)
@given(lists, relevant, st.integers(1, 6), st.sampled_from(["random", "top"]), st.integers(0, 3))
def test_the_chosen_are_the_first_by_rank_or_by_a_draw(found, positives, per_query, how, seed):
    stretch = examine(candidates(found), SOURCES, known(positives), None, seed)
    codes = verdicts(stretch, FilterConfig(), range(1, 9))
    rows = candidates(found).to_pylist()
    priority = stretch["draw"].tolist() if how == "random" else [row["rank"] for row in rows]
    expected = []
    for query in QUERIES:
        places: dict[str, int] = {}  # of each passage, in the first list that has it
        for place, row in enumerate(rows):
            if row["query_id"] == query and row["doc_id"] not in positives[query]:
                places.setdefault(row["doc_id"], place)
        best = sorted(places.values(), key=lambda place: (priority[place], place))[:per_query]
        expected += [rows[place] for place in sorted(best)]
    chosen = negatives_table(stretch, codes, draw(stretch, codes, per_query, how)).to_pylist()
    assert [{name: row[name] for name in CANDIDATES.names} for row in chosen] == expected


def all_allowed(queries: list[str], per_query: int, docs: list[str] = DOCS, seed: int = 0) -> list[dict[str, Any]]:
    lists = {"a": {query: [(doc, None) for doc in docs] for query in queries}}
    stretch = examine(candidates(lists), SOURCES, known({}), None, seed)
    codes = verdicts(stretch, FilterConfig(), range(1, 100))
    rows: list[dict[str, Any]] = negatives_table(stretch, codes, draw(stretch, codes, per_query, "random")).to_pylist()
    return rows


def test_a_querys_negatives_do_not_depend_on_the_other_queries_and_follow_the_seed():
    together = all_allowed(QUERIES, 5)
    assert [row for row in together if row["query_id"] == "q2"] == all_allowed(["q2"], 5)
    by_query = {query: tuple(row["rank"] for row in together if row["query_id"] == query) for query in QUERIES}
    assert len(set(by_query.values())) > 1, "every query draws the same ranks"
    assert all_allowed(QUERIES, 5, seed=1) != together


def test_every_allowed_rank_is_drawn_about_equally_often():
    """Each of 20 ranks is drawn with probability 6/20 in 1,000 queries: 300 +- 14.5, five sigma."""
    docs = [f"d{row}" for row in range(20)]
    ranks = [row["rank"] for row in all_allowed([f"q{row}" for row in range(1000)], 6, docs)]
    assert all(abs(ranks.count(rank) - 300) < 73 for rank in range(1, 21))


def test_a_margin_without_a_teachers_score_names_query_and_passage():
    lists = {"a": {"q0": [("d00", 2.0), ("d01", 1.0)]}}
    for scores, missing in (({("q0", "d00"): 1.0}, "passage 'd01'"), ({("q0", "d01"): 1.0}, "a relevant passage")):
        stretch = examine(candidates(lists), SOURCES, known({"q0": {"d00"}}), scored(scores), 0)
        with pytest.raises(UserError, match=f"query 'q0' has no teacher score for {missing}"):
            verdicts(stretch, FilterConfig(teacher_margin=0), range(1, 9))


audited_lists = lists_of(st.integers(1, 40))

PER_QUERY = 3
LEVEL = [("d0", 4.0), ("d1", 3.0), ("d2", 2.0), ("d3", 1.0)]
"""A list whose candidates the teacher puts level with the positive d0, above it and below it (`TEACHER`)."""
TEACHER = {("q0", doc): score for doc, score in (("d0", 1.0), ("d1", 1.0), ("d2", 2.0), ("d3", 0.0))}


def audited(found: Lists, positives: Sets, teacher: Pairs, pieces: int):
    """The audit over the queries in so many stretches; and the examined stretch of all."""
    audit = Audit(SOURCES, PER_QUERY)
    for piece in range(pieces):
        own = {
            name: {query: docs for query, docs in queries.items() if int(query[1:]) % pieces == piece}
            for name, queries in found.items()
        }
        if any(own.values()):
            examined(own, positives, teacher, audit)
    return audit.report(len(QUERIES)), examined(found, positives, teacher, Audit(SOURCES, PER_QUERY))


def examined(found: Lists, positives, teacher, audit: Audit) -> tuple[Any, np.ndarray]:
    stretch = examine(candidates(found), SOURCES, known(positives), scored(teacher), 0)
    codes = verdicts(stretch, FilterConfig(), range(2, 9))
    chosen = draw(stretch, codes, PER_QUERY, "random")
    codes[chosen] = CODE["chosen"]
    audit.add(stretch, codes)
    return stretch, chosen


@settings(max_examples=40)
@given(audited_lists, relevant, teachers, st.integers(1, 3))
@example({"a": {"q0": LEVEL}, "b": {"q0": LEVEL}}, {query: {"d0"} for query in QUERIES}, TEACHER, 1)
def test_every_number_counted_again(found, positives, teacher, pieces):
    report, (stretch, chosen) = audited(found, positives, teacher, pieces)
    rows = stretch.to_dict("records")
    window = [row for row in rows if 2 <= row["rank"] < 9]
    taken = [rows[place] for place in chosen]
    shares = report["false_negatives"]

    def is_positive(row) -> bool:
        return row["doc_id"] in positives[row["query_id"]]

    def lowest(row) -> float | None:
        known_ = [teacher.get((row["query_id"], doc)) for doc in positives[row["query_id"]]]
        return None if None in known_ else min(known_)

    assert (shares["judged_relevant"] or {"count": 0})["count"] == sum(map(is_positive, window))
    if window:
        assert shares["judged_relevant"]["of"] == len(window)
    for name, some in (("teacher_above_positive", window), ("chosen_teacher_above_positive", taken)):
        asked = [row for row in some if not is_positive(row) and lowest(row) is not None]
        asked = [row for row in asked if (row["query_id"], row["doc_id"]) in teacher]
        above = [row for row in asked if teacher[row["query_id"], row["doc_id"]] > lowest(row)]
        assert shares[name] is None if not asked else shares[name] == {
            "count": len(above), "of": len(asked), "share": round(len(above) / len(asked), 6),
        }  # fmt: skip
    assert report["negatives"] == len(taken)
    have = [sum(row["query_id"] == query for row in taken) for query in QUERIES]
    assert report["queries_short"] == sum(count < PER_QUERY for count in have)
    assert report["queries_without"] == have.count(0)
    for name in SOURCES:
        assert sum(report["verdicts"][name].values()) == sum(row["source"] == name for row in rows)
        assert report["verdicts"][name].get("chosen", 0) == sum(row["source"] == name for row in taken)
