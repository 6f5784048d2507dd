"""What a contest is expected to cost: the estimate's trainings as they are, all else at the pace that was measured."""

from pathlib import Path

import pytest

from midmask.benchmark.cells import BenchmarkCell, cell_of
from midmask.benchmark.layout import recipe_of
from midmask.choice.contenders import LEXICAL, Contender, Size, contest, first_contenders
from midmask.choice.prices import Prices
from midmask.choice.workshop import LocalWorkshop
from midmask.estimate.devices import this_machine
from midmask.experiment.survey import Survey
from tests.support.benchmark.tiny import write_collection
from tests.support.choice import contests


@pytest.fixture
def cells_of(tmp_path: Path):
    corpus, survey = write_collection(tmp_path / "tiny"), Survey()

    def cells(contender: Contender, size: Size, split: str) -> list[BenchmarkCell]:
        benchmark = contest(corpus, ["none", "mlm"], size, [split], contests.CHANGES, 0)
        return [cell_of(benchmark, key, recipe_of(benchmark, key).seeded(0), 0, survey) for key in contender.keys]

    return cells


@pytest.fixture
def workshop(tmp_path: Path) -> LocalWorkshop:
    return contests.workshop(tmp_path)


_, TUNED, MLM = first_contenders(["none", "mlm"], "tiny")


def test_trainings_keep_their_price_and_all_else_follows_what_was_measured(cells_of, workshop) -> None:
    sizes = [Size(100, 100), Size(100, 200)]
    before = [Prices(cells_of, workshop, None).of_round([TUNED], size) for size in sizes]
    prices = Prices(cells_of, workshop, None)
    expected = prices.of_round([LEXICAL], Size(20, 20))
    prices.learn([LEXICAL], Size(20, 20), lambda: 1e4 * expected + 2.0)
    pace = (1e4 * expected + 2.0) / expected
    assert prices.per_utilisation == pytest.approx(pace / this_machine().device.utilisation)
    assert prices.of_round([LEXICAL], Size(20, 20)) == pytest.approx(pace * expected)
    after = [prices.of_round([TUNED], size) for size in sizes]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0]), "a hundred steps more cost the same"
    assert after[0] > 2 * before[0], "and encoding and searching more"
    again = Prices(cells_of, workshop, prices.per_utilisation)
    assert again.of_round([TUNED], sizes[0]) == pytest.approx(after[0])


def test_test_queries_cost_no_training(cells_of, workshop) -> None:
    prices = Prices(cells_of, workshop, None)
    prices.learn([LEXICAL], Size(20, 20), lambda: 0.5)
    assert prices.per_utilisation is None, "what takes no time teaches nothing"
    short = prices.of_tests([LEXICAL, MLM], lambda _: Size(20, 20))
    long = prices.of_tests([LEXICAL, MLM], lambda _: Size(900, 900))
    assert 0 < short == pytest.approx(long)
    assert short > prices.of_tests([LEXICAL], lambda _: Size(20, 20))
