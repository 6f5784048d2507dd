"""A contest's rounds, and where it searches for its test queries."""

import pytest

from midmask.artifact import Place
from midmask.choice.budget import SHORTEST, Clock, Limits
from midmask.choice.contenders import LEXICAL, MINED, TUNED, Contender, contest, first_contenders
from midmask.choice.contest import Contest
from midmask.choice.contest_terms import Conditions
from midmask.choice.journal import ContestJournal
from midmask.choice.samples import Sample
from midmask.choice.workshop import LocalWorkshop
from midmask.corpora import CorpusConfig
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
        make=lambda size, splits: contest(whole, ["none"], size, splits, CHANGES, 0),
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
