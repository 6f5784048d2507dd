"""Files of search spaces: those of the house and of the docs are read, and what is none is refused in one line."""

import re
from itertools import filterfalse
from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.sweep.points import check, grid
from midmask.sweep.space import load_space
from tests.fuzz.refusing import refused
from tests.support.tracked import is_foreign

SPACES = Path(__file__).resolve().parents[2] / "search_spaces"


@pytest.mark.parametrize("path", sorted(filterfalse(is_foreign, SPACES.glob("*.yaml"))), ids=lambda path: path.stem)
def test_every_space_of_the_house_fits_its_recipe(path):
    space = load_space(path)
    recipe = RECIPES[space.recipe]()
    check(space, recipe if space.protocol is None else PROTOCOLS[space.protocol]().on(recipe, "demo"))
    assert len(grid(space)) >= (2 if path.stem == "mask_ratio_minilm" else 6), "the demo with MiniLM has ten minutes"


def test_the_space_that_the_docs_show_can_be_run(tmp_path):
    (shown,) = re.findall(r"```yaml\n(.*?)```", (SPACES.parent / "docs" / "sweeps.md").read_text(), re.DOTALL)
    (tmp_path / "mine.yaml").write_text(shown)
    space = load_space(tmp_path / "mine.yaml")
    check(space, RECIPES[space.recipe]())
    assert len(grid(space)) == (1 + 3) * 2


def test_a_missing_file_names_those_that_are_there(tmp_path):
    (tmp_path / "mine.yaml").write_text("")
    with pytest.raises(UserError, match=r"no such file; in .*: mine\.yaml"):
        load_space(tmp_path / "yours.yaml")


def test_a_file_of_64_kib_is_read_and_a_longer_one_is_not(tmp_path):
    text = b"name: s\nrecipe: retromae\nparameters: {objective.encoder_mask_ratio: {values: [0.3]}}\n#"
    (file := tmp_path / "s.yaml").write_bytes(text.ljust(64 * 1024, b"-"))
    assert load_space(file).name == "s"
    file.write_bytes(text.ljust(64 * 1024 + 1, b"-"))
    refused(lambda: load_space(file), "s.yaml", "larger than 64 KiB, so it is none")


START = b"name: x\nrecipe: retromae\nparameters:\n  objective.encoder_mask_ratio: "
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{own}: &{own} [{','.join([f'*{last}'] * 9)}]\n" for last, own in zip("abcdefgh", "bcdefghi", strict=True)
)
NO_SPACES = {
    "not UTF-8": b"\xff\xfe",
    "no number": b"a: !!int abc",
    "no date": b"a: 2024-13-99",
    "a date": START + b"{values: [2024-01-01]}",
    "nesting": b"[" * 5000,
    "an alias bomb": BOMB.encode(),
    "digits": START + b"{values: [" + b"9" * 5000 + b"]}",
    "a large number": START + b"{values: [0x" + b"f" * 5000 + b"]}",
    "a lone surrogate": b'name: "\\ud800"',
    "a large file": b"a: " + b"x" * 100_000,
    "an infinite end": START + b"{low: 0, high: .inf}",
}


@pytest.mark.parametrize("data", NO_SPACES.values(), ids=NO_SPACES)
def test_a_file_that_is_no_space_is_refused_in_one_line_with_its_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.yaml").write_bytes(data)
    refused(lambda: load_space(tmp_path / "x.yaml"), "x.yaml")


def test_an_alias_is_not_read_even_where_it_stands_for_little(tmp_path: Path) -> None:
    ratios = "  objective.encoder_mask_ratio: &a {values: [0.3]}\n  objective.decoder_mask_ratio: *a\n"
    (tmp_path / "x.yaml").write_text(f"name: x\nrecipe: retromae\nparameters:\n{ratios}")
    refused(lambda: load_space(tmp_path / "x.yaml"), "x.yaml", "the alias *a is not read; write the values out")


def test_a_folder_is_no_space(tmp_path: Path) -> None:
    refused(lambda: load_space(tmp_path), str(tmp_path))
