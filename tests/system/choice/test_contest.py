"""What a contest tries, gives up and measures, trained whole."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.benchmark.cells import BenchmarkCell
from midmask.choice.budget import Clock
from midmask.choice.contenders import LEXICAL, TUNED, Contender
from midmask.choice.contest import Contest
from midmask.choice.contest_terms import Conditions
from midmask.choice.journal import ContestJournal
from midmask.choice.workshop import LocalWorkshop
from midmask.errors import UserError
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from tests.support.choice.contests import conditions_in, workshop

TUNED_ONLY, MLM = (Contender(system, "dense", TUNED) for system in ("none", "mlm"))


@pytest.fixture
def conditions(tmp_path: Path) -> Conditions:
    return conditions_in(tmp_path)


def test_what_is_trained_already_takes_part_though_no_time_is_left(conditions, tmp_path) -> None:
    """And what there was no time for is tried by a later round that has some."""
    first = ContestJournal(tmp_path / "first", "one")
    Contest(conditions, workshop(tmp_path), Clock(1e6), first).hold([LEXICAL, TUNED_ONLY])
    journal = ContestJournal(tmp_path / "second", "one")
    outcome = Contest(conditions, workshop(tmp_path), Clock(60.0, spent=59.0), journal).hold([LEXICAL, TUNED_ONLY, MLM])
    assert outcome.measured == (LEXICAL, TUNED_ONLY) and outcome.not_tried.keys() == {MLM.label}
    assert outcome.enough is not None and outcome.enough > 60.0
    journal.finalists = None
    again = Contest(conditions, workshop(tmp_path), Clock(1e6), journal).hold([LEXICAL, TUNED_ONLY, MLM])
    assert MLM in again.measured and not again.not_tried
    assert MLM in journal.rounds[1].contenders


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

    failing = KeepsGoing(Runner(Place(str(tmp_path / "store")), {**LOCAL, "pretrain": fail}, Silent()))
    journal = ContestJournal(tmp_path / "verdict", "one")
    outcome = Contest(conditions, failing, Clock(1e6), journal).hold([LEXICAL, TUNED_ONLY, MLM])
    assert outcome.not_tried == {MLM.label: "round 1: the disk is full"}
    assert MLM not in outcome.measured and not any(MLM in one.contenders for one in journal.rounds[1:])


def test_no_system_is_both_measured_and_not_tried(conditions, tmp_path) -> None:
    """Though MLM, which is measured in the first round, is given up."""
    journal = ContestJournal(tmp_path / "verdict", "one")
    running = Contest(conditions, workshop(tmp_path), Clock(1e6), journal)
    running.hold([LEXICAL, TUNED_ONLY, MLM])
    journal.give_up([MLM], "behind")
    outcome = running.hold([LEXICAL, TUNED_ONLY, MLM])
    assert MLM in outcome.measured and MLM.label in outcome.given_up and not outcome.not_tried
