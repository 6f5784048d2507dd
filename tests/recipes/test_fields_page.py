"""docs/fields.md is generated from the schema, and a reader finds a field's type, bounds, default and meaning in it."""

import re
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


@pytest.mark.parametrize(
    "row",
    [
        "| `evaluation.depth` | whole number, ≥ 1, ≤ 100,000 | `100` | ",
        "| `backbone.experts` | `none` or `ffn` or `all` or `drop` | `none` | ",
        "| `evaluation.max_queries` | whole number, ≥ 1, or none | none | ",
        "| `pretrain.learning_rate` | number, > 0, ≤ 1 | required | ",
    ],
)
def test_types_bounds_and_defaults_are_those_of_the_schema(written: str, row: str) -> None:
    assert row in written


def test_a_field_that_methods_declare_differently_has_a_row_for_each_declaration(written: str) -> None:
    rows = re.findall(r"^\| `objective\.encoder_mask_ratio` .*$", written, re.MULTILINE)
    defaults = {method: row.split(" | ")[2] for row in rows for method in row.strip("| ").split(" | ")[4].split(", ")}
    assert defaults["retromae"] == "`0.3`" and defaults["mlm"] == "`0.15`"


def test_fields_that_change_no_result_are_marked(written: str) -> None:
    (threads,) = re.findall(r"^\| `evaluation\.threads` .*$", written, re.MULTILINE)
    (depth,) = re.findall(r"^\| `evaluation\.depth` .*$", written, re.MULTILINE)
    assert "(does not change the result)" in threads and "(does not change the result)" not in depth
