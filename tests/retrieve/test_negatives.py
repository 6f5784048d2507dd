import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.retrieve import ranked
from midmask.retrieve.negatives import Choice, Known, choose, jsonl_lines, known_of, read_jsonl, shortfall, twins_of
from tests.retrieve.collection import write_parts

DOCS = [f"d{row:02d}" for row in range(30)]
QUERIES = [f"q{row}" for row in range(4)]


def ranking(lists: dict[str, list[str]]) -> pa.Table:
    rows = [(query, doc, -float(place)) for query, docs in lists.items() for place, doc in enumerate(docs)]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    return ranked.order(
        pa.table(
            [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.string()), pa.array(columns[2], pa.float32())],
            names=["query_id", "doc_id", "score"],
        )
    )


rankings = st.dictionaries(
    st.sampled_from(QUERIES), st.lists(st.sampled_from(DOCS), unique=True, max_size=30), min_size=1
)
relevant = st.dictionaries(st.sampled_from(QUERIES), st.frozensets(st.sampled_from(DOCS), max_size=6))
copies = st.dictionaries(st.sampled_from(DOCS), st.frozensets(st.sampled_from(DOCS), max_size=3))


@settings(deadline=None)
@given(rankings, relevant, copies, st.integers(0, 3), st.integers(1, 10), st.integers(0, 25), st.integers(1, 12))
def test_no_negative_is_a_positive_or_its_copy_and_as_many_are_taken_as_can_be(
    lists, positives, twins, seed, low, more, per_query
):
    known = Known(positives, twins)
    found = choose(ranking(lists), known, Choice(per_query, low, low + more, seed), "s")
    rows = {query: [] for query in lists}
    for row in found.to_pylist():
        rows[row["query_id"]].append(row)
        assert lists[row["query_id"]][row["rank"] - 1] == row["doc_id"]
        assert row["score"] == -float(row["rank"] - 1) and row["source"] == "s"
    for query, docs in lists.items():
        mine = positives.get(query, frozenset())
        forbidden = set(mine) | {twin for doc in mine for twin in twins.get(doc, ())}
        allowed = [doc for doc in docs[low - 1 : low + more] if doc not in forbidden]
        chosen = [row["doc_id"] for row in rows[query]]
        assert set(chosen) <= set(allowed) and len(set(chosen)) == len(chosen) == min(per_query, len(allowed))
        assert [row["rank"] for row in rows[query]] == sorted(row["rank"] for row in rows[query])


def test_a_querys_negatives_do_not_depend_on_the_other_queries_and_follow_the_seed():
    lists = {query: DOCS for query in QUERIES}
    nothing = Known({}, {})
    together = choose(ranking(lists), nothing, Choice(5, 1, 30, 0), "s").to_pylist()
    alone = choose(ranking({"q2": DOCS}), nothing, Choice(5, 1, 30, 0), "s").to_pylist()
    assert [row for row in together if row["query_id"] == "q2"] == alone
    by_query = {query: tuple(row["doc_id"] for row in together if row["query_id"] == query) for query in QUERIES}
    assert len(set(by_query.values())) > 1, "every query draws the same ranks"
    assert choose(ranking(lists), nothing, Choice(5, 1, 30, 1), "s").to_pylist() != together


def test_every_allowed_rank_is_drawn_about_equally_often():
    lists = {f"q{row}": DOCS for row in range(3000)}
    found = choose(ranking(lists), Known({}, {}), Choice(6, 11, 30, 0), "s")["rank"].to_pylist()
    counts = [found.count(rank) for rank in range(1, 31)]
    assert counts[:10] == [0] * 10
    # Each of 20 ranks is drawn with probability 6/20 in 3000 queries: 900 +- 25, five sigma.
    assert all(abs(count - 900) < 126 for count in counts[10:])


def test_judgements_of_all_splits_count_and_grade_0_does_not_protect(tmp_path: Path):
    corpus = write_parts(
        Place(str(tmp_path)),
        docs=[("a", "", "one two"), ("b", "", "ONE  two\n"), ("c", "", "three"), ("d", "", "one")],
        queries=[("q", "x")],
        qrels=[("train", "q", "a", 2), ("test", "q", "c", 1), ("train", "q", "d", 0)],
    )
    assert twins_of(corpus.place) == {"a": frozenset({"b"}), "b": frozenset({"a"})}
    assert known_of(corpus).refused("q") == {"a", "b", "c"}
    assert known_of(corpus).refused("another") == frozenset()


def test_queries_with_too_few_are_counted():
    found = choose(ranking({"q0": DOCS, "q1": DOCS[:2]}), Known({}, {}), Choice(5, 1, 30, 0), "s")
    assert shortfall(found, ["q0", "q1", "q2"], 5) == {"queries_short": 2, "queries_without": 1}


def test_the_jsonl_layout_comes_back(tmp_path: Path):
    found = choose(
        ranking({"q0": DOCS, "7": ["d01", "ü"]}), Known({"7": frozenset({"d01"})}, {}), Choice(3, 1, 9, 0), "s"
    )
    other = choose(ranking({"7": ["d05"]}), Known({}, {}), Choice(3, 1, 9, 0), "bm25")
    both = pa.concat_tables([found, other]).sort_by([("query_id", "ascending"), ("rank", "ascending")])
    place = Place(str(tmp_path / "negatives.jsonl.gz"))
    place.write(
        gzip.compress("".join(jsonl_lines(both, {"7": frozenset({"d01"}), "q0": frozenset({"z", "y"})})).encode())
    )
    first, second = read_jsonl(place)
    assert first == ("7", ["d01"], {"bm25": ["d05"], "s": ["ü"]})
    assert second[:2] == ("q0", ["y", "z"]) and len(second[2]["s"]) == 3


def test_ids_of_the_released_file_are_numbers(tmp_path: Path):
    line = {"qid": 571, "pos": [17], "neg": {"bm25": [1, 2], "msmarco-distilbert-base-tas-b": ["3"]}}
    (tmp_path / "x.jsonl").write_text(json.dumps(line) + "\n\n")
    assert list(read_jsonl(Place(str(tmp_path / "x.jsonl")))) == [
        ("571", ["17"], {"bm25": ["1", "2"], "msmarco-distilbert-base-tas-b": ["3"]})
    ]


@pytest.mark.parametrize(
    "line",
    ['{"qid": 1, "pos": "17", "neg": {}}', '{"qid": 1, "pos": [1]}', '{"qid": 1, "pos": [1], "neg": [2]}', "{",
     '{"qid": null, "pos": [1], "neg": {}}', '{"qid": 1, "pos": [[1]], "neg": {}}', "[]"],
)  # fmt: skip
def test_a_line_of_another_layout_is_named(tmp_path: Path, line: str):
    (tmp_path / "x.jsonl").write_text('{"qid": 1, "pos": [1], "neg": {}}\n' + line + "\n")
    with pytest.raises(UserError, match=r"x.jsonl, line 2: .*wanted is"):
        list(read_jsonl(Place(str(tmp_path / "x.jsonl"))))
