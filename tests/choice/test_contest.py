"""A contest's rounds, and where it searches for its test queries."""

from collections.abc import Sequence

import pytest

from midmask.artifact import Place
from midmask.benchmark.cells import BenchmarkCell
from midmask.choice.budget import SHORTEST, Clock, Limits
from midmask.choice.contenders import LEXICAL, MINED, TUNED, Contender, contest, first_contenders
from midmask.choice.contest import USED, Contest
from midmask.choice.contest_terms import Conditions
from midmask.choice.journal import ContestJournal
from midmask.choice.prices import Prices
from midmask.choice.samples import Sample
from midmask.choice.workshop import LocalWorkshop
from midmask.corpora import CorpusConfig
from midmask.errors import UserError
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.experiment.survey import Survey
from tests.support.benchmark.tiny import write_collection
from tests.support.choice.documents import SETTINGS

CHANGES = {path: value for path, value in SETTINGS.items() if "steps" not in path}


@pytest.fixture
def conditions(tmp_path) -> Conditions:
    """Of a collection, and of another one that is its sample."""
    whole, part = write_collection(tmp_path / "whole"), write_collection(tmp_path / "part")
    return Conditions(
        make=lambda size, splits: contest(whole, ["none", "mlm"], size, splits, CHANGES, 0),
        seed=0,
        limits=Limits(48, 24),
        representations=("dense",),
        taught=False,
        survey=Survey(),
        sample=lambda split: Sample(CorpusConfig(name=part, splits="official"), 48),
    )


def held(conditions: Conditions, folder, budget: float):
    """A contest of BM25 alone."""
    workshop = LocalWorkshop(Runner(Place(str(folder / "store")), LOCAL, Silent()))
    running = Contest(conditions, workshop, Clock(budget), ContestJournal(folder / "verdict", "one"))
    return running, running.hold([LEXICAL])


def searched(running: Contest, split: str) -> set[str]:
    """Folders of the collections that BM25 searches for a split."""
    steps = [step for cell in running.cells(LEXICAL, SHORTEST, split) for step in cell.evaluations.values()]
    made = [one for step in steps for one in step.upstream() if one.name == "prepare"]
    return {one.config.name.rpartition("/")[2] for one in made}


@pytest.mark.parametrize("budget, where", [(1e6, "whole"), (1e-3, "part")])
def test_test_queries_are_searched_in_a_sample_where_the_whole_is_too_dear(conditions, tmp_path, budget, where) -> None:
    running, outcome = held(conditions, tmp_path, budget)
    assert searched(running, "dev") == {"part"}, "rounds search the sample in any case"
    assert searched(running, "test") == {where}
    assert (outcome.tested_on is None) == (where == "whole")
    assert outcome.measured == (LEXICAL,), "what needs no training is measured, also where the budget is spent"
    again, _ = held(conditions, tmp_path, 1e6)
    assert searched(again, "test") == {where}, "decided once, whatever time is left"


def test_nothing_is_trained_again_as_long_as_before(conditions, tmp_path) -> None:
    """The collection bounds trainings to 20 steps: a second round can only try what is new, a third one nothing."""
    workshop = LocalWorkshop(Runner(Place(str(tmp_path / "store")), LOCAL, Silent()))
    journal = ContestJournal(tmp_path / "verdict", "one")
    outcome = Contest(conditions, workshop, Clock(1e6), journal).hold(first_contenders(["none"], "tiny"))
    first, second = journal.rounds
    assert first.size == second.size
    tuned, mined = (Contender("none", "dense", setting) for setting in (TUNED, MINED))
    assert set(first.contenders) == {LEXICAL, tuned} and set(second.contenders) == {LEXICAL, tuned, mined}
    assert set(outcome.finalists) == {LEXICAL, tuned, mined}
    # 20 steps to learn the machine's pace; then one stage, and two where negatives are mined by the first one's encoder
    assert len(list((tmp_path / "store" / "finetune").iterdir())) == 3


TUNED_ONLY, MLM = (Contender(system, "dense", TUNED) for system in ("none", "mlm"))


def test_what_is_trained_already_takes_part_though_no_time_is_left(conditions, tmp_path) -> None:
    """And what there was no time for is tried by a later round that has some."""
    workshop = LocalWorkshop(Runner(Place(str(tmp_path / "store")), LOCAL, Silent()))
    Contest(conditions, workshop, Clock(1e6), ContestJournal(tmp_path / "first", "one")).hold([LEXICAL, TUNED_ONLY])
    journal = ContestJournal(tmp_path / "second", "one")
    outcome = Contest(conditions, workshop, Clock(60.0, spent=59.0), journal).hold([LEXICAL, TUNED_ONLY, MLM])
    assert outcome.measured == (LEXICAL, TUNED_ONLY) and outcome.not_tried.keys() == {MLM.label}
    assert outcome.enough is not None and outcome.enough > 60.0
    journal.finalists = None
    again = Contest(conditions, workshop, Clock(1e6), journal).hold([LEXICAL, TUNED_ONLY, MLM])
    assert MLM in again.measured and not again.not_tried
    assert MLM in journal.rounds[1].contenders


def test_time_is_kept_for_fewer_tests_where_nothing_could_be_trained_otherwise(conditions, tmp_path) -> None:
    """By the budget alone: what is searched for the test queries, and how much time is kept for it."""
    waiting = (LEXICAL, TUNED_ONLY, MLM)
    workshop = LocalWorkshop(Runner(Place(str(tmp_path / "store")), LOCAL, Silent()))
    prices = Prices(Contest(conditions, workshop, Clock(1e6), ContestJournal(tmp_path / "p", "p")).cells, workshop, 1e6)
    one, two = (prices.of_tests(waiting[:count], lambda _: SHORTEST) for count in (2, 3))
    trained = prices.of_round(waiting, SHORTEST)
    assert one < two

    def kept(budget: float) -> tuple[float | None, bool | None]:
        journal = ContestJournal(tmp_path / str(budget), "one")
        journal.pace = 1e6
        running = Contest(conditions, workshop, Clock(budget), journal)
        running.keep_time_for_tests(waiting, lambda count, size: prices.of_round(waiting[:count], size))
        return journal.kept, journal.sampled

    assert kept(10 * (trained + two)) == (pytest.approx(two), False)
    assert kept((trained + (one + two) / 2) / USED) == (pytest.approx(one), False)


class KeepsGoing(LocalWorkshop):
    """Measures what can be measured, as the workshop on a cluster does."""

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> dict[str, str]:
        failures = {}
        for cell in cells:
            try:
                super().measure([cell], until)
            except UserError as error:
                failures[cell.name] = str(error)
        return failures


def test_a_training_that_fails_is_not_tried_for_the_reason_that_it_failed_for(conditions, tmp_path) -> None:
    def fail(*given: object, **more: object) -> dict[str, object]:
        raise UserError("the disk is full")

    workshop = KeepsGoing(Runner(Place(str(tmp_path / "store")), {**LOCAL, "pretrain": fail}, Silent()))
    journal = ContestJournal(tmp_path / "verdict", "one")
    outcome = Contest(conditions, workshop, Clock(1e6), journal).hold([LEXICAL, TUNED_ONLY, MLM])
    assert outcome.not_tried == {MLM.label: "round 1: the disk is full"}
    assert MLM not in outcome.measured and not any(MLM in one.contenders for one in journal.rounds[1:])


def test_no_system_is_both_measured_and_not_tried(conditions, tmp_path) -> None:
    """Though MLM, which is measured in the first round, is given up."""
    workshop = LocalWorkshop(Runner(Place(str(tmp_path / "store")), LOCAL, Silent()))
    journal = ContestJournal(tmp_path / "verdict", "one")
    running = Contest(conditions, workshop, Clock(1e6), journal)
    running.hold([LEXICAL, TUNED_ONLY, MLM])
    journal.give_up([MLM], "behind")
    outcome = running.hold([LEXICAL, TUNED_ONLY, MLM])
    assert MLM in outcome.measured and MLM.label in outcome.given_up and not outcome.not_tried
