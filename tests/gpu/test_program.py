"""The program for a GPU in its CPU mode: it runs with nothing installed but what it says."""

from pathlib import Path

import pytest

from midmask.objectives import FINETUNING, PRETRAINING
from tests.gpu.page import read_sections
from tests.support.encoders.models import VARIANTS
from tests.support.gpu.bare import run
from tests.support.objectives.ranked import REPRESENTATIONS


def rows_of(section: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_all_parts_run_without_a_gpu_and_without_ray_or_faiss(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    outcome = run("tests.gpu", "--cpu", "--methods", "mlm", "--out", str(page))
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    sections = read_sections(page.read_text())
    assert list(sections) == ["The same numbers as on a CPU", "Speed", "A training"]
    assert all(section in outcome.stdout for section in sections.values())
    compared, timed, trained = map(rows_of, sections.values())
    assert {row[-1] for row in compared} == {"yes"}
    names: dict[str, set[str]] = {}
    for kind, name, *_ in compared:
        names.setdefault(kind, set()).add(name.partition(",")[0])
    methods = {*PRETRAINING, *FINETUNING, "cross_encoder", "generation"}
    assert names["objective"] == names["draw"] == methods
    assert names["encoding"] == {name.partition(",")[0] for name in REPRESENTATIONS}
    assert names["encoder"] == {name.partition(",")[0] for name in VARIANTS}
    assert [row[:3] for row in timed] == [
        ["mlm", length, compiled] for compiled in ("no", "yes") for length in ("16", "32")
    ]
    assert all(float(row[3].replace(",", "")) > 0 and row[-1].endswith("%") for row in timed)
    assert [row[0] for row in trained] == ["none, dense", "RetroMAE, dense", "none, SPLADE", "RetroMAE, SPLADE"]
    assert all(0 < float(cell) < 1 for row in trained for cell in row[1:3])


@pytest.mark.slow
def test_every_method_is_timed() -> None:
    outcome = run("tests.gpu", "--cpu", "--part", "speed")
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    timed = [row[0] for row in rows_of(outcome.stdout)]
    assert sorted(timed) == sorted([*PRETRAINING] * 4)
