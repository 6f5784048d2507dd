"""The figure of gains: its numbers against differences made by hand, and when there is nothing to draw."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from midmask.benchmark.results import Results, SystemKey
from midmask.errors import UserError
from midmask.evaluation.measures import by_query
from midmask_papers.gains import gain_panels, gains_figure, gains_of_records
from tests.support.benchmark.synthetic import Noise, dense, drawn, results

SETTINGS = ("no labels", "1k labels", "10k labels")
LEVELS = {"none": (0.60, 0.65, 0.70), "mlm": (0.58, 0.66, 0.70), "retromae": (0.62, 0.66, 0.69)}
TRUTH = {
    dense(name, setting=setting): value
    for name, row in LEVELS.items()
    for setting, value in zip(SETTINGS, row, strict=True)
}
QUIET, LOUD = Noise().scaled(1e-6), Noise()
BM25 = SystemKey("bm25", "none", "bm25", "none")


def found(noise: Noise = LOUD, seeds: int = 3) -> Results:
    dev = drawn({key: 1 - value for key, value in TRUTH.items()}, corpus="squad", split="dev", seeds=seeds)
    return results(dev, drawn({**TRUTH, BM25: 0.8}, noise=noise, corpus="squad", split="test", seeds=seeds))


def test_gains_are_over_the_baseline_of_the_same_setting_on_test():
    (panel,) = gain_panels(found(QUIET), "none", "RR@10")
    assert (panel.corpus, panel.split, panel.settings) == ("squad", "test", SETTINGS)
    values = {name: [row[setting].value for setting in SETTINGS] for name, row in panel.gains.items()}
    assert values["mlm"] == pytest.approx([-0.02, 0.01, 0.0], abs=1e-5)
    assert values["retromae"] == pytest.approx([0.02, 0.01, -0.01], abs=1e-5)


def test_with_one_seed_the_interval_is_that_of_a_paired_t_test():
    own = found(seeds=1)
    (panel,) = gain_panels(own, "none", "RR@10")
    pair = []
    for name in ("retromae", "none"):
        (one,) = own.where(system=name, setting="1k labels", split="test")
        values = by_query(one.per_query, "RR@10")
        pair.append(np.array([values[query] for query in sorted(values)]))
    expected = stats.ttest_rel(*pair).confidence_interval(0.95)
    gain = panel.gains["retromae"]["1k labels"]
    assert (gain.low, gain.high) == pytest.approx((expected.low, expected.high))


def test_the_figure_has_its_table_and_without_a_baseline_in_two_settings_nothing_is_drawn(tmp_path: Path):
    text = gains_figure(found(QUIET), tmp_path / "figures" / "gains.png", "none", "RR@10")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert cells[2][:4] == ["squad test, dense", "mlm", *(f"{x} [{x}, {x}]" for x in ("-0.0200", "+0.0100"))]
    assert (tmp_path / "figures" / "gains.png").read_bytes().startswith(b"\x89PNG")
    one = results(drawn({dense("none"): 0.3, dense("mlm"): 0.4}))
    for made, baseline in ((one, "none"), (found(), None), (Results([]), "none")):
        assert gains_figure(made, tmp_path / "a.png", baseline, "RR@10") == ""
    assert not (tmp_path / "a.png").exists()


RECORDS = Path(__file__).resolve().parents[2] / "docs" / "results" / "records" / "pretrained"
LABELS = ("no labels", "1k labels", "10k labels")


def test_the_page_has_the_differences_to_mlm_that_the_records_give():
    """Twelve, all positive, smaller the more labels follow."""
    table = gains_of_records(RECORDS, "mlm", ("retromae", "dupmae"), LABELS, "nDCG@10")
    assert table in (RECORDS.parents[1] / "pretrained.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+) test, dense +\| +(\w+) \| (.*) \|$", table, re.M)
    assert {row[:2] for row in rows} == {(c, s) for c in ("squad", "cranfield") for s in ("retromae", "dupmae")}
    cells = [re.findall(r"([+-][\d.]+) \[", row[2]) for row in rows]
    assert all(float(cell) > 0 for own in cells for cell in own)
    assert all(float(few) > float(more) for own in cells for few, more in pairwise(own))
    for system, setting, named in (("bert", "no labels", "dupmae"), ("dupmae", "no label", "no labels")):
        with pytest.raises(UserError, match=named):
            gains_of_records(RECORDS, "mlm", (system,), (setting,), "nDCG@10")


@pytest.mark.parametrize("corpus", ["squad", "cranfield"])
def test_a_difference_of_one_seed_is_that_of_a_paired_t_test(corpus):
    values = []
    for name in ("dupmae", "mlm"):
        (file,) = RECORDS.glob(f"{name}-corpus-dense-no-labels-seed-0-*.parquet")
        rows = pq.read_table(file).to_pylist()
        here = [row for row in rows if (row["corpus"], row["split"], row["measure"]) == (corpus, "test", "nDCG@10")]
        values.append(np.array([row["value"] for row in sorted(here, key=lambda row: row["query_id"])]))
    interval = stats.ttest_rel(*values).confidence_interval(0.95)
    table = gains_of_records(RECORDS, "mlm", ("dupmae",), ("no labels", "1k labels"), "nDCG@10")
    (row,) = (line for line in table.splitlines() if line.startswith(f"| {corpus} "))
    assert f"{np.mean(values[0] - values[1]):+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]" in row
