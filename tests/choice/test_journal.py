"""Decisions survive a kill; another contest in the same folder does not inherit them."""

import json

from midmask.choice.entrants import LEXICAL, TUNED, Entrant, Size
from midmask.choice.journal import FILE, Journal, Round

MLM = Entrant("mlm", "dense", TUNED)


def test_what_was_decided_is_read_again(tmp_path):
    first = Journal(tmp_path / "new", "one")
    first.decide(Round(Size(30, 20), (LEXICAL, MLM)))
    first.give_up([MLM], "behind")
    first.write(spent=12.5)
    again = Journal(tmp_path / "new", "one")
    assert again.rounds == first.rounds
    assert again.spent == 12.5
    assert again.given_up == {"mlm · dense": "behind"}


def test_another_contest_begins_afresh(tmp_path):
    Journal(tmp_path, "one").write(spent=99)
    assert Journal(tmp_path, "two").spent == 0


def test_a_torn_file_is_no_decision(tmp_path):
    (tmp_path / FILE).write_text('{"identity": "one", "spent": 9')
    assert Journal(tmp_path, "one").rounds == []


def test_the_file_says_what_people_would_ask(tmp_path):
    Journal(tmp_path, "one").decide(Round(Size(30, 20), (MLM,)))
    found = json.loads((tmp_path / FILE).read_text())
    assert found["rounds"][0]["size"] == {"pretrain": 30, "finetune": 20}
    assert found["rounds"][0]["entrants"][0]["system"] == "mlm"
