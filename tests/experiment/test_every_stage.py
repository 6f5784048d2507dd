"""`stages.*.…` stands for every stage, wherever fields are changed."""

import pytest

from midmask import UserError
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.every_stage import for_each_stage, refuse_idle
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS

TWO = PROTOCOLS["ance"]().on(RECIPES["mlm"](), "demo")
TAUGHT = PROTOCOLS["retromae_distil"]().on(RECIPES["mlm"](), "demo")
NONE = RECIPES["mlm"]().model_copy(update={"stages": ()})


def test_a_field_of_every_stage() -> None:
    assert len(TWO.stages) == 2
    changed = apply_changes(TWO, {"stages.*.train.steps": 7, "stages.1.train.batch_size": 6, "pretrain.steps": 5})
    assert [stage.train.steps for stage in changed.stages] == [7, 7]
    assert [stage.train.batch_size for stage in changed.stages] == [TWO.stages[0].train.batch_size, 6]
    assert changed.pretrain.steps == 5


def test_a_later_change_wins() -> None:
    both = {"stages.*.train.steps": 7, "stages.1.train.steps": 9}
    assert [stage.train.steps for stage in apply_changes(TWO, both).stages] == [7, 9]
    turned = dict(reversed(both.items()))
    assert [stage.train.steps for stage in apply_changes(TWO, turned).stages] == [7, 7]


def test_a_teachers_fields_are_of_the_stages_that_have_one() -> None:
    taught = [stage.teacher is not None for stage in TAUGHT.stages]
    assert any(taught) and not all(taught)
    changes = for_each_stage(TAUGHT, {"stages.*.teacher.train.steps": 3})
    assert changes == {f"stages.{n}.teacher.train.steps": 3 for n, has in enumerate(taught) if has}


def test_what_no_stage_has_a_place_for_is_refused() -> None:
    refuse_idle(TWO, {"stages.*.train.steps": 7, "pretrain.steps": 5})
    with pytest.raises(UserError, match=r"stages\.\*\.teacher\.train\.steps = 3: no stage of mlm has a teacher"):
        refuse_idle(TWO, {"stages.*.teacher.train.steps": 3})
    with pytest.raises(UserError, match="no stage of mlm is there"):
        refuse_idle(NONE, {"stages.*.train.steps": 3})
    with pytest.raises(UserError, match=r"stages\.0\.train\.stepz"):
        apply_changes(TWO, {"stages.*.train.stepz": 3})
