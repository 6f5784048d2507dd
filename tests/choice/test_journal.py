"""Decisions survive a kill; another contest in the same folder does not inherit them."""

import json

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


def test_a_torn_file_is_no_decision(tmp_path):
    (tmp_path / FILE).write_text('{"identity": "one", "spent": 9')
    assert ContestJournal(tmp_path, "one").rounds == []


def test_the_file_says_what_people_would_ask(tmp_path):
    ContestJournal(tmp_path, "one").decide(Round(Size(30, 20), (MLM,), until=9.0))
    found = json.loads((tmp_path / FILE).read_text())
    assert found["rounds"][0]["size"] == {"pretrain": 30, "finetune": 20}
    assert found["rounds"][0]["contenders"][0]["system"] == "mlm"
