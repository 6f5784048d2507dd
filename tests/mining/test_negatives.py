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
from midmask.mining.known import KnownRelevant
from midmask.mining.mine import Audit
from midmask.mining.negatives import (
    CANDIDATES,
    VERDICTS,
    Choice,
    FilterConfig,
    NegativeList,
    Stretch,
    beyond_absolute,
    beyond_relative,
    draw,
    examine,
    negatives_table,
    refuse_unscored,
    verdicts,
)

SOURCES = [NegativeList("a", "fa", "Flat"), NegativeList("b", "fb")]

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


def known(positives: Sets, near: Sets | None = None) -> KnownRelevant:
    """near: positive -> the passages like it; every positive is a group of its own."""
    pairs = [(query, doc) for query, docs in positives.items() for doc in sorted(docs)]
    relevant_ = sorted({doc for _, doc in pairs})
    like = [(doc, group) for group, name in enumerate(relevant_) for doc in sorted((near or {}).get(name, set()))]
    groups = list(zip(relevant_, range(len(relevant_)), strict=True))
    near_tables = (table_of("doc_id group", rows) for rows in (groups, like))
    return KnownRelevant(table_of("query_id doc_id", pairs), *near_tables)


def table_of(columns: str, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    kinds = {"query_id": pa.string(), "doc_id": pa.string(), "group": pa.int32(), "score": pa.float32()}
    schema = pa.schema([(name, kinds[name]) for name in columns.split()])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def scored(scores: Pairs) -> pa.Table:
    return table_of("query_id doc_id score", [(*pair, score) for pair, score in sorted(scores.items())])


lists = lists_of(st.integers(-8, 8))
likes = st.dictionaries(st.sampled_from(DOCS), st.sets(st.sampled_from(DOCS), max_size=2), max_size=3)
margin = st.none() | st.integers(-4, 8).map(lambda value: value / 4)
others = dict.fromkeys(("teacher_margin", "max_score", "min_score", "absolute_margin"), margin)
rules = st.builds(FilterConfig, **others, relative_margin=st.none() | st.integers(0, 4).map(lambda value: value / 8))


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
        if any((query, positive) not in teacher for positive in positives):
            return "positive_unscored"
        if (query, doc) not in teacher:
            return "unscored"
        if teacher[query, doc] > min(teacher[query, positive] for positive in positives) - rule.teacher_margin:
            return "teacher_margin"
    if rule.max_score is not None and score > rule.max_score:
        return "max_score"
    if rule.min_score is not None and score < rule.min_score:
        return "min_score"
    asked = [value for value in (rule.absolute_margin, rule.relative_margin) if value is not None]
    if asked and any(positive not in listed for positive in positives):
        return "positive_not_ranked"
    lowest = min((listed[positive] for positive in positives if positive in listed), default=math.nan)
    if rule.absolute_margin is not None and score + rule.absolute_margin > lowest:
        return "absolute_margin"
    if rule.relative_margin is not None and score > lowest - abs(lowest) * rule.relative_margin:
        return "relative_margin"
    return "not_drawn"


@settings(max_examples=40)
@given(lists, relevant, likes, teachers, rules, st.integers(1, 3), st.integers(3, 8))
def test_every_candidate_gets_the_first_rule_that_refuses_it(found, positives, near, teacher, rule, low, more):
    ranks = range(low, low + more)
    table = candidates(found)
    verdict = verdicts(examine(table, SOURCES, known(positives, near), scored(teacher), seed=0).facts, rule, ranks)
    for row, code in zip(table.to_pylist(), verdict, strict=True):
        assert VERDICTS[code] == slow_verdict(found, row, positives[row["query_id"]], near, teacher, rule, ranks), row


def test_a_candidate_just_at_the_margin_may_be_a_negative():
    """As in sentence-transformers: refused where s + margin > p."""
    scores = np.array([0.75, 1.0, 1.25])
    assert beyond_absolute(scores, np.full(3, 1.5), 0.5).tolist() == [False, False, True]
    assert beyond_relative(scores, np.full(3, 2.0), 0.5).tolist() == [False, False, True]
    assert beyond_relative(np.array([-3.5, -3.0, -2.5]), np.full(3, -2.0), 0.5).tolist() == [False, False, True]


def slow_draw(rows: list[dict[str, Any]], priority: list[int], choice: Choice) -> list[int]:
    """The chosen of one query's allowed candidates, list after list."""

    def best(places: list[int], count: int) -> list[int]:
        return sorted(places, key=lambda place: (priority[place], place))[:count]

    pool: list[int] = []
    for source in ("a", "b"):
        taken = {rows[place]["doc_id"] for place in pool}
        own = [place for place, row in enumerate(rows) if row["source"] == source and row["doc_id"] not in taken]
        pool += own if choice.per_source is None else best(own, choice.per_source)
    return sorted(best(pool, choice.per_query))


@settings(max_examples=40)
@given(
    lists, relevant, st.integers(1, 6), st.none() | st.integers(1, 3), st.sampled_from(["random", "top"]),
    st.integers(0, 3),
)  # fmt: skip
def test_the_chosen_are_the_first_by_rank_or_by_a_draw(found, positives, per_query, per_source, how, seed):
    choice = Choice(per_query, per_source, how, False, seed)
    stretch = examine(candidates(found), SOURCES, known(positives), None, seed)
    verdict = verdicts(stretch.facts, FilterConfig(), range(1, 9))
    rows = candidates(found).to_pylist()
    priority = stretch.draw.tolist() if how == "random" else [row["rank"] for row in rows]
    expected = []
    for query in QUERIES:
        places = [place for place, row in enumerate(rows) if row["query_id"] == query]
        places = [place for place in places if rows[place]["doc_id"] not in positives[query]]
        own = slow_draw([rows[place] for place in places], [priority[place] for place in places], choice)
        expected += [rows[places[place]] for place in own]
    chosen = negatives_table(stretch, verdict, draw(stretch, verdict, choice)).to_pylist()
    assert [{name: row[name] for name in CANDIDATES.names} for row in chosen] == expected
    for row in chosen:
        assert (row["list"], row["index"]) == (("fa", "Flat") if row["source"] == "a" else ("fb", None))


def all_allowed(queries: list[str], choice: Choice, docs: list[str] = DOCS) -> list[dict[str, Any]]:
    lists = {"a": {query: [(doc, None) for doc in docs] for query in queries}}
    stretch = examine(candidates(lists), SOURCES, known({}), None, choice.seed)
    verdict = verdicts(stretch.facts, FilterConfig(), range(1, 100))
    rows: list[dict[str, Any]] = negatives_table(stretch, verdict, draw(stretch, verdict, choice)).to_pylist()
    return rows


def test_a_querys_negatives_do_not_depend_on_the_other_queries_and_follow_the_seed():
    together = all_allowed(QUERIES, Choice(5))
    assert [row for row in together if row["query_id"] == "q2"] == all_allowed(["q2"], Choice(5))
    by_query = {query: tuple(row["rank"] for row in together if row["query_id"] == query) for query in QUERIES}
    assert len(set(by_query.values())) > 1, "every query draws the same ranks"
    assert all_allowed(QUERIES, Choice(5, seed=1)) != together


def test_every_allowed_rank_is_drawn_about_equally_often():
    """Each of 20 ranks is drawn with probability 6/20 in 1,000 queries: 300 +- 14.5, five sigma."""
    docs = [f"d{row}" for row in range(20)]
    ranks = [row["rank"] for row in all_allowed([f"q{row}" for row in range(1000)], Choice(6), docs)]
    assert all(abs(ranks.count(rank) - 300) < 73 for rank in range(1, 21))


def test_with_replacement_every_query_that_has_any_gets_as_many_as_are_wanted():
    few = all_allowed(QUERIES, Choice(12, replacement=True), DOCS[:5])
    for query in QUERIES:
        names = [row["doc_id"] for row in few if row["query_id"] == query]
        assert len(names) == 12 and set(names) == set(DOCS[:5])
    assert len(all_allowed(QUERIES, Choice(12), DOCS[:5])) == 4 * 5
    assert all_allowed(QUERIES, Choice(5, replacement=True)) == all_allowed(QUERIES, Choice(5))


def test_a_margin_without_a_teachers_score_names_query_and_passage():
    lists = {"a": {"q0": [("d00", 2.0), ("d01", 1.0)]}}
    for scores, missing in (({("q0", "d00"): 1.0}, "passage 'd01'"), ({("q0", "d01"): 1.0}, "a relevant passage")):
        stretch = examine(candidates(lists), SOURCES, known({"q0": {"d00"}}), scored(scores), 0)
        verdict = verdicts(stretch.facts, FilterConfig(teacher_margin=0), range(1, 9))
        with pytest.raises(UserError, match=f"query 'q0' has no teacher score for {missing}"):
            refuse_unscored(stretch, verdict)


audited_lists = lists_of(st.integers(1, 40))
NAMES = [source.name for source in SOURCES]

PER_QUERY = 3
LEVEL = [("d0", 4.0), ("d1", 3.0), ("d2", 2.0), ("d3", 1.0)]
"""A list whose candidates the teacher puts level with the positive d0, above it and below it (`TEACHER`)."""
TEACHER = {("q0", doc): score for doc, score in (("d0", 1.0), ("d1", 1.0), ("d2", 2.0), ("d3", 0.0))}


def audited(found: Lists, positives: Sets, teacher: Pairs, pieces: int):
    """The audit over the queries in so many stretches; and the examined stretch of all."""
    audit = Audit(NAMES, PER_QUERY)
    for piece in range(pieces):
        own = {
            name: {query: docs for query, docs in queries.items() if int(query[1:]) % pieces == piece}
            for name, queries in found.items()
        }
        if any(own.values()):
            examined(own, positives, teacher, audit)
    return audit.report(len(QUERIES)), examined(found, positives, teacher, Audit(NAMES, PER_QUERY))


def examined(found: Lists, positives, teacher, audit: Audit) -> tuple[Stretch, np.ndarray, np.ndarray]:
    stretch = examine(candidates(found), SOURCES, known(positives), scored(teacher), 0)
    verdict = verdicts(stretch.facts, FilterConfig(), range(2, 9))
    chosen = draw(stretch, verdict, Choice(PER_QUERY))
    audit.add(stretch, verdict, chosen)
    return stretch, verdict, chosen


@settings(max_examples=40)
@given(audited_lists, relevant, teachers, st.integers(1, 3))
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
    for name in NAMES:
        assert sum(report["verdicts"][name].values()) == sum(row["source"] == name for row in rows)
        assert report["verdicts"][name].get("chosen", 0) == sum(row["source"] == name for row in taken)
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


def test_a_chosen_positive_ends_the_run():
    stretch = examine(candidates({"a": {"q0": [("d0", 2.0), ("d1", 1.0)]}}), SOURCES, known({"q0": {"d1"}}), None, 0)
    verdict = verdicts(stretch.facts, FilterConfig(), range(1, 9))
    with pytest.raises(ValueError, match="passage 'd1' is relevant to query 'q0'"):
        Audit(NAMES, 3).add(stretch, verdict, np.array([0, 1]))
