"""Ranked lists: their order, as run files, of the shards' parts, without the query itself; runs of other tools."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.corpora.writer import SELF_MATCHES, write_rows
from midmask.errors import UserError
from midmask.mining.known import NEAR_DUPLICATES, NearDuplicatesConfig
from midmask.mining.mine import MineConfig, mine
from midmask.retrieve import ranked
from midmask.retrieve.run_file import RunFileConfig, read_run, run_digest
from midmask.retrieve.searched_queries import without_self
from midmask.retrieve.units import merge, read_neighbours, write_neighbours
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.retrieve.collection import made, write_parts

DOCS = [f"d{number}" for number in range(8)]
SCORES = [-2.5, -0.0, 0.0, 1.0, 1.0 + 2**-23, 3.0]
QUERIES, NAMES = ["q1", "q10", "q2", "é"], ["a", "B", "d10", "d9", "ß", "\U0001d51e", "￿"]
Rows = dict[tuple[str, str], float]
runs = st.dictionaries(st.tuples(st.sampled_from(QUERIES), st.sampled_from(NAMES)), st.sampled_from(SCORES), min_size=1)


def table(rows: Rows) -> pa.Table:
    names = {"query_id": [query for query, _ in rows], "doc_id": [doc for _, doc in rows]}
    return pa.table({**names, "score": pa.array(list(rows.values()), pa.float32())})


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
        ranked.order(table({("q", "a"): np.nan}))


def assert_trec_eval_ranks_so(run: dict[str, dict[str, float]], found: pa.Table) -> None:
    """trec_eval itself is the judge: its rank of every document is ours."""
    for query, doc, rank in listed(found):
        value = pytrec_eval.RelevanceEvaluator({query: {doc: 1}}, {"recip_rank"}).evaluate(run)[query]["recip_rank"]
        assert value == pytest.approx(1 / rank)


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
    assert_trec_eval_ranks_so(run, found)


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
    path = tmp_path_factory.mktemp("run") / "run.trec"
    path.write_text("".join(f"{query} Q0 {doc} 0 {score!r} x\n" for (query, doc), score in rows.items()))
    run: dict[str, dict[str, float]] = {}
    for (query, doc), score in rows.items():
        run.setdefault(query, {})[doc] = score
    assert_trec_eval_ranks_so(run, ranked.read_trec(Place(str(path)), "trec_eval"))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("q Q0 a 1 0.5", r"5 columns instead of 6 \(query Q0 document rank score tag\)"),
     ("q Q0 a 1 much x", "'much' is no number"), ("q Q0 z 1 1 x", "'z' stands twice for query 'q'"),
     ("q Q0 a 1 nan x", "finite"), ("q Q0 a 1 1e39 x", "finite in single precision")],
)  # fmt: skip
def test_a_bad_line_of_a_run_is_named(tmp_path: Path, line: str, complaint: str):
    (tmp_path / "run").write_text(f"q Q0 z 1 1.0 x\n{line}\n")
    with pytest.raises(UserError, match=rf"run, line 2: .*{complaint}"):
        ranked.read_trec(Place(str(tmp_path / "run")))


def test_a_file_without_a_line_is_no_run(tmp_path: Path):
    (tmp_path / "run").write_text("\n \n")
    with pytest.raises(UserError, match=r"run: no line in it; .*query Q0 document rank score tag"):
        ranked.read_trec(Place(str(tmp_path / "run")))


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 12))
def test_merging_is_a_plain_sort_whatever_the_order_of_shards(seed: int, shards: int, depth: int):
    draw = np.random.default_rng(seed)
    values = np.array([-np.inf, -3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 0.5, 3e38], np.float32)
    scores = draw.choice(values, (2, shards, 6))
    rows = np.stack([draw.permutation(shards * 6).reshape(shards, 6) for _ in range(2)])
    rows[np.isneginf(scores)] = -1
    places = draw.permutation(shards * 6)
    parts = [(scores[:, shard], rows[:, shard]) for shard in range(shards)]
    merged = merge(parts, places, depth)
    for found in (merged, merge(parts[::-1], places, depth)):
        for query in range(2):
            pairs = zip(scores[query].ravel().tolist(), rows[query].ravel().tolist(), strict=True)
            best = sorted((pair for pair in pairs if pair[1] >= 0), key=lambda pair: (-pair[0], places[pair[1]]))
            best = best[:depth]
            missing = min(depth, shards * 6) - len(best)
            assert found[0][query].tolist() == [score for score, _ in best] + [-np.inf] * missing
            assert found[1][query].tolist() == [row for _, row in best] + [-1] * missing


def test_a_file_of_a_shard_keeps_every_bit(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "shard.npz"))
    scores, rows = np.array([[1 + 2**-23, -0.0, -np.inf]], np.float32), np.array([[2**40, 7, -1]])
    write_neighbours(place, (scores, rows), seconds=0.1)
    found = read_neighbours(place)
    assert found[0].tobytes() == scores.tobytes() and found[1].tobytes() == rows.tobytes()
    assert (found[0].dtype, found[1].dtype) == (np.float32, np.int64)
    assert found[2] == 0.1


def test_a_file_with_a_pickle_in_it_is_not_read(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "shard.npz"))
    pickled = np.array([0.5], dtype=object)
    np.savez(str(place), scores=pickled, rows=pickled, seconds=pickled)
    with pytest.raises(ValueError, match="allow_pickle"):
        read_neighbours(place)


@given(
    runs,
    st.sets(st.tuples(st.sampled_from([*QUERIES, "other"]), st.sampled_from(NAMES)), max_size=12),
    st.one_of(st.none(), st.integers(1, 5)),
)
def test_the_list_is_as_if_the_query_had_not_been_in_the_corpus(rows, pairs, depth) -> None:
    columns = [pa.array([pair[at] for pair in sorted(pairs)], pa.string()) for at in (0, 1)]
    kept, count = without_self(ranked.order(table(rows)), pa.table(columns, names=["query_id", "doc_id"]), depth)
    clean = {pair: score for pair, score in rows.items() if pair not in pairs}
    assert listed(kept) == [row for row in slow_order(clean) if row[2] <= (depth or len(rows))]
    assert kept.schema.equals(ranked.SCHEMA) and count == len(rows) - len(clean)
    assert all(rows[row["query_id"], row["doc_id"]] == row["score"] for row in kept.to_pylist())


def test_a_query_is_never_mined_as_its_own_negative(tmp_path: Path) -> None:
    """Query q1 stands first in its own list, and nothing else is in q2's."""
    docs = [(name, "", f"passage {name}") for name in ("q1", "q2", *DOCS)]
    queries = [("q1", "passage q1"), ("q2", "passage q2")]
    judged = [("train", "q1", "d0", 1), ("train", "q2", "d1", 1)]
    corpus = write_parts(Place(str(tmp_path / "corpus")), docs=docs, queries=queries, qrels=judged)
    itself = pa.table([["q1", "q2"], ["q1", "q2"]], schema=SELF_MATCHES)
    write_rows(itself, corpus.place / "self_matches.parquet", SELF_MATCHES)
    lists = Place(str(tmp_path / "ranked"))
    given = {("q1", "q1"): 4.0, ("q1", "d0"): 3.0, ("q1", "d3"): 2.0, ("q1", "q2"): 1.0, ("q2", "q2"): 1.0}
    ranked.write(lists / "ranked" / "train.parquet", [ranked.order(table(given))])
    given_lists = Artifact(lists, {"fingerprint": "lists", "result": {"source": "made up"}})
    out = Place(str(tmp_path / "out"))
    alike = made(NEAR_DUPLICATES, NearDuplicatesConfig(), {"corpus": corpus}, Place(str(tmp_path / "alike")))
    result = mine(MineConfig(depth=10), {"corpus": corpus, "ranked": given_lists, "near_duplicates": alike}, out)
    rows = pq.read_table((out / "negatives.parquet").uri).to_pylist()
    assert [(row["query_id"], row["doc_id"]) for row in rows] == [("q1", "d3"), ("q1", "q2")]
    assert result["queries_without"] == 1


SPLITS = {"dev": ("a", "b", "c"), "test": ("e", "f", "g", "h"), "test.hard": ("e",)}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_parts(
        Place(str(tmp_path_factory.mktemp("few"))),
        docs=[(doc, "", f"passage {doc}") for doc in DOCS],
        queries=[(query, "words") for query in "abcdefgh"],
        qrels=[(split, query, "d1", 1) for split, queries in SPLITS.items() for query in queries],
    )


def written(folder: Path, run: Mapping[str, Mapping[str, float]]) -> str:
    lines = [f"{query} Q0 {doc} 1 {score} x\n" for query, own in run.items() for doc, score in own.items()]
    (folder / "run.trec").write_text("".join(lines))
    return str(folder / "run.trec")


def test_the_lists_of_a_split_are_taken_and_everything_else_is_counted(corpus: Artifact, tmp_path: Path) -> None:
    tied = {"d5": 2.0, "d7": 2.0, "elsewhere": 2.0, "d1": 1.0}
    file = written(tmp_path, {"e": tied, "f": {"d0": 1.0}, "g": {"d0": 1.0, "elsewhere": 0.5}, "z": {"d3": 1, "y": 0}})
    for ties, order in (("midmask", ["d5", "d7", "elsewhere"]), ("trec_eval", ["elsewhere", "d7", "d5"])):
        config = RunFileConfig(split="test", ties=ties, file=file)
        out = Place(str(tmp_path / ties))
        result = read_run(config, {"corpus": corpus}, out)
        found = ranked.read(ranked.of_split(out, "test"))
        assert found["query_id"].to_pylist() == ["e"] * 4 + ["f", "g", "g"]
        assert found["doc_id"].to_pylist()[:4] == [*order, "d1"], "a document that nobody has keeps its rank"
        assert result["splits"] == {"test": {"queries": 3, "ranked": 7, "empty_slots": 0}}
        assert result["read"]["run"] == {
            **{"rows": 9, "queries": 4, "longest": 4, "left_out_queries": 1, "ties": ties},
            **{"unknown_documents": 2, "copies": 0},
        }


REFUSED = {
    "no query of the split": ({"a": {"d1": 1.0}, "b": {"d1": 1.0}}, r"2 of the \d of dev.*0 of the 4 of test.*--split"),
    "most queries of another": (
        {query: {"d1": 1.0} for query in "abce"},
        r"3 of the \d of dev.*1 of the 4 of test.*--split",
    ),
    "no judged query at all": ({"17": {"d1": 1.0}}, r"0 of the 4 of test.*--corpus"),
    "no document": ({"e": {"d77": 1.0}}, r"none of its documents, such as 'd77', is in words"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_run_of_something_else_is_refused_with_what_to_type(case: str, corpus: Artifact, tmp_path: Path) -> None:
    run, message = REFUSED[case]
    config = RunFileConfig(split="test", file=written(tmp_path, run))
    with pytest.raises(UserError, match=message):
        read_run(config, {"corpus": corpus}, Place(str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_the_digest_is_that_of_the_lines(tmp_path: Path) -> None:
    file = Path(written(tmp_path, {"e": {"d1": 1.0}}))
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(file.read_bytes(), 9))
    assert run_digest(file) == run_digest(packed)
    packed.write_bytes(gzip.compress(file.read_bytes())[:-9])
    with pytest.raises(UserError, match="broken gzip stream"):
        run_digest(packed)
    with pytest.raises(UserError, match=r"absent: there is no such file"):
        run_digest(tmp_path / "absent")
    assert run_digest(file) != run_digest(written(tmp_path, {"e": {"d1": 2.0}}))
