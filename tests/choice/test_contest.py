"""A contest's rounds, where it searches for its test queries, and its decisions, which survive a kill."""

import threading
from pathlib import Path

import pytest

from midmask.choice.budget import SHORTEST, Clock
from midmask.choice.contenders import LEXICAL, MINED, TUNED, Contender, Size, first_contenders
from midmask.choice.contest import USED, Contest
from midmask.choice.contest_terms import Conditions
from midmask.choice.journal import FILE, ContestJournal, Round
from midmask.choice.prices import Prices
from tests.support.choice.contests import conditions_in, workshop


@pytest.fixture
def conditions(tmp_path: Path) -> Conditions:
    return conditions_in(tmp_path)


def held(conditions: Conditions, folder, budget: float):
    """A contest of BM25 alone."""
    running = Contest(conditions, workshop(folder), Clock(budget), ContestJournal(folder / "verdict", "one"))
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
    journal = ContestJournal(tmp_path / "verdict", "one")
    outcome = Contest(conditions, workshop(tmp_path), Clock(1e6), journal).hold(first_contenders(["none"], "tiny"))
    first, second = journal.rounds
    assert first.size == second.size
    tuned, mined = (Contender("none", "dense", setting) for setting in (TUNED, MINED))
    assert set(first.contenders) == {LEXICAL, tuned} and set(second.contenders) == {LEXICAL, tuned, mined}
    assert set(outcome.finalists) == {LEXICAL, tuned, mined}
    # 20 steps to learn the machine's pace; then one stage, and two where negatives are mined by the first one's encoder
    assert len(list((tmp_path / "store" / "finetune").iterdir())) == 3


TUNED_ONLY, MLM = (Contender(system, "dense", TUNED) for system in ("none", "mlm"))


def test_time_is_kept_for_fewer_tests_where_nothing_could_be_trained_otherwise(conditions, tmp_path) -> None:
    """By the budget alone: what is searched for the test queries, and how much time is kept for it."""
    waiting = (LEXICAL, TUNED_ONLY, MLM)
    shop = workshop(tmp_path)
    prices = Prices(Contest(conditions, shop, Clock(1e6), ContestJournal(tmp_path / "p", "p")).cells, shop, 1e6)
    one, two = (prices.of_tests(waiting[:count], lambda _: SHORTEST) for count in (2, 3))
    trained = prices.of_round(waiting, SHORTEST)
    assert one < two

    def kept(budget: float) -> tuple[float | None, bool | None]:
        journal = ContestJournal(tmp_path / str(budget), "one")
        journal.pace = 1e6
        running = Contest(conditions, shop, Clock(budget), journal)
        running.keep_time_for_tests(waiting, lambda count, size: prices.of_round(waiting[:count], size))
        return journal.kept, journal.sampled

    assert kept(10 * (trained + two)) == (pytest.approx(two), False)
    assert kept((trained + (one + two) / 2) / USED) == (pytest.approx(one), False)


MLM_TUNED = Contender("mlm", "dense", TUNED)


def test_what_was_decided_is_read_again(tmp_path):
    first = ContestJournal(tmp_path / "new", "one")
    first.decide(Round(Size(30, 20), (LEXICAL, MLM_TUNED), until=12.0))
    first.give_up([MLM_TUNED], "behind")
    assert first.finalists is None
    first.choose_finalists([MLM_TUNED])
    first.pace, first.sampled = 0.25, True
    first.write(spent=12.5)
    again = ContestJournal(tmp_path / "new", "one")
    assert again.rounds == first.rounds
    assert (again.spent, again.pace, again.sampled, again.finalists) == (12.5, 0.25, True, (MLM_TUNED,))
    assert again.given_up == {"mlm · dense": "behind"}


def test_another_contest_begins_afresh(tmp_path):
    ContestJournal(tmp_path, "one").write(spent=99)
    assert ContestJournal(tmp_path, "two").spent == 0
    (tmp_path / FILE).write_text('{"identity": "one", "spent": 9')
    assert ContestJournal(tmp_path, "one").spent == 0, "a torn file is no decision"


def test_a_kill_hides_no_more_time_than_a_tick(tmp_path):
    """What another process would read while this one runs grows, though nothing is decided."""
    journal, spent = ContestJournal(tmp_path, "one"), set()
    with journal.keep_time(Clock(1e6, spent=50.0), every=0.01):
        while len(spent) < 5:
            spent.add(ContestJournal(tmp_path, "one").spent)
    assert {value for value in spent if value} and all(value >= 50.0 for value in spent if value)
    after = (tmp_path / FILE).read_bytes()
    assert not [thread for thread in threading.enumerate() if thread.name == "contest-clock"]
    assert (tmp_path / FILE).read_bytes() == after
