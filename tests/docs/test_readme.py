"""README: its commands exist, its Python is the guide's, and its figures are those of a committed result."""

import re

import numpy as np
import pytest

from midmask.artifact import Place
from midmask.benchmark.results import read_results
from tests.support.docs.markdown import DOCS, ROOT

README = (ROOT / "README.md").read_text("utf-8")
RESULT = (DOCS / "results" / "demo.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_its_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", "".join(blocks(README, "sh")))) <= targets


def test_its_lines_of_python_are_those_of_the_guide_which_a_test_runs() -> None:
    guide = (DOCS / "python.md").read_text("utf-8")
    assert blocks(README, "python") == blocks(guide, "python")[:1]


def tables(text: str) -> list[list[str]]:
    """The lines of each table."""
    return [found.splitlines() for found in re.findall(r"(?:^\|.*\|\n)+", text, re.M)]


def test_every_figure_of_its_first_table_stands_in_the_result_that_it_links() -> None:
    figures = re.findall(r"[+-]?\d[\d.]*(?:e-\d+)?(?: ± [\d.]+)?", "\n".join(tables(README)[0][2:]))
    cells = {cell.strip() for line in RESULT.splitlines() if line.startswith("|") for cell in line.split("|")}
    of_names = {"25", "0.3", "0.15"}
    assert len(figures) > 10 and not {figure for figure in figures if figure not in cells} - of_names


SYSTEMS = ("none", "mlm", "retromae", "dupmae", "bm25")
"""Columns of the second table."""


@pytest.mark.parametrize(("run", "row"), [("retromae", 2), ("squad-late", 3)])
def test_figures_of_kept_runs_are_those_of_their_records(run: str, row: int) -> None:
    values: dict[str, list[float]] = {}
    for path in (DOCS / "results" / "records" / run).glob("*.parquet"):
        for one in read_results(Place(str(path)))[0].where(split="test"):
            if one.key.setting in ("none", "dpr", "in_batch"):
                values.setdefault(one.key.system, []).append(one.measures["RR@10"])
    figures = [f"{np.mean(values[name]):.3f}" if name in values else "—" for name in SYSTEMS]
    assert re.findall(r" (—|0\.\d{3}) ", tables(README)[1][row]) == figures
    assert all(len(found) == 3 for name, found in values.items() if name in SYSTEMS[:-1])


def test_figures_of_other_runs_stand_on_their_page() -> None:
    dense, _, _, splade, *_ = tables((DOCS / "results" / "squad.md").read_text("utf-8"))
    for row, table, names in (
        (4, dense, ("none", "mlm (squad)", "retromae (squad)", "dupmae (squad)", "bm25")),
        (5, splade, SYSTEMS),
    ):
        found = {re.sub(r"^\w+ ", "", cells[1].strip()): cells[3] for cells in (line.split("|") for line in table)}
        figures = [float(re.search(r"0\.\d+", found[name])[0]) for name in names]
        said = [float(figure) for figure in re.findall(r" (0\.\d{3}) ", tables(README)[1][row])]
        assert said == pytest.approx(figures, abs=0.00051)
