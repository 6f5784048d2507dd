"""Pages link to what exists and list every recipe, and the site's navigation has all of them."""

import re
import tomllib

import midmask
from midmask.recipes.methods import METHODS
from tests.support.docs.markdown import DOCS, ROOT, anchors, pages, relative_links
from tests.tools.screenshots.guides import PICTURES


def test_relative_links_and_their_anchors_exist() -> None:
    """The site has docs/ alone, so its pages link to nothing outside; sources are named by their path."""
    broken = []
    for page in pages():
        home = DOCS if page.is_relative_to(DOCS) else ROOT
        for link in relative_links(page.read_text("utf-8")):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            is_page = target.suffix == ".md" and target.is_file()
            lost = not target.exists() or not target.is_relative_to(home)
            if lost or (anchor and is_page and anchor not in anchors(target.read_text("utf-8"))):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert not broken


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


def test_every_picture_is_shown_and_is_one_that_a_script_makes() -> None:
    shown = [re.findall(r"\(pictures/([\w-]+)\.png\)", page.read_text("utf-8")) for page in pages()]
    assert {path.stem for path in (DOCS / "pictures").iterdir()} == set(PICTURES) == set().union(*shown)


def test_the_reference_has_every_public_name() -> None:
    listed = re.findall(r"^::: midmask\.(\w+)$", (DOCS / "reference" / "python.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(midmask.__all__)
