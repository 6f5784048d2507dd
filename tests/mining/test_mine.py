"""Mining as a step: lists are mixed, a file's candidates and near-duplicates are held against the corpus."""

import json
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.corpora.duplicates import SHINGLE, signatures
from midmask.corpora.opening import write_lines
from midmask.corpora.pydocs import plain_words
from midmask.errors import UserError
from midmask.exchange.negatives_files import HardNegatives, line_of, read_negatives_file
from midmask.mining.known import NEAR_DUPLICATES, Groups, Known, NearDuplicatesConfig
from midmask.mining.listed import ReadNegativesConfig, find_listed, read_negatives, stretches
from midmask.mining.mine import DrawQueriesConfig, MineConfig, draw_queries, draw_subset, mine
from midmask.mining.negatives import CANDIDATES, FilterConfig
from midmask.retrieve import ranked
from midmask.retrieve.searched_queries import judged_queries
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import write_table
from tests.support.retrieve.collection import made, ranking, write_parts

CONFIG = MineConfig(depth=25, per_query=6)


def rows_of(place: Place) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(place.uri).to_pylist()
    return rows


@pytest.fixture(scope="module")
def given(inputs, tmp_path_factory) -> dict[str, Artifact]:
    """Inputs of mining."""
    root = Place(str(tmp_path_factory.mktemp("given")))
    alike = made(NEAR_DUPLICATES, NearDuplicatesConfig(), inputs, root / "alike")
    return {"ranked": ranking(inputs, root / "ranking"), "corpus": inputs["corpus"], "near_duplicates": alike}


def test_the_files_agree_and_hold_no_positive_nor_its_copy(inputs, given, out):
    result = mine(CONFIG, given, out)
    positives: dict[str, set[str]] = {}
    for row in rows_of(inputs["corpus"].place / "qrels.parquet"):
        positives.setdefault(row["query_id"], set()).add(row["doc_id"])
    docs = inputs["corpus"].place / "docs"
    texts = {row["doc_id"]: row["text"].lower().split() for name in docs.names() for row in rows_of(docs / name)}
    lists = ranked.read(given["ranked"].place / "ranked" / "train.parquet")
    listed = {(row["query_id"], row["doc_id"]): row for row in lists.to_pylist()}
    rows = rows_of(out / "negatives.parquet")
    for row in rows:
        source = listed[row["query_id"], row["doc_id"]]
        assert (row["rank"], row["score"], row["source"]) == (source["rank"], source["score"], "dense-encoder")
        assert texts[row["doc_id"]] not in [texts[doc_id] for doc_id in positives[row["query_id"]]]
    lines = list(read_negatives_file(out / "negatives.jsonl.gz"))
    written = [(query, doc) for query, _, systems in lines for doc in systems["dense-encoder"]]
    assert written == [(row["query_id"], row["doc_id"]) for row in rows]
    assert {"negatives": len(rows), "queries_short": 0, "queries_without": 0}.items() <= result.items()
    assert len(rows) == 6 * 30


def scores_for(given: dict[str, Artifact], place: Place, lacking: tuple[str, str] | None = None) -> Artifact:
    """A teacher that scores every listed passage and positive of the train split by a hash of both ids."""
    listed = ranked.read(given["ranked"].place / "ranked" / "train.parquet").select(["query_id", "doc_id"])
    qrels = pq.read_table((given["corpus"].place / "qrels.parquet").uri).select(["query_id", "doc_id"])
    pairs = {(row["query_id"], row["doc_id"]) for row in pa.concat_tables([listed, qrels]).to_pylist()} - {lacking}
    hashed = {(query, doc): zlib.crc32(f"{query} {doc}".encode()) % 100 / 10 for query, doc in sorted(pairs)}
    rows = [{"query_id": query, "doc_id": doc, "score": score} for (query, doc), score in hashed.items()]
    with (place / "scores.parquet").writing() as stream:
        pq.write_table(pa.Table.from_pylist(rows), stream, row_group_size=70)
    return Artifact(place, {"fingerprint": "teacher", "result": {}})


def test_a_teachers_margin_holds_and_its_scores_are_told(given, out, tmp_path):
    scores = scores_for(given, Place(str(tmp_path / "scores")))
    config = MineConfig(depth=25, per_query=4, filters=FilterConfig(teacher_margin=3.0))
    result = mine(config, {**given, "scores": scores}, out)
    table = {(row["query_id"], row["doc_id"]): row["score"] for row in rows_of(scores.place / "scores.parquet")}
    qrels = rows_of(given["corpus"].place / "qrels.parquet")
    positive = {row["query_id"]: table[row["query_id"], row["doc_id"]] for row in qrels}
    rows = rows_of(out / "negatives.parquet")
    assert len(rows) == result["negatives"] > 30
    for row in rows:
        assert row["teacher_score"] == pytest.approx(table[row["query_id"], row["doc_id"]])
        assert row["teacher_score"] <= positive[row["query_id"]] - 3.0 + 1e-5
        assert row["verdict"] == "chosen"
    audit = (out / "audit.json").read_json()
    (by_rule,) = audit["verdicts"].values()
    assert by_rule.keys() - {"chosen", "not_drawn"} == {"positive", "near_duplicate", "teacher_margin"}
    assert audit["false_negatives"]["chosen_teacher_above_positive"]["count"] == 0
    assert audit["false_negatives"]["teacher_above_positive"]["count"] > 0
    assert audit["negatives"] == len(rows)


def test_a_margin_needs_a_score_of_every_candidate(given, out, tmp_path):
    config = MineConfig(depth=25, filters=FilterConfig(teacher_margin=1.0))
    with pytest.raises(UserError, match="query 'q1' has no teacher score for passage"):
        mine(config, given, out)
    listed = ranked.read(given["ranked"].place / "ranked" / "train.parquet").to_pylist()
    lacking = next((row["query_id"], row["doc_id"]) for row in listed if row["rank"] == 20)
    inputs = {**given, "scores": scores_for(given, Place(str(tmp_path / "scores")), lacking)}
    with pytest.raises(UserError, match=f"query {lacking[0]!r} has no teacher score for passage {lacking[1]!r}"):
        mine(config, inputs, out)


def test_several_lists_are_mixed_and_a_files_systems_are_lists_of_their_own(given, inputs, out, tmp_path):
    every = ranked.read(given["ranked"].place / "ranked" / "train.parquet")["doc_id"].unique().to_pylist()
    with write_lines(Place(str(tmp_path / "hard.jsonl"))) as stream:
        for query in range(40):
            stream.write(line_of(HardNegatives(f"q{query}", [], {"bm25": every[:20], "tas-b": every[10:40]})))
    config = ReadNegativesConfig(file=str(tmp_path / "hard.jsonl"))
    result = read_negatives(config, inputs, Place(str(tmp_path / "given")))
    file = Artifact(Place(str(tmp_path / "given")), {"fingerprint": "file", "config": {}, "result": result})
    config = MineConfig(depth=25, per_query=15)
    assert mine(config, {**given, "ranked1": file}, out)["source"] == "dense-encoder, bm25, tas-b"
    rows = rows_of(out / "negatives.parquet")
    for query in {row["query_id"] for row in rows}:
        some = [row for row in rows if row["query_id"] == query]
        assert len({row["doc_id"] for row in some}) == len(some) == 15
    assert {row["source"] for row in rows} == {"dense-encoder", "bm25", "tas-b"}
    assert {row["score"] for row in rows if row["source"] == "bm25"} == {None}
    assert len(rows) == 15 * 30
    with pytest.raises(UserError, match="the list 'bm25' has no scores"):
        mine(MineConfig(filters=FilterConfig(relative_margin=0.05)), {**given, "ranked": file}, out)


def test_lists_of_one_name_are_told_apart_and_none_may_come_twice(given, out):
    again = Artifact(given["ranked"].place, {**given["ranked"].record, "fingerprint": "deeper"})
    mined = mine(CONFIG, {**given, "ranked1": again}, out)
    assert mined["source"] == f"dense-encoder@{given['ranked'].fingerprint}, dense-encoder@deeper"
    with pytest.raises(UserError, match="is given twice"):
        mine(CONFIG, {**given, "ranked1": given["ranked"]}, out)


@pytest.fixture
def corpus(tmp_path) -> Artifact:
    return write_parts(
        Place(str(tmp_path / "corpus")),
        docs=[(f"{row}", "", f"text {row}") for row in range(300)],
        queries=[(f"{row}", "x") for row in range(50)],
        qrels=[("train" if row % 5 else "dev", f"{row}", f"{row}", 1) for row in range(50)],
    )


def file_of(folder: Path, lines: list[dict[str, object]]) -> str:
    (folder / "hard.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder / "hard.jsonl")


def taken(out: Place) -> list[tuple[str, str, int, str]]:
    tables = [pq.read_table((out / "lists" / name).uri).to_pylist() for name in (out / "lists").names()]
    return [(row["query_id"], row["doc_id"], row["rank"], row["source"]) for rows in tables for row in rows]


def test_every_system_is_a_source_with_its_ranks(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("midmask.mining.listed.SORTED_AT_ONCE", 7)
    rows = (31, 4, 22, 8, 15, 16, 23, 42, 3, 41)
    lines = [{"qid": row, "pos": [row], "neg": {"bm25": [row + 50, row + 51], "tas-b": [row + 99]}} for row in rows]
    out = Place(str(tmp_path / "out"))
    result = read_negatives(ReadNegativesConfig(file=file_of(tmp_path, lines)), {"corpus": corpus}, out)
    assert result == {"systems": ["bm25", "tas-b"], "queries": 10, "candidates": 30, "refused": {}}
    listed = [(str(line["qid"]), system, docs) for line in lines for system, docs in line["neg"].items()]
    expected = [(query, str(doc), rank, name) for query, name, docs in listed for rank, doc in enumerate(docs, start=1)]
    assert sorted(taken(out)) == sorted(expected)


def test_what_cannot_be_a_negative_is_counted_and_kept_to_be_looked_at(corpus, tmp_path):
    lines = [{"qid": 1, "pos": [1], "neg": {"a": [50, 1, 50, 51]}}]
    out = Place(str(tmp_path / "out"))
    result = read_negatives(ReadNegativesConfig(file=file_of(tmp_path, lines)), {"corpus": corpus}, out)
    refused = {"positive of its line": "1", "repeated": "50"}
    assert result["refused"] == dict.fromkeys(refused, 1) and result["candidates"] == 2
    assert taken(out) == [("1", "50", 1, "a"), ("1", "51", 4, "a")]
    kept = [json.loads(line) for line in (out / "quarantine.jsonl").read().decode().splitlines()]
    assert {line["kind"]: line["doc_id"] for line in kept} == refused


@pytest.mark.parametrize(
    ("line", "said"),
    [({"qid": 1, "pos": [], "neg": {"a": [999]}}, "unknown passage '999'.*take such ids out of the file"),
     ({"qid": 777, "pos": [], "neg": {"a": [3]}}, "unknown query '777'"),
     ({"qid": 2, "pos": [], "neg": {"a": [3]}}, "query '2' stands on two lines")],
)  # fmt: skip
def test_a_file_of_another_collection_is_refused(corpus, tmp_path, line, said):
    file = file_of(tmp_path, [{"qid": 2, "pos": [2], "neg": {"a": [3]}}, line])
    with pytest.raises(UserError, match=said):
        read_negatives(ReadNegativesConfig(file=file), {"corpus": corpus}, Place(str(tmp_path / "out")))


def test_lists_are_read_some_queries_at_a_time_in_whatever_files_they_lie(corpus, tmp_path, monkeypatch):
    """Files whose queries overlap, row groups of two rows; scores in any order."""
    rows = [(f"{query}", f"{doc}", doc + 1, None, "a") for query in range(50) for doc in range(query % 4)]
    draw, place, names = random.Random(3), Place(str(tmp_path / "lists")), [f"{query}" for query in range(50)]
    draw.shuffle(rows)
    columns = dict(zip(CANDIDATES.names, zip(*rows, strict=True), strict=True))
    table = pa.table({name: list(column) for name, column in columns.items()}, schema=CANDIDATES)
    for number, part in enumerate((table.slice(0, 30), table.slice(30))):
        write_table(part.sort_by("query_id"), place / "lists" / f"{number}.parquet", row_group_size=2)
    write_table(table.select(["query_id", "doc_id", "score"]), place / "scores.parquet", row_group_size=2)
    listed = find_listed([Artifact(place, {"fingerprint": "f", "result": {"systems": ["a"]}})])
    monkeypatch.setattr("midmask.mining.listed.QUERIES_AT_ONCE", 7)
    for depth in (2, None):
        wanted = sorted(names)[:45]
        found = []
        for some, scores in stretches(listed, Artifact(place, {}), wanted, "train", depth):
            queries = set(some["query_id"].to_pylist())
            assert set(scores["query_id"].to_pylist()) == queries and len(queries) <= 7
            found += [(row["query_id"], row["doc_id"]) for row in some.to_pylist()]
        kept = [row for row in rows if row[0] in wanted and (depth is None or row[2] <= depth)]
        assert sorted(found) == sorted(row[:2] for row in kept)


def test_a_subset_of_queries_is_drawn_once_and_saved(corpus, tmp_path):
    names = [f"q{row}" for row in range(1000)]
    ten, hundred = draw_subset(names, 10, 0), draw_subset(names[::-1], 100, 0)
    assert ten == hundred[:10] and len(set(hundred)) == 100
    assert not set(ten) & set(draw_subset(names, 10, 1)) or ten != draw_subset(names, 10, 1)
    low = sum(int(name[1:]) < 500 for name in draw_subset(names, 500, 3))
    assert abs(low - 250) < 5 * 7.9, "half of 500 draws, five deviations of the hypergeometric"
    out = Place(str(tmp_path / "out"))
    assert draw_queries(DrawQueriesConfig(count=12), {"corpus": corpus}, out) == {"queries": 12}
    saved = pq.read_table((out / "queries.parquet").uri)["query_id"].to_pylist()
    assert (out / "queries.txt").read().decode().splitlines() == saved
    assert set(saved) <= set(judged_queries(corpus, "train", judged="relevant")) and len(set(saved)) == 12
    with pytest.raises(UserError, match="queries = 41: there are 40 to draw from"):
        draw_queries(DrawQueriesConfig(count=41), {"corpus": corpus}, Place(str(tmp_path / "x")))


WORDS = [f"w{number}" for number in range(3000)]


def jaccard(one: str, other: str) -> float:
    texts = [plain_words(text) for text in (one, other)]
    left, right = ({tuple(text[at : at + SHINGLE]) for at in range(max(1, len(text) - SHINGLE + 1))} for text in texts)
    return len(left & right) / len(left | right)


def varied(text: str, changes: int, draw: random.Random) -> str:
    words = text.split()
    for place in draw.sample(range(len(words)), changes):
        words[place] = draw.choice(WORDS)
    return " ".join(words)


@pytest.fixture(scope="module")
def copies(tmp_path_factory) -> tuple[Artifact, dict[str, str]]:
    """40 texts of 80 words, each with five variants; text 0 of each is relevant to a query, in some split."""
    draw = random.Random(5)
    docs = {}
    for number in range(40):
        text = " ".join(draw.choices(WORDS, k=80))
        docs[f"d{number}_0"] = text
        docs |= {f"d{number}_{changes}": varied(text, changes, draw) for changes in (1, 2, 4, 8)}
        docs[f"d{number}_x"] = f"  {text.upper()}.\n"
    ids = draw.sample(sorted(docs), len(docs))
    place = Place(str(tmp_path_factory.mktemp("corpus")))
    judged = [("train" if number % 2 else "test", f"q{number}", f"d{number}_0", 1 + number % 2) for number in range(40)]
    artifact = write_parts(
        place,
        docs=[(doc_id, "", docs[doc_id]) for doc_id in ids],
        queries=[(f"q{number}", "x") for number in range(41)],
        qrels=[*judged, ("train", "q0", "d39_0", 0), ("dev", "q40", "d1_0", 1), ("dev", "q40", "d2_0", 1)],
    )
    return artifact, docs


def test_what_is_clearly_alike_is_found_for_judgements_of_all_splits_but_of_grade_0(copies, tmp_path):
    """The estimate of 96 hashes deviates by 0.05: four times that on either side leaves no doubt."""
    artifact, docs = copies
    out = Place(str(tmp_path))
    assert NEAR_DUPLICATES(NearDuplicatesConfig(), {"corpus": artifact}, out)["positives"] == 40
    known = Known.of(artifact, out, 0.8).of_queries(pa.array([f"q{number}" for number in range(40)]))
    found = {(int(row["query_id"][1:]), row["doc_id"]) for row in known.alike.to_pylist()}
    alike = 0
    for number in range(40):
        for doc_id, text in docs.items():
            similarity = jaccard(docs[f"d{number}_0"], text)
            if similarity > 0.97 or similarity < 0.6:
                assert ((number, doc_id) in found) == (similarity > 0.97), (number, doc_id, similarity)
                alike += similarity > 0.97
    assert alike >= 80, "every text and its copy"
    known = Known.of(artifact, out, 1.0).of_queries(pa.array(["q0", "q1", "q40", "unknown"]))
    relevant = [("q0", "d0_0"), ("q1", "d1_0"), ("q40", "d1_0"), ("q40", "d2_0")]
    assert sorted(tuple(row.values()) for row in known.relevant.to_pylist()) == relevant
    copies_too = [(query, doc_id.replace("_0", end)) for query, doc_id in relevant for end in ("_0", "_x")]
    assert sorted(tuple(row.values()) for row in known.alike.select(["query_id", "doc_id"]).to_pylist()) == copies_too


def test_pairs_are_those_that_agree_in_half_of_all_hashes():
    """Against every pair, compared: all that agree in three quarters are found, and nothing below half."""
    draw = random.Random(0)
    base = [" ".join(draw.choices(WORDS, k=40)) for _ in range(30)]
    others = [varied(draw.choice(base), changes, draw) for changes in (0, 1, 2, 3, 6) for _ in range(40)]
    left, right = signatures(base), signatures(others)
    agreement = (right[:, None, :] == left[None, :, :]).mean(axis=2)
    row, group, similarity = Groups(left).like(right)
    np.testing.assert_allclose(similarity, agreement[row, group], atol=1e-6)
    found = set(zip(row.tolist(), group.tolist(), strict=True))
    assert {tuple(pair) for pair in np.argwhere(agreement >= 0.75).tolist()} <= found
    assert found <= {tuple(pair) for pair in np.argwhere(agreement >= 0.5).tolist()}
