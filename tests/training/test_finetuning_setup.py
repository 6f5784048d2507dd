"""From stage to stage of fine-tuning: what is scored, and with which projection, goes through the model's folder."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from midmask.artifact import Place
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.folder import load_bi_encoder
from midmask.encoders.representation import Representation, scores
from midmask.errors import UserError
from midmask.objectives import Objective
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.distillation import Distillation
from midmask.objectives.finetuning.regularisers import Regularisers
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.run import local_reader, run_training
from midmask.training.setup import FinetuneSetup
from tests.support.objectives.texts import random_texts, token_rows

HYBRID = Representation(width=8, lexical="logits", passage_terms=20, specials=False)
QUERIES, PASSAGES = token_rows(random_texts([3, 5], 400, seed=1)), token_rows(random_texts([9, 14, 6], 400, seed=2))
LEARNS = 2e-3


def setup_of(tokens: Place, corpus: Place) -> FinetuneSetup:
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
    first = setup_of(tokens, corpus)
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


def test_a_projection_of_another_width_and_a_missing_teacher_are_refused(tokens, corpus, tmp_path):
    setup = setup_of(tokens, corpus)
    trained(replace(setup, train=setup.train.model_copy(update={"steps": 1})), tmp_path / "one")
    wider = HYBRID.model_copy(update={"width": 9})
    with pytest.raises(UserError, match=r"representation\.width"):
        replace(setup, start=Place(str(tmp_path / "one")), representation=wider).build()
    distilled = replace(setup, objective=Distillation.Config(), rows=replace(setup.rows, per_query=2))
    with pytest.raises(UserError, match="Give the stage a teacher"):
        trained(distilled, tmp_path / "out")
