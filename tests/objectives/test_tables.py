"""Middle trainings and fine-tuning losses are two tables: what belongs to one is refused where the other is asked."""

from typing import Any

import pytest

from midmask.errors import UserError
from midmask.experiment.schema import Recipe, recipe_from
from midmask.experiment.stage import StageConfig
from midmask.experiment.steps import FinetuneConfig, PretrainConfig
from midmask.identity import override
from midmask.objectives import FINETUNING, PRETRAINING
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.ranking import Ranking
from midmask.objectives.pretraining.mlm import MLM
from midmask.recipes import RECIPES
from midmask.training.optimiser import TrainConfig

TRAIN = TrainConfig(steps=1, batch_size=1, learning_rate=1e-3)


def test_each_name_is_in_one_table_and_is_its_own_configs() -> None:
    assert not set(PRETRAINING) & set(FINETUNING)
    for name, entry in {**PRETRAINING, **FINETUNING}.items():
        assert entry.Config.model_fields["name"].default == name
        assert issubclass(entry, Ranking) == (name in FINETUNING)


@pytest.mark.parametrize(
    ("field", "name", "says", "other"),
    [
        ("objective", "contrastive", "contrastive: .*stages.0.loss.*retromae", "distillation"),
        ("objective", "distillation", "distillation: .*stages.0.loss.*retromae", "contrastive"),
        ("objective", "cross_encoder", "cross_encoder: .*stages.0.teacher", "contrastive"),
        ("objective", "generation", "generation: .*train-generator", "contrastive"),
        ("stages.0.loss", "mlm", "mlm: .*objective.*contrastive, distillation", "retromae"),
        ("stages.0.loss", "cross_encoder", "cross_encoder: .*stages.0.teacher", "retromae"),
        ("stages.0.loss", "generation", "generation: .*train-generator", "retromae"),
        ("objective", "retromea", "retromae", "contrastive"),
        ("stages.0.loss", "contrast", "distillation", "retromae"),
        ("objective", None, "retromae", "contrastive"),
        ("stages.0.loss", None, "distillation", "retromae"),
    ],
)
def test_a_name_of_another_table_is_refused_with_its_place(field: str, name: str | None, says: str, other: str) -> None:
    changes: list[dict[str, Any]] = [{field: {"seed": 3} if name is None else {"name": name}}]
    changes += [] if name is None else [{f"{field}.name": name}]
    for change in changes:
        with pytest.raises(UserError, match=says) as refused:
            override(RECIPES["retromae"](), change)
        assert other not in str(refused.value)


def test_configs_are_refused_as_their_fields_are() -> None:
    fields = RECIPES["none"]().model_dump()
    for wrong in (Contrastive.Config(), ListwiseRanking.Config()):
        with pytest.raises(UserError, match=rf"objective.name = {wrong.name}"):
            Recipe.model_validate({**fields, "objective": wrong})
        with pytest.raises(UserError, match=rf"objective.name = {wrong.name}"):
            PretrainConfig(backbone=RECIPES["none"]().backbone, objective=wrong, train=TRAIN)
    with pytest.raises(UserError, match=r"loss.name = mlm"):
        StageConfig.model_validate({"loss": MLM.Config(), "train": TRAIN})


def test_a_finished_fine_tuning_is_read_from_its_record_with_all_fields_of_its_loss() -> None:
    loss = FINETUNING["distillation"].Config(loss="kl", ce_weight=0.01)
    config = FinetuneConfig(backbone=RECIPES["none"]().backbone, loss=loss, train=TRAIN)
    assert FinetuneConfig.model_validate(config.model_dump(mode="json")) == config


def test_every_recipe_survives_its_own_fields() -> None:
    for make in RECIPES.values():
        assert recipe_from(make().model_dump()) == make()
