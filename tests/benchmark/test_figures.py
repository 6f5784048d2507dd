"""Gains over a baseline, against the truth; intervals over several middle trainings."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from midmask.benchmark import figures
from midmask.benchmark.results import Results, SystemKey, read_results, weigh
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import contrast
from midmask.evaluation.tables import ComparisonProtocol, by_measure, tabulate
from midmask.store.place import Place
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


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_gains_are_over_the_baseline_of_the_same_setting_on_test():
    text = figures.gains(found(QUIET), "none", "RR@10")
    head, _, mlm, retromae = cells(text)
    assert head == ["evaluated on", "system", *SETTINGS] and "each middle training was run once" in text
    assert mlm[:4] == ["squad test, dense", "mlm", *(f"{x} [{x}, {x}], p < 0.0001" for x in ("-0.0200", "+0.0100"))]
    assert retromae[1] == "retromae" and [cell[:7] for cell in retromae[2:]] == ["+0.0200", "+0.0100", "-0.0100"]


def test_there_is_no_table_without_a_baseline():
    for made, baseline in ((found(), None), (found(), "bm25"), (Results([]), "none")):
        assert figures.gains(made, baseline, "RR@10") == ""


def test_what_was_read_stands_beside_a_system_where_it_differs():
    truth = {dense(name, setting=one): 0.3 for name in ("none", "mlm") for one in SETTINGS[:2]}
    more = {dense("mlm", collection="wiki", setting=SETTINGS[1]): 0.4}
    made = results(drawn({**truth, **more}, noise=QUIET))
    rows = cells(figures.gains_table(figures.gains_of(made, "none", "RR@10")))[2:]
    assert [row[1] for row in rows] == ["mlm (corpus)", "mlm (wiki)"] and rows[1][2] == "—"


def test_the_figure_draws_every_gain_with_its_interval_in_a_panel_for_each_view():
    gains = figures.gains_of(found(), "none", "RR@10")
    drawing = ElementTree.fromstring(figures.draw_gains(gains, "none", "RR@10"))
    texts = {text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert {"squad test, dense", *SETTINGS, "mlm", "retromae"} <= texts
    assert figures.draw_gains(gains, "none", "RR@10") == figures.draw_gains(gains, "none", "RR@10")
    assert figures.INK not in figures.draw_gains(gains, "none", "RR@10"), "text follows the page, light or dark"


RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
RECORDS = RESULTS / "records" / "pretrained"


def test_the_page_has_the_differences_to_mlm_that_the_records_give():
    """Twelve, all positive, smaller the more labels follow."""
    table = figures.gains_table(figures.gains_of_records(RECORDS, "mlm", ("retromae", "dupmae"), SETTINGS, "nDCG@10"))
    assert table in (RESULTS / "pretrained.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+) test, dense +\| +(\w+) \| (.*) \|$", table, re.M)
    assert {row[:2] for row in rows} == {(c, s) for c in ("squad", "cranfield") for s in ("retromae", "dupmae")}
    cells = [re.findall(r"([+-][\d.]+) \[", row[2]) for row in rows]
    assert all(float(cell) > 0 for own in cells for cell in own)
    assert all(float(few) > float(more) for own in cells for few, more in pairwise(own))
    for system, setting, named in (("bert", "no labels", "dupmae"), ("dupmae", "no label", "no labels")):
        with pytest.raises(UserError, match=named):
            figures.gains_of_records(RECORDS, "mlm", (system,), (setting,), "nDCG@10")


@pytest.mark.parametrize(
    ("baseline", "systems"), [("none", ("mlm", "retromae", "dupmae")), ("mlm", ("retromae", "dupmae"))]
)
def test_the_canonical_page_has_the_gains_that_the_records_give(baseline, systems):
    gains = figures.gains_of_records(RESULTS / "records" / "canonical", baseline, systems, SETTINGS[1:], "nDCG@10")
    assert len(gains) == 4 * len(systems)
    assert figures.gains_table(gains) in (RESULTS / "canonical.md").read_text("utf-8")


@pytest.mark.parametrize("corpus", ["squad", "cranfield"])
def test_a_difference_of_one_seed_is_that_of_a_paired_t_test(corpus):
    values = []
    for name in ("dupmae", "mlm"):
        (file,) = RECORDS.glob(f"{name}-corpus-dense-no-labels-seed-0-*.parquet")
        rows = pq.read_table(file).to_pylist()
        here = [row for row in rows if (row["corpus"], row["split"], row["measure"]) == (corpus, "test", "nDCG@10")]
        values.append(np.array([row["value"] for row in sorted(here, key=lambda row: row["query_id"])]))
    interval = stats.ttest_rel(*values).confidence_interval(0.95)
    gains = figures.gains_of_records(RECORDS, "mlm", ("dupmae",), ("no labels", "1k labels"), "nDCG@10")
    (own,) = (one.estimate for one in gains if one.title.startswith(corpus) and one.setting == "no labels")
    found = own.value, own.low, own.high
    assert found == pytest.approx((np.mean(values[0] - values[1]), interval.low, interval.high), abs=1e-9)


RETROMAE, NONE = dense("retromae"), dense("none")
PLACES = [("msmarco", "dev")]


def gain(measured: Results):
    return contrast([weigh(key, sign, measured, PLACES, "RR@10") for key, sign in ((RETROMAE, 1.0), (NONE, -1.0))])


@pytest.mark.parametrize(
    ("noise", "seeds"),
    [(Noise(seed=0.01, pretrain=0.03), 1), (Noise(seed=0.02, pretrain=0.02), 2), (Noise(seed=0, pretrain=0), 2)],
)
def test_intervals_over_three_middle_trainings_cover_the_truth_in_93_to_97_percent(noise, seeds):
    """1,500 draws a case, whose standard error is 0.6%."""
    truth = {RETROMAE: 0.43, NONE: 0.40}
    given = (drawn(truth, noise=noise, seeds=seeds, pretrain_seeds=3, draw=draw) for draw in range(1500))
    covered = [found.low <= 0.03 <= found.high for found in (gain(results(one)) for one in given)]
    assert 0.93 <= np.mean(covered) <= 0.97


def test_fine_tuning_seeds_of_one_middle_training_are_no_further_evidence_of_it():
    one = results(drawn({RETROMAE: 0.5, NONE: 0.4}, seeds=1, pretrain_seeds=3))
    two = results(one, [replace(found, seed=found.seed + 10) for found in one.where(system="retromae")])
    first, again = gain(one), gain(two)
    assert (first.low, first.high, first.seeds) == pytest.approx((again.low, again.high, 3))
    assert weigh(RETROMAE, 1, two, PLACES, "RR@10").samples[0].values_SQ.shape == (3, 100)


def test_a_report_tests_over_queries_and_middle_trainings():
    """The t-test of a table, from its definition: the differences of queries, and the pooled spread of the means."""
    measured = results(drawn({RETROMAE: 0.45, NONE: 0.4}, seeds=2, pretrain_seeds=3))
    per_query = measured.per_query(*PLACES[0])
    assert {name: len(tables) for name, tables in per_query.items()} == {"retromae": 3, "none": 6}
    read = lambda table: table.sort_by("query_id")["value"].to_numpy()  # noqa: E731
    values = {name: np.array([*map(read, tables)]) for name, tables in per_query.items()}
    (row,) = tabulate(by_measure(per_query, ["RR@10"]), ComparisonProtocol(seeds=True)).comparisons["RR@10"]
    difference = values["none"].mean(0) - values["retromae"].mean(0)
    spread = sum(own.mean(1).var(ddof=1) * (len(own) - 1) for own in values.values()) / 7
    parts = difference.var(ddof=1) / 100, spread * (1 / 6 + 1 / 3)
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 99 + parts[1] ** 2 / 7)
    assert row.difference == pytest.approx(difference.mean()) and row.seeds == 6
    assert row.p == pytest.approx(2 * stats.t.sf(abs(difference.mean()) / math.sqrt(sum(parts)), freedom))


def test_files_keep_the_seed_of_the_middle_training_and_those_without_are_read(tmp_path: Path):
    measured = results(drawn({RETROMAE: 0.45, NONE: 0.4}, seeds=2, pretrain_seeds=2))
    file = tmp_path / "results.parquet"
    measured.write(Place(str(file)))
    read, _ = read_results(Place(str(file)))
    nested, flat = [(0, 0), (0, 1), (1, 2), (1, 3)], [(None, seed) for seed in range(4)]
    assert [(one.pretrain_seed, one.seed) for one in read] == nested + flat
    table = pq.read_table(file)
    older = pq.ParquetWriter(file, table.schema.remove(table.schema.get_field_index("pretrain_seed")))
    with older:
        for number in range(8):
            older.write_table(table.slice(100 * number, 100).drop_columns(["pretrain_seed"]))
    assert {one.pretrain_seed for one in read_results(Place(str(file)))[0]} == {None}
