import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.identity import fingerprint
from midmask.retrieve import ranked
from midmask.retrieve.mine import MineConfig, mine
from midmask.retrieve.hard_negatives_file import read_hard_negatives
from tests.retrieve.collection import ranking

CONFIG = MineConfig(depth=25, per_query=6)


@pytest.fixture(scope="module")
def given(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Inputs of mining."""
    found = ranking(inputs, Place(str(tmp_path_factory.mktemp("ranking"))))
    return {"ranked": found, "corpus": inputs["corpus"]}


def test_the_files_agree_and_hold_no_positive_nor_its_copy(inputs, given, out):
    result = mine(CONFIG, given, out)
    qrels = pq.read_table((inputs["corpus"].place / "qrels.parquet").uri).to_pylist()
    texts = {
        row["doc_id"]: " ".join(row["text"].split()).lower()
        for name in (inputs["corpus"].place / "docs").names()
        for row in pq.read_table((inputs["corpus"].place / "docs" / name).uri).to_pylist()
    }
    lists = ranked.read(given["ranked"].place / "ranked" / "train.parquet")
    listed = {(row["query_id"], row["doc_id"]): row for row in lists.to_pylist()}
    rows = pq.read_table((out / "negatives.parquet").uri).to_pylist()
    for row in rows:
        source = listed[row["query_id"], row["doc_id"]]
        assert (row["rank"], row["score"], row["source"]) == (source["rank"], source["score"], "dense-encoder")
        positives = [judged["doc_id"] for judged in qrels if judged["query_id"] == row["query_id"]]
        assert texts[row["doc_id"]] not in {texts[doc_id] for doc_id in positives}
    lines = list(read_hard_negatives(out / "negatives.jsonl.gz"))
    assert [(query, doc) for query, _, systems in lines for doc in systems["dense-encoder"]] == [
        (row["query_id"], row["doc_id"]) for row in rows
    ]
    assert {"negatives": len(rows), "queries_short": 0, "queries_without": 0}.items() <= result.items()
    assert len(rows) == 6 * 30


def test_only_the_wanted_queries_get_negatives(given, out):
    assert mine(CONFIG.model_copy(update={"max_queries": 3}), given, out)["queries"] == 3
    assert len(set(pq.read_table((out / "negatives.parquet").uri)["query_id"].to_pylist())) == 3


def test_queries_with_too_few_negatives_are_counted_not_dropped(given, out, caplog):
    result = mine(MineConfig(depth=5, per_query=5), given, out)
    rows = pq.read_table((out / "negatives.parquet").uri)["query_id"].to_pylist()
    short = sum(rows.count(f"q{row}") < 5 for row in range(40) if row % 4)
    assert result["queries_short"] == short > 0
    assert f"{short} queries have fewer than 5 negatives" in caplog.text


def test_only_runtime_fields_stay_out_of_the_fingerprint():
    assert fingerprint(CONFIG) == fingerprint(CONFIG.model_copy(update={"actors": 8, "threads": 4}))
    assert fingerprint(CONFIG) != fingerprint(CONFIG.model_copy(update={"per_query": 7}))


@pytest.mark.parametrize("ranks", [{"min_rank": 30}, {"max_rank": 26}, {"min_rank": 9, "max_rank": 8}])
def test_ranks_that_cannot_be_are_refused(ranks):
    with pytest.raises((UserError, ValidationError), match="min_rank <= max_rank <= depth"):
        MineConfig(depth=25, **ranks)


def test_what_was_not_ranked_cannot_be_mined(given, out):
    with pytest.raises(UserError, match=r"split 'trian'.*Known: dev, train\."):
        mine(MineConfig(split="trian"), given, out)
    with pytest.raises(UserError, match=r"no ranking of split 'dev'\. Known: train\."):
        mine(MineConfig(split="dev"), given, out)
