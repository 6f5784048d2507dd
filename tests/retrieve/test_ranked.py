import gzip
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.retrieve import ranked

SCORES = [-2.5, -0.0, 0.0, 1.0, 1.0 + 2**-23, 3.0]

Rows = dict[tuple[str, str], float]

runs = st.dictionaries(
    st.tuples(
        st.sampled_from(["q1", "q10", "q2", "é"]), st.sampled_from(["a", "B", "d10", "d9", "ß", "\U0001d51e", "￿"])
    ),
    st.sampled_from(SCORES),
    min_size=1,
)


def table(rows: Rows) -> pa.Table:
    return pa.table(
        {
            "query_id": [query for query, _ in rows],
            "doc_id": [doc for _, doc in rows],
            "score": pa.array(list(rows.values()), pa.float32()),
        }
    )


def slow_order(rows: Rows) -> list[tuple[str, str, int]]:
    listed = []
    for query in sorted({query for query, _ in rows}):
        docs = [(-score, doc) for (name, doc), score in rows.items() if name == query]
        listed += [(query, doc, rank) for rank, (_, doc) in enumerate(sorted(docs), start=1)]
    return listed


def listed(found: pa.Table) -> list[tuple[str, str, int]]:
    return list(zip(*(found[name].to_pylist() for name in ("query_id", "doc_id", "rank")), strict=True))


@given(runs, st.randoms(use_true_random=False), st.integers(1, 8))
def test_the_order_is_by_query_then_score_then_document_whatever_order_comes_in(rows, random, depth):
    items = list(rows.items())
    random.shuffle(items)
    assert listed(ranked.order(table(dict(items)))) == slow_order(rows)
    assert listed(ranked.order(table(dict(items)), depth)) == [row for row in slow_order(rows) if row[2] <= depth]


def test_a_score_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        ranked.order(table({("q", "a"): math.nan}))


@given(rows=runs, suffix=st.sampled_from(["trec", "trec.gz"]))
def test_a_run_file_comes_back_in_the_same_order_and_any_tool_ranks_it_so(tmp_path_factory, rows, suffix):
    place = Place(str(tmp_path_factory.mktemp("run") / f"run.{suffix}"))
    found = ranked.order(table(rows))
    ranked.write_trec(place, found, tag="x")
    assert listed(ranked.read_trec(place)) == listed(found)
    data = place.read()
    lines = [line.split() for line in (gzip.decompress(data) if suffix.endswith("gz") else data).decode().splitlines()]
    run: dict[str, dict[str, float]] = {}
    for query, zero, doc, _, score, tag in lines:
        assert (zero, tag) == ("Q0", "x")
        run.setdefault(query, {})[doc] = float(score)
    # trec_eval itself is the judge: the document we rank first must be its first, the last its last.
    for query, doc, rank in listed(found):
        value = pytrec_eval.RelevanceEvaluator({query: {doc: 1}}, {"recip_rank"}).evaluate(run)[query]["recip_rank"]
        assert value == pytest.approx(1 / rank)


def test_scores_of_a_run_file_fall_strictly_through_a_long_tie_and_into_what_follows(tmp_path: Path):
    one = np.float32(1)
    scores = [one] * 50 + [np.nextafter(one, np.float32(0), dtype=np.float32)] * 3 + [np.float32(0.5)]
    rows = {("q", f"d{row:02d}"): float(score) for row, score in enumerate(scores)}
    place = Place(str(tmp_path / "run.trec"))
    ranked.write_trec(place, ranked.order(table(rows)), tag="x")
    written = np.array([float(line.split()[4]) for line in place.read().decode().splitlines()], dtype=np.float32)
    assert (np.diff(written) < 0).all()
    assert written[0] == 1 and written[-1] == np.float32(0.5)


def test_the_rank_column_of_beir_is_not_believed(tmp_path: Path):
    (tmp_path / "run").write_text("q Q0 b 0 0.5 beir\nq Q0 a 0 0.5 beir\n\nq Q0 c 0 7 beir\n")
    assert listed(ranked.read_trec(Place(str(tmp_path / "run")))) == [("q", "c", 1), ("q", "a", 2), ("q", "b", 3)]


@given(rows=runs)
def test_the_other_rule_of_ties_is_that_of_trec_eval_given_the_scores(tmp_path_factory, rows):
    """trec_eval ranks the tied scores by itself; its rank of every document is ours."""
    path = tmp_path_factory.mktemp("run") / "run.trec"
    path.write_text("".join(f"{query} Q0 {doc} 0 {score!r} x\n" for (query, doc), score in rows.items()))
    run: dict[str, dict[str, float]] = {}
    for (query, doc), score in rows.items():
        run.setdefault(query, {})[doc] = score
    for query, doc, rank in listed(ranked.read_trec(Place(str(path)), "trec_eval")):
        value = pytrec_eval.RelevanceEvaluator({query: {doc: 1}}, {"recip_rank"}).evaluate(run)[query]["recip_rank"]
        assert value == pytest.approx(1 / rank)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("q Q0 a 1 0.5", r"5 columns instead of 6 \(query Q0 document rank score tag\)"),
        ("q Q0 a 1 much x", "'much' is no number"),
        ("q Q0 z 1 1 x", "'z' stands twice for query 'q'"),
        ("q Q0 a 1 nan x", "finite"),
        ("q Q0 a 1 1e39 x", "finite in single precision"),
    ],
)
def test_a_bad_line_of_a_run_is_named(tmp_path: Path, line: str, complaint: str):
    (tmp_path / "run").write_text(f"q Q0 z 1 1.0 x\n{line}\n")
    with pytest.raises(UserError, match=rf"run, line 2: .*{complaint}"):
        ranked.read_trec(Place(str(tmp_path / "run")))


@pytest.mark.parametrize("read", [ranked.read_trec, ranked.first_tag])
def test_a_file_without_a_line_is_no_run(tmp_path: Path, read):
    (tmp_path / "run").write_text("\n \n")
    with pytest.raises(UserError, match=r"run: no line in it; .*query Q0 document rank score tag"):
        read(Place(str(tmp_path / "run")))
