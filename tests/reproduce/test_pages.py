"""Reproduction pages: each preset has one, its commands are the job's, its figures what runs or papers give."""

import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from midmask.benchmark.presets import PRESETS
from midmask.benchmark.results import Result, Results, SystemKey, read_results
from midmask.store.place import Place
from midmask_papers.published import PAPERS, published
from midmask_papers.tables import Sheet
from tests.tools.expected import FLOOR, FOLDER, SCALES, Figure, expected, figures, section

ROOT = FOLDER.parents[1]


def commands(name: str, scale: str) -> list[str]:
    """The words of the job's command, which is the last of the block."""
    *_, last = section(name, scale).command.replace("\\\n", " ").strip().splitlines()
    return shlex.split(last)


def test_there_is_a_page_per_preset():
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == sorted(PRESETS)


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_page_runs_the_job_with_its_preset_and_promises_of_its_toy_what_can_be_tested(name):
    for scale in SCALES:
        python, job, *flags = commands(name, scale)
        assert (python, job) == ("python", "jobs/benchmark_middle_training.py") and flags[:2] == ["--preset", name]
        assert ("published" in flags) == (scale == "Full")
    flags, toy = commands(name, "Toy"), section(name, "Toy")
    assert toy.figures and all(one.tolerance for one in toy.figures)
    if "--systems" in flags:
        asked = re.findall(r"[a-z_]\w*(?:\[[^]]*\])?", flags[flags.index("--systems") + 1])
        assert {*(one.key.system for one in toy.figures), *re.findall(r"`(.*?)`", toy.left_out)} == {*asked, "bm25"}
    for promised in (toy.figures, section(name, "Small").figures):
        levels = {one.measure: one.value for one in promised if one.key.system == "bm25"}
        assert all(one.value >= levels[one.measure] / 10 and one.tolerance <= one.value / 4 for one in promised)


@pytest.mark.parametrize("name", PAPERS)
def test_figures_at_full_scale_are_what_the_paper_prints(name):
    printed = {
        Figure(
            SystemKey(one.system, one.collection, one.representation, one.setting),
            *(one.corpus, one.split, one.measure, round(one.value, 4), None, one.against),
        )
        for one in published(name)
    }
    promised = section(name, "Full").figures
    assert printed.issuperset(promised)
    assert promised or name == "rom"


def test_a_difference_is_marked_as_one_and_is_no_value_of_the_system():
    """RetroMAE's text claims +1.96 points over the best baseline; its table has 0.3553 for the system itself."""
    key = SystemKey("retromae", "wiki", "dense", "dpr")
    own = [one for one in section("retromae", "Full").figures if one.key == key and one.measure == "RR@10"]
    assert {(one.value, one.against) for one in own} == {(0.3553, ""), (0.0196, "the best baseline")}
    marked = next(one for one in own if one.against)
    assert str(marked) == "RR@10 over the best baseline +0.0196"
    text, main = (Sheet(paper="retromae", name=name, heading="", table=name).slots() for name in ("text", "main"))
    assert text == [], "in no table"
    assert len(main) > 20


@pytest.mark.parametrize("name", [name for name in (*PAPERS, "demo") if section(name, "Small").figures])
def test_a_small_table_is_what_the_records_of_its_run_give(name):
    small = section(name, "Small")
    promised = small.figures
    (where,) = {(one.corpus, one.split) for one in promised}
    files = sorted((ROOT / "docs" / "results" / "records" / name).glob("*.parquet"))
    measured = Results(one for file in files for one in read_results(Place(str(file)))[0])
    found, left_out = expected(figures(measured, *where, sorted({one.measure for one in promised})))
    assert sorted((one.row, str(one)) for one in found) == sorted((one.row, str(one)) for one in promised)
    assert left_out == small.left_out


def test_figures_that_test_nothing_are_left_out_and_named():
    """A cell below a tenth of BM25 goes with all its measures; of others, what may change by more than a quarter."""

    def figure(system: str, measure: str, value: float, tolerance: float) -> Figure:
        return Figure(SystemKey(system, "corpus", "dense", "s"), "c", "test", measure, value, tolerance)

    bm25 = [figure("bm25", "RR@10", 0.8, 0.001), figure("bm25", "R@100", 0.95, 0.001)]
    good = [figure("good", "RR@10", 0.2, 0.05), figure("good", "R@100", 0.6, 0.1)]
    wide = [figure("wide", "RR@10", 0.2, 0.051), figure("wide", "R@100", 0.6, 0.1)]
    short = [figure("short", "RR@10", 0.079, 0.001), figure("short", "R@100", 0.5, 0.01)]
    kept, left_out = expected([*short, *wide, *good, *bm25])
    assert kept == [wide[1], *good, *bm25]
    assert re.findall(r"(\d) of 8 values.*?`(\w+)`", left_out) == [("2", "short"), ("1", "wide")]
    assert expected([*good, *bm25]) == ([*good, *bm25], "")
    assert expected(good)[0] == [], "nothing shows that it has learned"


def test_a_tolerance_is_that_of_two_means_over_pooled_seeds():
    rng = np.random.default_rng(0)
    drawn = {"a": rng.normal(0.3, 0.01, 3), "b": rng.normal(0.4, 0.03, 3)}
    empty = pa.table({"query_id": [], "measure": [], "value": []})
    results = Results(
        Result(SystemKey(name, "corpus", "dense", "s"), seed, "c", "dev", {"RR@10": value}, empty)
        for name, values in drawn.items()
        for seed, value in enumerate(values)
    )
    a, b = figures(results, "c", "dev", ["RR@10"])
    spread = math.sqrt((drawn["a"].var(ddof=1) + drawn["b"].var(ddof=1)) / 2)
    quantile = 3.495406  # Student's t, 4 degrees of freedom, 0.05 over two figures, two-sided: t(0.9875)
    assert a.value == pytest.approx(drawn["a"].mean()) and b.value == pytest.approx(drawn["b"].mean())
    assert a.tolerance == b.tolerance == pytest.approx(quantile * spread * math.sqrt(2 / 3), rel=1e-4)
    (alone,) = figures(Results([results[0]]), "c", "dev", ["RR@10"])
    assert alone.tolerance == FLOOR


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", list(PRESETS))
def test_the_toy_gives_what_its_page_promises(name: str, tmp_path: Path):
    binaries = str(Path(sys.executable).parent)
    environment = {**os.environ, "MIDMASK_HOME": str(tmp_path), "PATH": f"{binaries}:{os.environ['PATH']}"}
    toy = section(name, "Toy")
    command = ["bash", "-euo", "pipefail", "-c", toy.command]
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[-3000:]
    results, _ = read_results(Place(str(tmp_path / "benchmarks" / name / "results.parquet")))
    promised = toy.figures
    (where,) = {(one.corpus, one.split) for one in promised}
    found = figures(results, *where, sorted({one.measure for one in promised}))
    measured = {(one.key, one.measure): one.value for one in found}
    named = {*(one.key.system for one in promised), *re.findall(r"`(.*?)`", toy.left_out)}
    assert {one.key.system for one in found} <= named
    assert not [one for one in promised if not abs(measured[one.key, one.measure] - one.value) <= one.tolerance]
