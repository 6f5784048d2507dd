"""README: short, its commands exist, its Python is the guide's, and its figures are those of a committed result."""

import re

from tests.support.docs.markdown import DOCS, ROOT, prose_words

README = (ROOT / "README.md").read_text("utf-8")
RESULT = (DOCS / "results" / "demo.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_it_has_at_most_500_words_beside_code_and_the_table() -> None:
    assert prose_words(README) <= 500


def test_the_count_leaves_out_code_tables_and_targets_of_links() -> None:
    text = "Two words.\n```sh\nnot these\n```\n| nor | these |\nand [a link](to/some page.md)\n"
    assert prose_words(text) == len(["Two", "words.", "and", "[a", "link]"])


def test_its_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", "".join(blocks(README, "sh")))) <= targets


def test_its_lines_of_python_are_those_of_the_guide_which_a_test_runs() -> None:
    guide = (DOCS / "python.md").read_text("utf-8")
    assert blocks(README, "python") == blocks(guide, "python")[:1]


def test_every_figure_of_its_table_stands_in_the_result_that_it_links() -> None:
    figures = re.findall(r"[+-]?\d[\d.]*(?:e-\d+)?(?: ± [\d.]+)?", "\n".join(re.findall(r"^\|.*\|$", README, re.M)[2:]))
    cells = {cell.strip() for line in RESULT.splitlines() if line.startswith("|") for cell in line.split("|")}
    of_names = {"25", "0.3", "0.15"}
    assert len(figures) > 10 and not {figure for figure in figures if figure not in cells} - of_names
