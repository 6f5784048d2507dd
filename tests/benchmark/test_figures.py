"""Figures of gains and of what was read, against the truth; the report where no package adds to it."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from midmask.benchmark import figures
from midmask.benchmark.results import Results, SystemKey, read_results, weigh
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import contrast
from midmask.evaluation.tables import ComparisonProtocol, by_measure, tabulate
from midmask.experiment.costs import Costs
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


def test_gains_are_over_the_baseline_of_the_same_setting_on_test():
    (panel,) = figures.gain_panels(found(QUIET), "none", "RR@10")
    assert (panel.title, panel.conditions) == ("squad test, dense", SETTINGS)
    values = {name: [row[setting].value for setting in SETTINGS] for name, row in panel.rows.items()}
    assert values["mlm"] == pytest.approx([-0.02, 0.01, 0.0], abs=1e-5)
    assert values["retromae"] == pytest.approx([0.02, 0.01, -0.01], abs=1e-5)


def test_the_figure_has_its_table_and_without_a_baseline_in_two_settings_nothing_is_drawn(tmp_path: Path):
    text = figures.gains_figure(found(QUIET), tmp_path / "figures" / "gains.png", "none", "RR@10")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    gains = [f"{x} [{x}, {x}], p < 0.0001" for x in ("-0.0200", "+0.0100")]
    assert cells[2][:4] == ["squad test, dense", "mlm", *gains]
    assert (tmp_path / "figures" / "gains.png").read_bytes().startswith(b"\x89PNG")
    one = results(drawn({dense("none"): 0.3, dense("mlm"): 0.4}))
    for made, baseline in ((one, "none"), (found(), None), (Results([]), "none")):
        assert figures.gains_figure(made, tmp_path / "a.png", baseline, "RR@10") == ""
    assert not (tmp_path / "a.png").exists()


def test_a_curve_has_a_point_for_each_length_of_middle_training_with_the_gain_over_the_baseline(tmp_path: Path):
    lengths = {100: 400_000, 400: 1_640_000, 1600: 6_400_000}
    gained = {"retromae": (-0.02, 0.03, 0.05), "mlm": (0.0, 0.01)}
    none = dense("none", setting="1k labels")
    truth, tokens = {none: 0.6}, {none: 0}
    for recipe, gains in gained.items():
        for gain, (steps, count) in zip(gains, lengths.items(), strict=False):
            key = dense(f"{recipe}[pretrain.steps={steps}]", setting="1k labels")
            truth[key], tokens[key] = 0.6 + gain, count
    measured = Results(
        replace(one, costs=Costs(1.0, 0.0, 0.0, tokens[one.key], 0, None, None))
        for one in drawn(truth, noise=QUIET, corpus="squad", split="test", seeds=2, pretrain_seeds=2)
    )
    (panel,) = figures.curve_panels(measured, "none", "RR@10")
    assert panel.conditions == ("0.4 M", "1.6 M", "6.4 M") and list(panel.rows) == ["retromae"]
    values = [point.value for point in panel.rows["retromae"].values()]
    assert values == pytest.approx(gained["retromae"], abs=1e-5)
    text = figures.curve_figure(measured, tmp_path / "tokens.png", "none", "RR@10")
    assert "2 middle trainings of each method" in text and (tmp_path / "tokens.png").exists()
    assert figures.curve_figure(measured.where(system="none"), tmp_path / "no.png", "none", "RR@10") == ""


RECORDS = Path(__file__).resolve().parents[2] / "docs" / "results" / "records" / "pretrained"


def test_the_page_has_the_differences_to_mlm_that_the_records_give():
    """Twelve, all positive, smaller the more labels follow."""
    table = figures.gains_of_records(RECORDS, "mlm", ("retromae", "dupmae"), SETTINGS, "nDCG@10")
    assert table in (RECORDS.parents[1] / "pretrained.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+) test, dense +\| +(\w+) \| (.*) \|$", table, re.M)
    assert {row[:2] for row in rows} == {(c, s) for c in ("squad", "cranfield") for s in ("retromae", "dupmae")}
    cells = [re.findall(r"([+-][\d.]+) \[", row[2]) for row in rows]
    assert all(float(cell) > 0 for own in cells for cell in own)
    assert all(float(few) > float(more) for own in cells for few, more in pairwise(own))
    for system, setting, named in (("bert", "no labels", "dupmae"), ("dupmae", "no label", "no labels")):
        with pytest.raises(UserError, match=named):
            figures.gains_of_records(RECORDS, "mlm", (system,), (setting,), "nDCG@10")


@pytest.mark.parametrize("corpus", ["squad", "cranfield"])
def test_a_difference_of_one_seed_is_that_of_a_paired_t_test(corpus):
    values = []
    for name in ("dupmae", "mlm"):
        (file,) = RECORDS.glob(f"{name}-corpus-dense-no-labels-seed-0-*.parquet")
        rows = pq.read_table(file).to_pylist()
        here = [row for row in rows if (row["corpus"], row["split"], row["measure"]) == (corpus, "test", "nDCG@10")]
        values.append(np.array([row["value"] for row in sorted(here, key=lambda row: row["query_id"])]))
    interval = stats.ttest_rel(*values).confidence_interval(0.95)
    table = figures.gains_of_records(RECORDS, "mlm", ("dupmae",), ("no labels", "1k labels"), "nDCG@10")
    (row,) = (line for line in table.splitlines() if line.startswith(f"| {corpus} "))
    assert f"{np.mean(values[0] - values[1]):+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]" in row


READ = {
    dense("none"): 0.10, dense("mlm", collection="wiki"): 0.11, dense("mlm", collection="squad"): 0.12,
    dense("retromae", collection="wiki"): 0.20, dense("retromae", collection="squad"): 0.26,
    dense("retromae", collection="both"): 0.24, dense("lexmae", collection="squad"): 0.90,
    SystemKey("bm25", "none", "bm25", "none"): 0.78,
}  # fmt: skip


def by_place(noise: Noise = QUIET) -> Results:
    dev = drawn({key: 1 - value for key, value in READ.items()}, noise=noise, corpus="squad", split="dev")
    half = drawn({key: value / 2 for key, value in READ.items()}, noise=noise, corpus="cranfield", split="test")
    return results(dev, drawn(READ, noise=noise, corpus="squad", split="test"), half)


def test_systems_of_several_collections_on_test_with_their_levels():
    home, elsewhere = figures.collection_panels(by_place())
    assert home.title.startswith("squad test, dense, ") and elsewhere.title.startswith("cranfield test, ")
    assert home.conditions == ("wiki", "squad", "both") and set(home.rows) == {"mlm", "retromae"}
    for panel, factor in ((home, 1.0), (elsewhere, 0.5)):
        means = {(name, read): point.value for name, row in panel.rows.items() for read, point in row.items()}
        several = {key: value for key, value in READ.items() if key.system in ("mlm", "retromae")}
        expected = {(key.system, key.collection): factor * value for key, value in several.items()}
        assert means == pytest.approx(expected, abs=1e-5)
        levels = [level.value for level in panel.levels.values()]
        assert levels == pytest.approx([0.1 * factor, 0.78 * factor], abs=1e-5)


def test_the_table_has_means_with_the_standard_deviation_of_the_seeds(tmp_path: Path):
    noisy = by_place(Noise(query=0, system=0, seed=0.02, both=0))
    seeds = noisy.where(system="mlm", collection="wiki", corpus="squad", split="test")
    means = [one.measures["RR@10"] for one in seeds]
    mean = sum(means) / 3
    spread = (sum((value - mean) ** 2 for value in means) / 2) ** 0.5
    assert f"| {mean:.4f} ± {spread:.4f} |" in figures.collections_figure(noisy, tmp_path / "a.png")
    text = figures.collections_figure(by_place(), tmp_path / "a.png")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2][2] == "0.1000 ± 0.0000" and cells[2][-1] == "—", "what was not trained"
    assert cells[3][3:] == ["0.7800", *(f"{value} ± 0.0000" for value in ("0.2000", "0.2600", "0.2400"))]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    one = Results(result for result in by_place() if result.key.collection in ("none", "squad"))
    assert (
        figures.collections_figure(one, tmp_path / "b.png")
        == figures.collections_figure(Results([]), tmp_path / "b.png")
        == ""
    )
    assert not (tmp_path / "b.png").exists()


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
