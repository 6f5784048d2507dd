"""Pages link to what exists, and list every recipe;
README's commands exist, its Python is the guide's, and its figures are those of committed results.
"""

import re
import tomllib

import numpy as np

import midmask
from midmask.benchmark.results import read_results
from midmask.recipes.methods import METHODS
from midmask.store.place import Place
from tests.support.tracked import DOCS, ROOT, anchors, pages, relative_links
from tests.tools.screenshots import PICTURES


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


README = (ROOT / "README.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def tables(text: str) -> list[list[str]]:
    """The lines of each table."""
    return [found.splitlines() for found in re.findall(r"(?:^\|.*\|\n)+", text, re.M)]


def test_commands_of_readme_exist_and_its_python_is_that_of_the_guide_which_a_test_runs() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", "".join(blocks(README, "sh")))) <= targets
    assert blocks(README, "python") == blocks((DOCS / "python.md").read_text("utf-8"), "python")[:1]


def test_every_figure_of_readmes_first_table_stands_in_the_result_that_it_links() -> None:
    figures = re.findall(r"[+-]?\d[\d.]*(?:e-\d+)?(?: ± [\d.]+)?", "\n".join(tables(README)[0][2:]))
    result = "\n".join(line for table in tables((DOCS / "results" / "demo.md").read_text("utf-8")) for line in table)
    of_names = {"25", "0.3"}
    assert len(figures) > 10 and set(figures) <= of_names | {cell.strip() for cell in re.split(r"[|\n]", result)}


def test_figures_of_late_interaction_are_those_of_their_records() -> None:
    values: dict[str, list[float]] = {}
    for path in (DOCS / "results" / "records" / "squad-late").glob("*.parquet"):
        for one in read_results(Place(str(path)))[0].where(corpus="squad", split="test"):
            values.setdefault(one.key.system, []).append(one.measures["RR@10"])
    page = (DOCS / "results" / "squad.md").read_text("utf-8").partition("## Late interaction")[2]
    said = dict(re.findall(r"^\| [a-e] (\w+) \| [^|]*\| \**(0\.\d{4})", page.partition("\n## ")[0], re.MULTILINE))
    assert said == {name: f"{np.mean(found):.4f}" for name, found in values.items()}
    assert all(len(found) == 3 for name, found in values.items() if name != "bm25")
