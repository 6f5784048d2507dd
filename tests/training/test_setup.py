"""What a training reads and hands on, by its objective; relevant passages that a collection lacks are left out."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.folder import load_bi_encoder
from midmask.encoders.representation import Representation, scores
from midmask.errors import UserError
from midmask.experiment.steps import PretrainConfig, pretrain_setup
from midmask.mining.known import NEAR_DUPLICATES, NearDuplicatesConfig
from midmask.mining.mine import MineConfig, mine
from midmask.mining.negatives import FilterConfig
from midmask.objectives import PRETRAINING, Objective
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.ranking import Regularisers
from midmask.retrieve.bm25.search import Bm25Config
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.teacher.score import write_candidates
from midmask.text.tokens import TokensConfig, tokenise
from midmask.training.examples import local_reader
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.pretraining_rows import PackedExamples, PassageExamples, SpanExamples
from midmask.training.run import run_training
from midmask.training.setup import FinetuneSetup, PretrainSetup
from tests.support.benchmark.tiny import write_collection
from tests.support.objectives.texts import random_texts, token_rows
from tests.support.retrieve.collection import made, ranked_by_bm25

NAMES = ("tokens", "corpus", "spans", "pseudo_queries", "weights", "vectors")
PLACES = {name: Place(f"store/{name}") for name in NAMES}


def setup_of(objective: str, **settings: object) -> PretrainSetup:
    """The setup of a pre-training whose inputs are all there, under fingerprints that are their names."""
    own, train = {"name": objective, **settings}, TrainConfig(steps=1, batch_size=1, learning_rate=1.0)
    wanted = PRETRAINING[objective].Config.model_validate(own)
    config = PretrainConfig(backbone=BackboneConfig(), objective=wanted, train=train)
    record = {"config": {"max_length": 48, "span_length": 40}}
    return pretrain_setup(config, {name: Artifact(at, {"fingerprint": name, **record}) for name, at in PLACES.items()})


def test_rows_are_what_the_objective_reads():
    tokens = PLACES["tokens"]
    assert setup_of("mlm").rows == PassageExamples(tokens, "tokens")
    weighted = PassageExamples(tokens, "tokens", PLACES["weights"])
    assert setup_of("mlm", encoder_mask="weighted").rows == weighted, "rows keep the tokens' order"
    assert setup_of("mlm", packing=True).rows == PackedExamples(tokens, "tokens", 48)
    assert setup_of("cotmae").rows == SpanExamples(PLACES["spans"], "spans", "mixed")
    assert setup_of("cocondenser").rows == SpanExamples(PLACES["spans"], "spans", "any")
    assert setup_of("cotmae_qc").rows == PassageExamples(
        tokens, "pseudo_queries", pseudo_queries=PLACES["pseudo_queries"]
    )
    assert not setup_of("simcse").rows.by_length, "where rows meet, batches are not grouped by length"
    distilled = PassageExamples(tokens, "tokens", by_length=False, vectors=PLACES["vectors"])
    assert setup_of("distil_vectors").rows == distilled
    assert (setup_of("mlm").longest, setup_of("cotmae").longest) == (48, 40)


HYBRID = Representation(width=8, lexical="logits", passage_terms=20, specials=False)
QUERIES, PASSAGES = token_rows(random_texts([3, 5], 400, seed=1)), token_rows(random_texts([9, 14, 6], 400, seed=2))
LEARNS = 2e-3


def tuned_setup(tokens: Place, corpus: Place) -> FinetuneSetup:
    return FinetuneSetup(
        objective=Contrastive.Config(regularisers=Regularisers(passage="flops", lambda_passage=0.1, ramp=0.5)),
        train=TrainConfig(steps=4, batch_size=6, learning_rate=LEARNS, threads=1, seed=3),
        backbone=BackboneConfig(name="tiny"),
        tokens=tokens,
        rows=PairExamples(tokens, corpus, "train", "f", query_length=8, passage_length=24),
        representation=HYBRID,
    )


def trained(setup: FinetuneSetup, out: Path) -> dict[str, object]:
    return run_training(setup, Place(str(out)), local_reader, lambda *_: None, device=torch.device("cpu"))


def scores_of(objective: Objective) -> torch.Tensor:
    backbone = objective.backbone.eval()
    special_V = objective.vocabulary(torch.device("cpu")).special_V
    with torch.no_grad():
        sides = [(QUERIES, "query"), (PASSAGES, "passage")]
        return scores(*(backbone.pooling(backbone, t.ids_BL, t.lengths_B, special_V, side) for t, side in sides))


def test_a_stage_goes_on_with_the_projection_of_the_one_before(tokens, corpus, tmp_path):
    first = tuned_setup(tokens, corpus)
    fresh = first.build()[1].backbone.pooling.projection.weight.detach()
    result = trained(first, tmp_path / "one")
    assert {"contrastive", "passage_regulariser", "query_terms", "passage_terms"} <= set(result["parts"])
    assert result["parts"]["passage_terms"] == 20
    saved = load_bi_encoder(tmp_path / "one" / "model", dropout=0.0)
    learnt = saved.pooling.projection.weight.detach()
    assert saved.pooling.representation == HYBRID
    assert 1e-4 < (learnt - fresh).abs().max() < 10 * LEARNS, "the projection is trained, from the seed's weights"
    second = replace(first, start=Place(str(tmp_path / "one")), train=first.train.model_copy(update={"seed": 4}))
    objective = second.build()[1]
    assert torch.equal(objective.backbone.pooling.projection.weight, learnt)
    expected = scores_of(objective)
    objective.backbone = saved
    torch.testing.assert_close(scores_of(objective), expected, rtol=1e-6, atol=1e-6)


def test_a_projection_of_another_width_is_refused(tokens, corpus, tmp_path):
    setup = tuned_setup(tokens, corpus)
    trained(replace(setup, train=setup.train.model_copy(update={"steps": 1})), tmp_path / "one")
    wider = replace(setup, start=Place(str(tmp_path / "one")), representation=HYBRID.model_copy(update={"width": 9}))
    with pytest.raises(UserError, match=r"representation\.width"):
        wider.build()


MISSING = {"train": ["q0\tgone\t1\n", "q1\tlost\t1\n"], "dev": ["q24\tgone\t2\n"]}
"""q0 and q24 have another relevant passage; q1 has no other, for its line is replaced."""


def read(folder: Path, missing: Mapping[str, list[str]]) -> Artifact:
    """The tiny collection without the judgement of q1, prepared."""
    name = write_collection(folder / "in")
    for split in ("train", "dev"):
        file = folder / "in" / "qrels" / f"{split}.tsv"
        lines = [line for line in file.read_text().splitlines(True) if not line.startswith("q1\t")]
        file.write_text("".join([*lines, *missing.get(split, [])]))
    place = Place(str(folder / "corpus"))
    return Artifact(place, {"fingerprint": "c", "result": prepare(CorpusConfig(name=name), {}, place)})


def trained_on(folder: Path, missing: Mapping[str, list[str]]) -> dict[str, object]:
    """What trainings take from judgements: negatives, pairs to score, rows of fine-tuning."""
    root = Place(str(folder))
    corpus = read(folder, missing)
    tokens = root / "tokens"
    tokenise(TokensConfig(vocabulary_size=300, max_length=32, query_length=8), {"corpus": corpus}, tokens)
    config, bm25 = Bm25Config(splits=("train",), judged="relevant", depth=20), root / "bm25"
    record = {"fingerprint": "r", "result": ranked_by_bm25(config, {"corpus": corpus}, bm25), "step": "bm25"}
    alike = made(NEAR_DUPLICATES, NearDuplicatesConfig(), {"corpus": corpus}, root / "alike")
    inputs = {
        "corpus": corpus,
        "ranked": Artifact(bm25, {**record, "config": {}, "inputs": {}}),
        "near_duplicates": alike,
    }
    mined = mine(MineConfig(depth=20, per_query=3, filters=FilterConfig(relative_margin=0.1)), inputs, root / "mined")
    write_candidates(inputs, root / "scored", split="train", queries=100)
    negatives = root / "mined" / "negatives.parquet"
    rows = PairExamples(tokens, corpus.place, "train", "f", per_query=2, negatives=negatives).open()
    texts = rows.read(np.arange(rows.count), 0, 0)
    return {
        "mined": {name: value for name, value in mined.items() if name != "source"},
        "negatives": pq.read_table(negatives.local()).to_pylist(),
        "positives": (root / "mined/negatives.jsonl.gz").read(),
        "pairs": pq.read_table((root / "scored/candidates/00000.parquet").local()).to_pylist(),
        "rows": [texts["query"].rows.tolist(), texts["passage"].rows.tolist()],
    }


def test_trainings_are_those_without_the_judgements(tmp_path, caplog):
    whole = trained_on(tmp_path / "whole", {})
    assert "are left out" not in caplog.text
    with caplog.at_level(logging.INFO):
        found = trained_on(tmp_path / "missing", MISSING)
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        assert found[name] == value, name
    assert "2 relevant passages are not in the collection and are left out" in caplog.text
