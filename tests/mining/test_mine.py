import zlib
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.exchange.hard_negatives_file import HardNegatives, line_of
from midmask.exchange.negatives_files import read_negatives_file
from midmask.mining.filters import FilterConfig
from midmask.mining.given_negatives import ReadNegativesConfig, read_negatives
from midmask.mining.mine import MineConfig, mine
from midmask.retrieve import ranked
from midmask.retrieve.lines import write_lines
from tests.support.retrieve.collection import ranking

CONFIG = MineConfig(depth=25, per_query=6)


def rows_of(place: Place) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(place.uri).to_pylist()
    return rows


@pytest.fixture(scope="module")
def given(inputs, tmp_path_factory) -> dict[str, Artifact]:
    """Inputs of mining."""
    found = ranking(inputs, Place(str(tmp_path_factory.mktemp("ranking"))))
    return {"ranked": found, "corpus": inputs["corpus"]}


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
    rows = [
        {"query_id": query, "doc_id": doc, "score": zlib.crc32(f"{query} {doc}".encode()) % 100 / 10}
        for query, doc in sorted(pairs)
    ]
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
        assert (row["verdict"], row["list"]) == ("chosen", given["ranked"].fingerprint)
    refused = rows_of(out / "refused.parquet")
    assert {row["verdict"] for row in refused} == {"positive", "near_duplicate", "teacher_margin"}
    assert sum(row["verdict"] == "teacher_margin" for row in refused) == 20
    audit = (out / "audit.json").read_json()
    assert audit["false_negatives"]["chosen_teacher_above_positive"]["count"] == 0
    assert audit["false_negatives"]["teacher_above_positive"]["count"] > 0
    assert audit["negatives"] == len(rows) and "teacher margin" in (out / "audit.md").read().decode()


def test_a_margin_needs_a_score_of_every_candidate(given, out, tmp_path):
    config = MineConfig(depth=25, filters=FilterConfig(teacher_margin=1.0))
    with pytest.raises(UserError, match=r"filters\.teacher_margin = 1 needs a teacher's scores"):
        mine(config, given, out)
    listed = ranked.read(given["ranked"].place / "ranked" / "train.parquet").to_pylist()
    lacking = next((row["query_id"], row["doc_id"]) for row in listed if row["rank"] == 20)
    inputs = {**given, "scores": scores_for(given, Place(str(tmp_path / "scores")), lacking)}
    with pytest.raises(UserError, match=f"query {lacking[0]!r} has no teacher score for passage {lacking[1]!r}"):
        mine(config, inputs, out)
    lenient = config.model_copy(update={"filters": FilterConfig(teacher_margin=1.0, unscored="refuse")})
    assert mine(lenient, inputs, out)["negatives"]
    (verdicts,) = (out / "audit.json").read_json()["verdicts"].values()
    assert verdicts["unscored"] == 1


def test_several_lists_are_mixed_and_a_files_systems_are_lists_of_their_own(given, inputs, out, tmp_path):
    """Five of each list, as in BEIR's training on msmarco-hard-negatives."""
    listed = ranked.read(given["ranked"].place / "ranked" / "train.parquet")
    every = listed["doc_id"].unique().to_pylist()
    with write_lines(Place(str(tmp_path / "hard.jsonl"))) as stream:
        for query in range(40):
            systems = {"bm25": every[:20], "tas-b": every[10:40]}
            stream.write(line_of(HardNegatives(f"q{query}", [], systems)))
    config = ReadNegativesConfig(file=str(tmp_path / "hard.jsonl"))
    result = read_negatives(config, inputs, Place(str(tmp_path / "given")))
    file = Artifact(Place(str(tmp_path / "given")), {"fingerprint": "file", "config": {}, "result": result})
    config = MineConfig(depth=25, per_query=15, per_source=5, choose="top")
    mined = mine(config, {**given, "ranked1": file}, out)
    assert mined["source"] == "dense-encoder, bm25, tas-b"
    rows = rows_of(out / "negatives.parquet")
    for query in {row["query_id"] for row in rows}:
        some = [row for row in rows if row["query_id"] == query]
        assert len({row["doc_id"] for row in some}) == len(some) == 15
        count = Counter(row["source"] for row in some)
        assert count["bm25"] == 5 and {row["score"] for row in some if row["source"] == "bm25"} == {None}
    assert len(rows) == 15 * 30
    with pytest.raises(UserError, match="the list 'bm25' has no scores"):
        mine(MineConfig(filters=FilterConfig(relative_margin=0.05)), {"ranked": file, "corpus": inputs["corpus"]}, out)


def test_lists_of_one_name_are_told_apart_and_none_may_come_twice(given, out):
    again = Artifact(given["ranked"].place, {**given["ranked"].record, "fingerprint": "deeper"})
    mined = mine(CONFIG, {**given, "ranked1": again}, out)
    assert mined["source"] == f"dense-encoder@{given['ranked'].fingerprint}, dense-encoder@deeper"
    (overlap,) = (out / "audit.json").read_json()["overlap"]
    assert overlap["jaccard"] == 1.0
    with pytest.raises(UserError, match="is given twice"):
        mine(CONFIG, {**given, "ranked1": given["ranked"]}, out)
