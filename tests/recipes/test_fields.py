"""The list of all fields, which answers a misspelt --set at once, is that of the recipes."""

import pytest

from midmask.errors import UserError
from midmask.identity import flatten
from midmask.recipes import RECIPES
from midmask.recipes.fields import FILE, fields, refuse_unknown_fields


def test_the_file_holds_the_fields_of_all_recipes() -> None:
    assert FILE.read_text("utf-8").split() == fields(), "type `make guide`"


@pytest.mark.parametrize("name", RECIPES)
def test_every_field_and_section_of_a_recipe_is_known(name: str) -> None:
    paths = list(flatten(RECIPES[name]()))
    refuse_unknown_fields([*paths, *{path.rpartition(".")[0] for path in paths if "." in path}])


@pytest.mark.parametrize("path", ["pretrain.stepz", "stages.0.trane.steps", "x", "pretrain.steps.more", "stages.*.los"])
def test_another_path_is_refused(path: str) -> None:
    with pytest.raises(UserError, match="unknown field"):
        refuse_unknown_fields(["pretrain.steps", path])
