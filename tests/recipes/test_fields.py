"""The list of all fields, which answers a misspelt --set at once, and the page that explains each."""

from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.identity import flatten
from midmask.recipes import RECIPES
from midmask.recipes.fields import FILE, fields, refuse_unknown_fields
from midmask.recipes.fields_page import page


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


DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def written() -> str:
    return (DOCS / "fields.md").read_text("utf-8")


def test_it_is_up_to_date(written: str) -> None:
    assert page() == written, "type `make guide`"


def test_it_has_every_field_with_a_type_and_a_meaning(written: str) -> None:
    rows = [line.strip("| ").split(" | ") for line in written.splitlines() if line.startswith("| `")]
    assert sorted({row[0].strip("`") for row in rows}) == fields()
    assert not [row[0] for row in rows if not all(cell.strip() for cell in row[1:4])]
