"""A teacher learns to rank, however its training is cut; its scores, or given ones, are complete and right."""

import gzip
import json
import shutil
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from pydantic import ValidationError
from sentence_transformers import CrossEncoder as PublicCrossEncoder

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.exchange.score_files import LIST, Scored
from midmask.experiment.kinds import KINDS
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.retrieve import ranked
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table
from midmask.teacher.score import SCORE, ReadScoresConfig, ScoreConfig, read_scores, scores_content
from midmask.teacher.teach import TeachConfig
from midmask.text.vocabulary import Vocabulary
from midmask.training.optimiser import TrainConfig
from tests.support.teacher.lists import QUERIES, teaching, texts_of, write_inputs, write_negatives
from tests.support.training.runs import assert_same_run, trace_of

Scores = dict[tuple[str, str], float]


def write_score_lists(place: Place, scores: Iterable[Scored]) -> None:
    """In the list layout, as Hugging Face's data sets of teachers: the scores of a query have to follow each other."""
    rows = [
        {"query_id": query_id, "corpus_id": [doc for _, doc, _ in own], "score": [score for *_, score in own]}
        for query_id, group in groupby(scores, itemgetter(0))
        for own in [list(group)]
    ]
    with place.writing() as stream:
        pq.write_table(pa.Table.from_pylist(rows, schema=LIST), stream, compression="zstd")


def scored(config: ScoreConfig, inputs: Mapping[str, Artifact], out: Path) -> tuple[Scores, dict[str, Any]]:
    result = SCORE(config, inputs, Place(str(out)))
    rows = read_table(Place(str(out)) / "scores.parquet").to_pylist()
    keys = [(row["query_id"], row["doc_id"]) for row in rows]
    assert keys == sorted(set(keys)), "by query, then document, each once"
    return {key: row["score"] for key, row in zip(keys, rows, strict=True)}, result


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict[str, Artifact]:
    """One corpus with lists."""
    return write_inputs(Place(str(tmp_path_factory.mktemp("lists"))))


@pytest.fixture(scope="module")
def teacher(inputs, tmp_path_factory) -> Artifact:
    """Trained on it."""
    out = Place(str(tmp_path_factory.mktemp("teacher")))
    result = KINDS["teach"].make(teaching(steps=80, dropout=0.0), inputs, out, log=lambda done, values: None)
    return Artifact(out, {"fingerprint": "teacher", "result": result})


@pytest.fixture(scope="module")
def all_inputs(inputs, teacher) -> dict[str, Artifact]:
    return {**inputs, "teacher": teacher}


@pytest.mark.parametrize("titles", [False, True])
def test_scores_are_another_library_s(all_inputs, tmp_path, titles):
    """Candidates and positives, all of them, one pair at a time there and in batches here."""
    found, result = scored(ScoreConfig(titles=titles, shard_queries=7), all_inputs, tmp_path)
    negatives = read_table(all_inputs["negatives"].place / "negatives.parquet").to_pylist()
    qrels = read_table(all_inputs["corpus"].place / "qrels.parquet").to_pylist()
    wanted = [*negatives, *(row for row in qrels if row["split"] == "train")]
    assert found.keys() == {(row["query_id"], row["doc_id"]) for row in wanted}
    assert result["pairs"] == len(found) and result["queries"] == QUERIES
    assert (result["positives"], result["positives_unlisted"]) == (32, 32)
    queries, passages = texts_of(all_inputs)
    model = PublicCrossEncoder(f"{all_inputs['teacher'].place}/model", device="cpu")
    for (query_id, doc_id), score in list(found.items())[::9]:
        text = f"title{int(doc_id[1:])} {passages[doc_id]}" if titles else passages[doc_id]
        assert model.predict([(queries[query_id], text)])[0] == pytest.approx(score, abs=1e-5)


def test_how_the_work_is_cut_changes_nothing(all_inputs, tmp_path):
    one, _ = scored(ScoreConfig(), all_inputs, tmp_path / "one")
    many, _ = scored(ScoreConfig(shard_queries=3), all_inputs, tmp_path / "many")
    assert one.keys() == many.keys() and max(abs(one[key] - many[key]) for key in one) < 1e-5
    threads, _ = scored(ScoreConfig(shard_queries=3, threads=2), all_inputs, tmp_path / "threads")
    assert threads == many, "bit for bit"


def test_a_killed_run_goes_on_with_the_shards_it_has(all_inputs, tmp_path):
    config = ScoreConfig(shard_queries=8)
    whole, result = scored(config, all_inputs, tmp_path / "whole")
    kept = tmp_path / "whole" / "scores" / "00001.parquet"
    (tmp_path / "again" / "scores").mkdir(parents=True)
    table = read_table(Place(str(kept)))
    marked = table.set_column(3, "score", pa.array(np.full(len(table), 7.5, np.float32)))
    with (Place(str(tmp_path / "again")) / "scores" / "00001.parquet").writing() as stream:
        pa.parquet.write_table(marked, stream)
    again, _ = scored(config, all_inputs, tmp_path / "again")
    own = {(row["query_id"], row["doc_id"]) for row in table.to_pylist()}
    assert all(again[key] == (7.5 if key in own else whole[key]) for key in whole), "that shard was not made again"
    shutil.rmtree(tmp_path / "again" / "scores")
    assert scored(config, all_inputs, tmp_path / "again") == (whole, result)


def test_ranked_lists_are_scored(all_inputs, tmp_path):
    rows = [(f"q{query:02d}", f"d{doc:03d}", 9.0 - doc) for query in (3, 5) for doc in range(4)]
    table = pa.table([list(column) for column in zip(*rows, strict=True)], names=["query_id", "doc_id", "score"])
    ranked.write(Place(str(tmp_path / "ranked" / "ranked" / "dev.parquet")), [ranked.order(table)])
    sources = {name: all_inputs[name] for name in ("corpus", "teacher")}
    sources |= {"ranked": Artifact(Place(str(tmp_path / "ranked")), {"fingerprint": "ranked", "result": {}})}
    found, result = scored(ScoreConfig(split="dev"), sources, tmp_path / "out")
    assert found.keys() == {("q05", row[1]) for row in rows} | {("q05", "d015")}
    assert result["positives_unlisted"] == 1 and result["queries"] == 1, "q03 is a train query"
    with pytest.raises(UserError, match=r"split 'test': .* has no judged queries"):
        SCORE(ScoreConfig(split="test"), sources, Place(str(tmp_path / "none")))


def test_the_readable_file_says_the_same(all_inputs, tmp_path):
    found, _ = scored(ScoreConfig(jsonl=True, shard_queries=2), all_inputs, tmp_path)
    lines = [json.loads(line) for line in gzip.decompress((tmp_path / "scores.jsonl.gz").read_bytes()).splitlines()]
    assert [line["query_id"] for line in lines] == sorted({query_id for query_id, _ in found})
    listed = {}
    for line in lines:
        assert line["score"] == sorted(line["score"], reverse=True)
        listed |= {(line["query_id"], doc): score for doc, score in zip(line["corpus_id"], line["score"], strict=True)}
    assert listed == found


def test_bad_lists_and_teachers_are_refused(all_inputs, tmp_path):
    def refuse(match: str, config: ScoreConfig | None = None, **changed: Artifact) -> None:
        with pytest.raises(UserError, match=match):
            SCORE(config or ScoreConfig(), {**all_inputs, **changed}, Place(str(tmp_path / match[:12])))

    def listed(*rows: tuple[str, str]) -> Artifact:
        place = Place(str(tmp_path / rows[0][0] / rows[0][1]))
        write_negatives(place, [(*row, rank, 1.0, "made") for rank, row in enumerate(rows, start=1)])
        return Artifact(place, {})

    lists = listed(("q01", "d001"))
    refuse("holds no teacher: model/config.json is missing", teacher=lists)
    refuse("query_length = 33, but pairs have at most 40", ScoreConfig(query_length=33))
    shutil.copytree(f"{all_inputs['teacher'].place}/model", tmp_path / "nan" / "model")
    file = tmp_path / "nan" / "model" / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)  # made finite, as a folder's must be, and to overflow in every score
    (pooler,) = [name for name in tensors if name.endswith("pooler.dense.bias")]
    tensors[pooler][:] = 100.0
    tensors["classifier.weight"][:] = 3e38
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    nan = Artifact(Place(str(tmp_path / "nan")), {})
    refuse("not finite for 2 pairs, among them q01 x d001, q01 x d003", negatives=lists, teacher=nan)


PUBLISHED = [("q2", "d9", 1.5), ("q1", "d3", -2.25), ("q1", "d1", 4.0), ("elsewhere", "d1", 7.0)]


@pytest.fixture
def corpus(tmp_path) -> dict[str, Artifact]:
    (tmp_path / "corpus").mkdir()
    pq.write_table(pa.table({"query_id": ["q2", "q1", "q3"]}), tmp_path / "corpus" / "queries.parquet")
    return {"corpus": Artifact(Place(str(tmp_path / "corpus")), {})}


def test_a_file_of_lists_gives_sorted_pairs_of_the_corpus(corpus, tmp_path):
    file = tmp_path / "lists.parquet"
    write_score_lists(Place(str(file)), PUBLISHED)
    result = read_scores(ReadScoresConfig(file=str(file)), corpus, Place(str(tmp_path / "out")))
    rows = pq.read_table(tmp_path / "out" / "scores.parquet").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("q1", "d1", 4.0), ("q1", "d3", -2.25), ("q2", "d9", 1.5)]
    assert result == {"pairs": 3, "pairs_of_unknown_queries": 1}


def test_repeated_pairs_and_files_of_other_corpora_are_refused(corpus, tmp_path):
    out = Place(str(tmp_path / "out"))
    write_score_lists(Place(str(tmp_path / "twice.parquet")), [*PUBLISHED, ("q1", "d3", 0.0)])
    with pytest.raises(UserError, match="query q1, passage d3 is scored more than once"):
        read_scores(ReadScoresConfig(file=str(tmp_path / "twice.parquet")), corpus, out)
    write_score_lists(Place(str(tmp_path / "other.parquet")), PUBLISHED[-1:])
    with pytest.raises(UserError, match="none of its 1 pairs is of a query of this corpus"):
        read_scores(ReadScoresConfig(file=str(tmp_path / "other.parquet")), corpus, out)
    with pytest.raises(UserError, match=r"teacher\.scores = .*nowhere\.parquet: there is no such file"):
        scores_content(str(tmp_path / "nowhere.parquet"))


def run(config: TeachConfig, inputs: dict[str, Artifact], out: Path, *, stop_at: int | None = None) -> dict:
    """The step; raises KeyboardInterrupt when `stop_at` steps are done."""

    def log(done: int, values: dict[str, float]) -> None:
        if done == stop_at:
            raise KeyboardInterrupt

    return KINDS["teach"].make(config, inputs, Place(str(out)), log=log)


def weights(out: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(out / "model" / "model.safetensors")


def test_it_ranks_unseen_positives_above_negatives(inputs, teacher):
    """Also for dev queries, which it has not seen; read by another library, from the folder alone."""
    queries, passages = texts_of(inputs)
    model = PublicCrossEncoder(f"{teacher.place}/model", device="cpu")
    negatives = read_table(inputs["negatives"].place / "negatives.parquet").to_pylist()
    for split, least in (("train", 0.95), ("dev", 0.8)):
        ranks = []
        for row in read_table(inputs["corpus"].place / "qrels.parquet").to_pylist():
            if row["split"] == split:
                listed = [other["doc_id"] for other in negatives if other["query_id"] == row["query_id"]]
                pairs = [(queries[row["query_id"]], passages[doc_id]) for doc_id in [row["doc_id"], *listed]]
                scores = model.predict(pairs)
                ranks.append(int((scores[1:] >= scores[0]).sum()))
        assert np.mean([rank == 0 for rank in ranks]) >= least, (split, ranks)
    assert teacher.result["loss"] < 0.3, "the mean of the last 20 steps; an untrained one is at log 4 = 1.39"


def test_micro_batches_keep_lists_whole(inputs, tmp_path):
    whole = run(teaching(dropout=0.0), inputs, tmp_path / "whole")
    cut = run(teaching(dropout=0.0, micro_batch=3), inputs, tmp_path / "cut")
    assert_same_run(trace_of(tmp_path / "whole"), trace_of(tmp_path / "cut"), within=1e-4)
    assert cut["loss"] == pytest.approx(whole["loss"], abs=1e-4) and set(whole["parts"]) == {"listwise"}


def test_an_interrupted_run_goes_on_and_ends_with_the_same_bits(inputs, tmp_path):
    config = teaching(r_drop=0.5, log_every=1)
    whole = run(config, inputs, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(config, inputs, tmp_path / "again", stop_at=8)
    assert not (tmp_path / "again" / "model").exists()
    assert run(config, inputs, tmp_path / "again")["loss"] == whole["loss"] and whole["parts"]["r_drop"] > 0
    assert_same_run(trace_of(tmp_path / "whole"), trace_of(tmp_path / "again"), within=0.0)
    for name, value in weights(tmp_path / "whole").items():
        np.testing.assert_array_equal(weights(tmp_path / "again")[name], value)


def test_it_starts_from_a_pre_trained_encoder(inputs, tmp_path):
    """At a rate too small to change a weight, what comes out is what went in."""
    tokenizer = (inputs["tokens"].place / "tokenizer").local()
    backbone = build_backbone(BackboneConfig(), Vocabulary.of(tokenizer), seed=9)
    backbone.save(tmp_path / "start" / "model", tokenizer)
    config = teaching(steps=1, learning_rate=1e-30, weight_decay=0.0)
    named = config.backbone.model_copy(update={"name": str(tmp_path / "start" / "model")})
    run(config.model_copy(update={"backbone": named}), inputs, tmp_path / "out")
    found = weights(tmp_path / "out")
    for name, value in backbone.encoder.named_parameters():
        np.testing.assert_allclose(found[f"bert.{name}"], value.detach().numpy(), atol=1e-20, err_msg=name)


def test_pairs_too_short_for_a_passage_are_refused():
    train, loss = TrainConfig(steps=1, batch_size=1, learning_rate=1e-3), ListwiseRanking.Config(max_length=36)
    with pytest.raises(ValidationError, match="at least 8 tokens more than its query"):
        TeachConfig(backbone=BackboneConfig(), loss=loss, train=train, per_query=1, query_length=32)
