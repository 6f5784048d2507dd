"""A teacher's training: it learns to rank, it does not depend on how it is cut or interrupted, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from pydantic import ValidationError
from sentence_transformers import CrossEncoder as PublicCrossEncoder

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.teacher.teach import TeachConfig, TeacherConfig, teach
from midmask.training.optimiser import TrainConfig
from midmask.training.table import read_table
from midmask.vocabulary import Vocabulary
from tests.support.teacher.lists import teaching, texts_of, trace_of
from tests.support.training.runs import assert_same_run


def run(config: TeachConfig, inputs: dict[str, Artifact], out: Path, *, stop_at: int | None = None) -> dict:
    """The step; raises KeyboardInterrupt when `stop_at` steps are done."""

    def log(done: int, values: dict[str, float]) -> None:
        if done == stop_at:
            raise KeyboardInterrupt

    return teach(config, inputs, Place(str(out)), log=log)


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
    again = run(config, inputs, tmp_path / "again")
    assert again["loss"] == whole["loss"] and whole["parts"]["r_drop"] > 0
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
    run(config, inputs, tmp_path / "fresh")
    assert not np.array_equal(
        weights(tmp_path / "fresh")["bert.encoder.layer.0.output.dense.weight"],
        found["bert.encoder.layer.0.output.dense.weight"],
    )


def test_what_makes_no_teacher_is_refused():
    train = TrainConfig(steps=1, batch_size=1, learning_rate=1e-3)
    with pytest.raises(ValidationError, match="set folder, or train"):
        TeacherConfig()
    with pytest.raises(ValueError, match="a teacher from a folder is not trained"):
        TeacherConfig(folder="/somewhere").teaching(BackboneConfig(), query_length=8)
    loss = ListwiseRanking.Config(max_length=36)
    with pytest.raises(ValidationError, match="at least 8 tokens more than its query"):
        TeachConfig(backbone=BackboneConfig(), loss=loss, train=train, per_query=1, query_length=32)
