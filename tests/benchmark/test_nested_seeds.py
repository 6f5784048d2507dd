"""Middle trainings with several seeds each: what is averaged, what an interval counts, and that files keep it."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from midmask.benchmark.results import Results, read_results, weigh
from midmask.evaluation.statistics.intervals import contrast
from midmask.evaluation.tables import ComparisonProtocol, by_measure, tabulate
from midmask.store.place import Place
from tests.support.benchmark.synthetic import Noise, dense, drawn, results

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
    covered = [
        found.low <= 0.03 <= found.high
        for draw in range(1500)
        for found in [gain(results(drawn(truth, noise=noise, seeds=seeds, pretrain_seeds=3, draw=draw)))]
    ]
    assert 0.93 <= np.mean(covered) <= 0.97


def test_fine_tuning_seeds_of_one_middle_training_are_no_further_evidence_of_it():
    """A fine-tuning that gives the same again does not narrow the interval."""
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
    values = {
        name: np.array([table.sort_by("query_id")["value"].to_numpy() for table in own])
        for name, own in per_query.items()
    }
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
    assert [(one.pretrain_seed, one.seed) for one in read] == [
        (0, 0),
        (0, 1),
        (1, 2),
        (1, 3),
        *((None, seed) for seed in range(4)),
    ]
    table = pq.read_table(file)
    older = pq.ParquetWriter(file, table.schema.remove(table.schema.get_field_index("pretrain_seed")))
    with older:
        for number in range(8):
            older.write_table(table.slice(100 * number, 100).drop_columns(["pretrain_seed"]))
    assert {one.pretrain_seed for one in read_results(Place(str(file)))[0]} == {None}
