"""Decisions survive a kill; another contest in the same folder does not inherit them."""

import threading

from midmask.choice.budget import Clock
from midmask.choice.contenders import LEXICAL, TUNED, Contender, Size
from midmask.choice.journal import FILE, ContestJournal, Round

MLM = Contender("mlm", "dense", TUNED)


def test_what_was_decided_is_read_again(tmp_path):
    first = ContestJournal(tmp_path / "new", "one")
    first.decide(Round(Size(30, 20), (LEXICAL, MLM), until=12.0))
    first.give_up([MLM], "behind")
    assert first.finalists is None
    first.choose_finalists([MLM])
    first.pace, first.sampled = 0.25, True
    first.write(spent=12.5)
    again = ContestJournal(tmp_path / "new", "one")
    assert again.rounds == first.rounds
    assert (again.spent, again.pace, again.sampled, again.finalists) == (12.5, 0.25, True, (MLM,))
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
