import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.identity import fingerprint
from midmask.retrieve import ranked
from midmask.retrieve.mine import MineConfig, mine, search_of
from midmask.retrieve.negatives import read_jsonl
from midmask.retrieve.search import ShardWorker, SplitSearch, merge, search_split
from midmask.retrieve.selection import fixed_sample, judged_queries
from tests.retrieve.collection import write_all

CONFIG = MineConfig(depth=25, per_query=6)
FILES = ("ranked.parquet", "negatives.parquet", "negatives.jsonl.gz")


def digests(out: Place) -> list[str]:
    return [hashlib.sha256((out / name).read()).hexdigest() for name in FILES]


def test_mining_ranks_by_the_encoders_inner_product(inputs, out):
    """Held against transformers one text at a time, in float64, and a plain sort."""
    import torch
    from transformers import AutoModel

    result = mine(CONFIG, inputs, out)
    model = AutoModel.from_pretrained(inputs["model"].place.local() / "model").double().eval()

    def vector(row) -> np.ndarray:
        with torch.inference_mode():
            return model(input_ids=torch.tensor([row])).last_hidden_state[0, 0].numpy()

    tokens = inputs["tokens"].place
    passages = pa.concat_tables(
        [pq.read_table((tokens / "passages" / name).uri) for name in (tokens / "passages").names()]
    ).to_pylist()
    vectors = {row["doc_id"]: vector(row["ids"]) for row in passages}
    queries = {row["query_id"]: row["ids"] for row in pq.read_table((tokens / "queries.parquet").uri).to_pylist()}
    found = ranked.read(out / "ranked.parquet").to_pylist()
    assert len(found) == 30 * 25 == result["ranked"]
    for query_id in ("q1", "q38"):
        scores = {doc_id: float(vector(queries[query_id]) @ vectors[doc_id]) for doc_id in vectors}
        listed = [row for row in found if row["query_id"] == query_id]
        np.testing.assert_allclose(
            [row["score"] for row in listed], sorted(scores.values(), reverse=True)[:25], rtol=1e-5
        )
        np.testing.assert_allclose(
            [row["score"] for row in listed], [scores[row["doc_id"]] for row in listed], rtol=1e-5
        )
    assert result["queries"] == 30 and result["source"] == "dense-encoder"


def test_the_files_agree_and_hold_no_positive_nor_its_copy(inputs, out):
    result = mine(CONFIG, inputs, out)
    qrels = pq.read_table((inputs["corpus"].place / "qrels.parquet").uri).to_pylist()
    texts = {
        row["doc_id"]: " ".join(row["text"].split()).lower()
        for name in (inputs["corpus"].place / "docs").names()
        for row in pq.read_table((inputs["corpus"].place / "docs" / name).uri).to_pylist()
    }
    listed = {(row["query_id"], row["doc_id"]): row for row in ranked.read(out / "ranked.parquet").to_pylist()}
    rows = pq.read_table((out / "negatives.parquet").uri).to_pylist()
    for row in rows:
        source = listed[row["query_id"], row["doc_id"]]
        assert (row["rank"], row["score"], row["source"]) == (source["rank"], source["score"], "dense-encoder")
        positives = [judged["doc_id"] for judged in qrels if judged["query_id"] == row["query_id"]]
        assert texts[row["doc_id"]] not in {texts[doc_id] for doc_id in positives}
    lines = list(read_jsonl(out / "negatives.jsonl.gz"))
    assert [(query, doc) for query, _, systems in lines for doc in systems["dense-encoder"]] == [
        (row["query_id"], row["doc_id"]) for row in rows
    ]
    assert {"negatives": len(rows), "queries_short": 0, "queries_without": 0}.items() <= result.items()
    assert len(rows) == 6 * 30


def test_a_plain_path_and_a_uri_give_the_same_files(tmp_path: Path, inputs, out):
    mine(CONFIG, inputs, out)
    remote = write_all(Place(f"file://{tmp_path}/remote"))
    far = Place(f"file://{tmp_path}/far")
    mine(CONFIG, remote, far)
    assert digests(far) == digests(out)


def test_depth_beyond_the_corpus_lists_every_passage_once(inputs, out):
    result = mine(MineConfig(depth=5000, per_query=6, max_queries=3), inputs, out)
    assert result["ranked"] == 3 * 300
    assert result["queries"] == 3


def test_queries_with_too_few_negatives_are_counted_not_dropped(inputs, out, caplog):
    result = mine(MineConfig(depth=5, per_query=5), inputs, out)
    rows = pq.read_table((out / "negatives.parquet").uri)["query_id"].to_pylist()
    short = sum(rows.count(f"q{row}") < 5 for row in range(40) if row % 4)
    assert result["queries_short"] == short > 0
    assert f"{short} queries have fewer than 5 negatives" in caplog.text


def test_a_killed_mining_goes_on_from_the_units_it_has(inputs, out, tmp_path: Path):
    whole = Place(str(tmp_path / "whole"))
    mine(CONFIG, inputs, whole)
    search = search_of(CONFIG, inputs, out)
    (shard,) = search.shards(1)
    worker = ShardWorker(search, shard)
    assert search.select() == 1
    assert worker.encode_block(2) == 1 and worker.encode_queries(0) == 1
    assert worker.encode_block(2) == 0 and worker.encode_queries(0) == 0
    assert worker.encode_passages() == len(search.blocks) - 1
    assert worker.search(0) == 30 * 25 and worker.search(0) == 0
    stamps = {path: path.stat().st_mtime_ns for path in Path(out.uri).rglob("*.npy")}
    mine(CONFIG, inputs, out)
    assert digests(out) == digests(whole)
    assert stamps == {path: path.stat().st_mtime_ns for path in Path(out.uri).rglob("*.npy")}


def test_shards_cover_all_blocks_once_whatever_their_number(inputs, out):
    search = search_of(CONFIG, inputs, out)
    for count in (1, 2, 3, 5, 8, 100):
        shards = search.shards(count)
        assert [block for shard in shards for block in shard] == list(range(len(search.blocks)))
        assert all(len(shard) for shard in shards) and len(shards) == min(count, len(search.blocks))


def test_merging_does_not_depend_on_the_order_of_shards():
    def part(*rows: tuple[str, str, float]) -> pa.Table:
        return ranked.order(
            pa.table([list(column) for column in zip(*rows, strict=True)], ["query_id", "doc_id", "score"])
        )

    one, two, three = (
        part(("q", "b", 1.0), ("r", "x", 0.0)),
        part(("q", "a", 1.0)),
        part(("q", "c", 2.0), ("q", "d", 0.5)),
    )
    merged = merge([one, two, three], 3)
    assert merged.to_pylist() == merge([three, one, two], 3).to_pylist()
    assert [(row["query_id"], row["doc_id"], row["rank"]) for row in merged.to_pylist()] == [
        ("q", "c", 1), ("q", "a", 2), ("q", "b", 3), ("r", "x", 1)
    ]  # fmt: skip


def test_a_sample_of_queries_is_fixed_and_grows_by_adding(inputs):
    names = [f"q{row}" for row in range(1000)]
    ten, twenty = fixed_sample(names, 10), fixed_sample(names[::-1], 20)
    assert ten == twenty[:10] and len(set(twenty)) == 20
    assert fixed_sample(names, None) == names == fixed_sample(names, 1000)
    assert judged_queries(inputs["corpus"], "dev", limit=4) == sorted(
        fixed_sample([f"q{row}" for row in range(0, 40, 4)], 4)
    )


def test_only_runtime_fields_stay_out_of_the_fingerprint():
    assert fingerprint(CONFIG) == fingerprint(CONFIG.model_copy(update={"actors": 8, "threads": 4}))
    assert fingerprint(CONFIG) != fingerprint(CONFIG.model_copy(update={"per_query": 7}))


@pytest.mark.parametrize("ranks", [{"min_rank": 30}, {"max_rank": 26}, {"min_rank": 9, "max_rank": 8}])
def test_ranks_that_cannot_be_are_refused(ranks):
    with pytest.raises((UserError, ValidationError), match="min_rank <= max_rank <= depth"):
        MineConfig(depth=25, **ranks)


def test_what_cannot_be_mined_is_one_line(inputs, out):
    with pytest.raises(UserError, match=r"split 'trian'.*Known: dev, train\."):
        mine(MineConfig(split="trian"), inputs, out)
    with pytest.raises(UserError, match="holds no encoder"):
        mine(CONFIG, {**inputs, "model": inputs["corpus"]}, out)
    alien = Artifact(inputs["corpus"].place, inputs["tokens"].record)
    with pytest.raises(UserError):
        mine(CONFIG, {**inputs, "tokens": alien}, out)


def test_a_normalised_encoder_gives_the_vectors_of_sentence_transformers(inputs, out, tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    from midmask.encoders.backbone import BackboneConfig, build_backbone
    from midmask.encoders.folder import save_bi_encoder
    from midmask.vocabulary import Vocabulary

    tokenizer = inputs["tokens"].place.local() / "tokenizer"
    backbone = build_backbone(BackboneConfig(name="tiny"), Vocabulary.of(tokenizer), seed=0)
    save_bi_encoder(backbone, tmp_path / "model", tokenizer, max_length=32, normalise=True)
    search = SplitSearch(Place(str(tmp_path / "model")), inputs["tokens"], inputs["corpus"], out, split="dev", depth=3)
    found = search_split(search)
    texts = pq.read_table((inputs["corpus"].place / "docs" / "00000.parquet").uri)["text"].to_pylist()
    expected = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(texts[:40])
    np.testing.assert_allclose(np.load(tmp_path / "out" / "embeddings" / "00000.npy"), expected, atol=1e-5)
    assert len(found) == 30 and max(found["score"].to_pylist()) <= 1.0 + 1e-6
