"""Middle trainings and fine-tuning losses are two tables: what belongs to one is refused where the other is asked."""

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


@pytest.mark.parametrize("recipe", ["none", "retromae"])
@pytest.mark.parametrize("name", ["contrastive", "distillation"])
@pytest.mark.parametrize("path", ["objective", "objective.name"])
def test_a_loss_of_fine_tuning_is_no_middle_training(recipe: str, name: str, path: str) -> None:
    if recipe == "none" and path == "objective.name":
        path = "objective"
    with pytest.raises(UserError) as refused:
        override(RECIPES[recipe](), {path: name if path.endswith("name") else {"name": name}})
    line = str(refused.value)
    assert line.startswith(f"objective.name = {name}: not a middle-training objective")
    assert "stages.0.loss" in line and "retromae" in line and "contrastive," not in line


def test_a_teachers_loss_is_neither() -> None:
    with pytest.raises(UserError, match=r"objective.name = cross_encoder: .*stages.0.teacher"):
        override(RECIPES["retromae"](), {"objective.name": "cross_encoder"})
    with pytest.raises(UserError, match=r"loss.name = cross_encoder: .*stages.0.teacher"):
        override(RECIPES["retromae"](), {"stages.0.loss.name": "cross_encoder"})


def test_a_generators_loss_belongs_to_its_command() -> None:
    for field in ("objective", "stages.0.loss"):
        with pytest.raises(UserError, match=r"name = generation: .*belongs to the command train-generator"):
            override(RECIPES["retromae"](), {f"{field}.name": "generation"})


@pytest.mark.parametrize("name", ["retromae", "mlm", "ict"])
def test_a_middle_training_is_no_loss_of_fine_tuning(name: str) -> None:
    with pytest.raises(UserError) as refused:
        override(RECIPES["retromae"](), {"stages.0.loss.name": name})
    assert f"loss.name = {name}: not a fine-tuning loss; it belongs to objective." in str(refused.value)
    assert "contrastive, distillation" in str(refused.value)


def test_configs_are_refused_as_their_fields_are() -> None:
    fields = RECIPES["none"]().model_dump()
    for wrong in (Contrastive.Config(), ListwiseRanking.Config()):
        with pytest.raises(UserError, match=rf"objective.name = {wrong.name}"):
            Recipe.model_validate({**fields, "objective": wrong})
        with pytest.raises(UserError, match=rf"objective.name = {wrong.name}"):
            PretrainConfig(backbone=RECIPES["none"]().backbone, objective=wrong, train=TRAIN)
    with pytest.raises(UserError, match=r"loss.name = mlm"):
        StageConfig.model_validate({"loss": MLM.Config(), "train": TRAIN})


def test_an_unknown_or_missing_name_lists_those_of_its_table_alone() -> None:
    for path, value, known, other in (
        ("objective", {"name": "retromea"}, "retromae", "contrastive"),
        ("objective", {"seed": 3}, "retromae", "contrastive"),
        ("stages.0.loss", {"name": "contrast"}, "distillation", "retromae"),
        ("stages.0.loss", {}, "distillation", "retromae"),
    ):
        with pytest.raises(UserError) as refused:
            override(RECIPES["retromae"](), {path: value})
        assert known in str(refused.value) and other not in str(refused.value)


def test_a_finished_fine_tuning_is_read_from_its_record_with_all_fields_of_its_loss() -> None:
    stage = override(RECIPES["none"](), {}).stages[0]
    loss = FINETUNING["distillation"].Config(loss="kl", ce_weight=0.01)
    config = FinetuneConfig(backbone=RECIPES["none"]().backbone, loss=loss, train=stage.train)
    assert FinetuneConfig.model_validate(config.model_dump(mode="json")) == config


def test_every_recipe_survives_its_own_fields() -> None:
    for make in RECIPES.values():
        assert recipe_from(make().model_dump()) == make()
