"""Kinds of steps: the steps of every recipe are of the kinds that are declared for them."""

from pathlib import Path

import pytest

from midmask.core.config import override
from midmask.experiment.kinds import KINDS
from midmask.experiment.plan import plan
from midmask.recipes import RECIPES
from tests.support.corpora.collections import write_beir


@pytest.mark.parametrize("name", RECIPES)
def test_a_steps_config_is_that_of_its_kind(name: str, tmp_path: Path) -> None:
    write_beir(tmp_path / "few")
    recipe = override(RECIPES[name](), {"corpus.name": f"beir:{tmp_path}/few"})
    for step in plan(recipe).evaluation(recipe.evaluation).upstream():
        assert isinstance(step.config, step.kind.config), step.name


def test_a_kind_is_computed_in_one_way() -> None:
    for kind in KINDS.values():
        assert (kind.setup is None) != (kind.compute is None), kind.name
        assert kind.trains == (kind.runs == "group"), kind.name
