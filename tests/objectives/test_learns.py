"""What a config says of its loss, that it has terms and compares rows, is what the loss does."""

from typing import Any

import pytest

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.objectives import PRETRAINING, CoupledObjective, Objective, build_objective
from midmask.objectives.sample import pretraining_batch
from tests.support.objectives.texts import small_vocabulary


def built(config: Any) -> Objective:
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=0.1), small_vocabulary(), seed=0)
    return build_objective(config, backbone, small_vocabulary(), seed=0)


def terms(config: Any, rows: int) -> dict[str, float]:
    """Name -> weighted sum of each term of the loss that has a target."""
    objective = built(config)
    drawn = objective.draw(pretraining_batch(config, small_vocabulary(), rows=rows, length=24))
    parts = objective(drawn).parts
    return {name: float(part.weight * part.total.detach()) for name, part in parts.items() if int(part.count)}


def without_weights(name: str) -> Any:
    """The method's config, with every factor of a term that can be 0 at 0."""
    config = PRETRAINING[name].Config
    zeros = {field: 0.0 for field in config.model_fields if field.endswith(("_weight", "_weight_end"))}
    allowed = {
        field: 0.0
        for field in zeros
        if all(getattr(rule, "gt", None) is None for rule in config.model_fields[field].metadata)
    }
    return config(**allowed)


@pytest.mark.parametrize("name", sorted(PRETRAINING))
def test_a_loss_without_terms_is_refused(name: str) -> None:
    config = without_weights(name)
    if not any(terms(config, 4).values()) and name != "spider":  # whose made-up rows share no phrase
        with pytest.raises(UserError, match=r"objective\.\w+_weight.* = 0: no term"):
            config.check_learns(4)
    else:
        config.check_learns(4)


@pytest.mark.parametrize(
    "name", sorted(name for name in PRETRAINING if issubclass(PRETRAINING[name], CoupledObjective))
)
def test_a_method_whose_rows_meet_says_so(name: str) -> None:
    """With one row its contrastive term is 0."""
    config = PRETRAINING[name].Config()
    assert config.compares_rows
    assert terms(config, 1).get("contrastive", 0.0) == 0.0
