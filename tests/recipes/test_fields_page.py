"""docs/fields.md is generated from the schema, and a reader finds a field's type, bounds, default and meaning in it."""

from pathlib import Path

import pytest

from midmask.recipes.fields import fields
from midmask.recipes.fields_page import page

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
