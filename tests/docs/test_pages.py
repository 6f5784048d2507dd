"""Pages name what exists: links, anchors, files, modules and recipes, and the site's navigation has all of them."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import midmask
from midmask.recipes.methods import METHODS
from tests.screenshots.guides import PICTURES
from tests.support.docs.markdown import DOCS, DOTTED, PYTHON_FILE, ROOT, SOURCE, anchors, pages, relative_links

MADE_BY_THE_READER = re.compile(r"one_word|NAME|^midmask\.json$")
"""The toy of the guide to objectives, a placeholder, and a file of a model's folder."""
ABSENT_ON_PURPOSE = {"platform/__init__.py"}
"""Decision 1 says why it must not exist."""
BASES = ("", "platform", "platform/midmask")
"""Folders against which pages write a Python file's path."""


def names(page: Path, pattern: re.Pattern[str]) -> set[str]:
    found = {name for name in pattern.findall(page.read_text("utf-8")) if not MADE_BY_THE_READER.search(name)}
    return found - ABSENT_ON_PURPOSE


def defined_in(module: Path) -> set[str]:
    """Names that a module defines or imports, under a condition too."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, a package, or a name in one."""
    place = ROOT if dotted.startswith("tests.") else ROOT / "platform"
    *parents, last = dotted.split(".")
    while (
        parents and not place.joinpath(*parents).is_dir() and not place.joinpath(*parents).with_suffix(".py").is_file()
    ):
        *parents, last = parents
    home = place.joinpath(*parents)
    if (home / last).is_dir() or (home / f"{last}.py").is_file():
        return True
    module = home / "__init__.py" if home.is_dir() else home.with_suffix(".py")
    return module.is_file() and last in defined_in(module)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
class TestPage:
    def test_relative_links_and_their_anchors_exist(self, page: Path) -> None:
        broken = []
        for link in relative_links(page.read_text("utf-8")):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            is_broken_anchor = (
                anchor
                and target.suffix == ".md"
                and target.is_file()
                and anchor not in anchors(target.read_text("utf-8"))
            )
            if not target.exists() or not target.is_relative_to(ROOT) or is_broken_anchor:
                broken.append(link)
        assert not broken

    def test_pages_of_the_site_link_to_nothing_outside_docs(self, page: Path) -> None:
        """The site has docs/ alone; sources are named by their path."""
        if page.is_relative_to(DOCS):
            targets = [
                (page.parent / link.partition("#")[0]).resolve() for link in relative_links(page.read_text("utf-8"))
            ]
            assert all(target.is_relative_to(DOCS) for target in targets)

    def test_files_that_it_names_exist(self, page: Path) -> None:
        assert not {name for name in names(page, SOURCE) if not (ROOT / name).exists()}
        files = names(page, PYTHON_FILE)
        assert not {name for name in files if not any((ROOT / base / name).is_file() for base in BASES)}

    def test_modules_that_it_names_exist(self, page: Path) -> None:
        assert not {name for name in names(page, DOTTED) if not exists(name)}


def test_a_module_that_is_not_there_is_noticed() -> None:
    assert exists("midmask.training.loop") and exists("midmask.errors.UserError") and exists("tests.mutations")
    assert not exists("midmask.cluster") and not exists("midmask.cluster.job") and not exists("midmask.errors.NoSuch")


def test_links_and_anchors_are_read_as_markdown_has_them() -> None:
    text = "# A [link](x.md), `code` & more\n[a](b.md#c) `[no](no.md)` ![p](q.svg) [w](https://h/)\n"
    text += "```\n[no](no.md)\n# no\n```\n"
    assert relative_links(text) == ["x.md", "b.md#c", "q.svg"]
    assert anchors(text) == {"a-link-code--more"}


def test_the_table_of_methods_has_every_recipe_in_the_table_of_recipes() -> None:
    page = (DOCS / "methods.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` ", page, re.MULTILINE) == list(METHODS)


def files_in(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [file for part in (nav.values() if isinstance(nav, dict) else nav) for file in files_in(part)]


def test_the_navigation_has_every_page_once() -> None:
    nav = tomllib.loads((ROOT / ".zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert sorted(files_in(nav)) == sorted(str(page.relative_to(DOCS)) for page in pages() if page.is_relative_to(DOCS))


GUIDES = ("first_hour", "choose", "own_labelled_data", "adding_an_objective", "cluster", "reading_a_leaderboard")


def test_every_guide_has_pictures_and_a_script_makes_each() -> None:
    """`make screenshots ARGS=--guides` makes all that lie in docs/pictures, and a page shows each of them."""
    shown = {page: set(re.findall(r"\(pictures/([\w-]+)\.png\)", page.read_text("utf-8"))) for page in pages()}
    assert not [guide for guide in GUIDES if not shown[DOCS / f"{guide}.md"]]
    assert {path.stem for path in (DOCS / "pictures").iterdir()} == set(PICTURES) == set().union(*shown.values())


def test_the_reference_has_every_public_name() -> None:
    listed = re.findall(r"^::: midmask\.(\w+)$", (DOCS / "reference" / "python.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(midmask.__all__)
