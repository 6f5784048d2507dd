"""Losses are drawn over all kinds and steps, and the same ones again from the same seed."""

from collections import Counter

from tests.scale.losses import AWAY_S, KINDS, OUTAGE_S, Timeline, draw

TIMELINE = Timeline([0.0, 10.0, 40.0], 100.0)
LONG = (10.0, 30.0, 60.0)


def test_kinds_are_hit_about_as_often_and_every_moment_lies_in_its_step():
    losses = draw(TIMELINE, 30, "0")
    counts = Counter(loss.kind for loss in losses)
    assert set(counts) == set(KINDS) and max(counts.values()) - min(counts.values()) <= 1
    assert {loss.step for loss in losses} == {0, 1, 2}
    assert all(0 <= loss.after <= LONG[loss.step] for loss in losses)
    assert [(loss.step, loss.after) for loss in losses] == sorted((loss.step, loss.after) for loss in losses)


def test_stores_are_away_for_a_minute_and_nodes_for_shorter_and_longer():
    losses = draw(TIMELINE, 70, "1")
    nodes = [loss.away for loss in losses if "worker" in loss.kind or loss.kind == "head"]
    stores = {loss.away for loss in losses if loss.away not in nodes}
    assert stores == {OUTAGE_S}
    assert AWAY_S[0] <= min(nodes) < 30 and 60 < max(nodes) <= AWAY_S[1]


def test_a_seed_gives_the_same_losses_and_another_others():
    assert draw(TIMELINE, 8, "2") == draw(TIMELINE, 8, "2") != draw(TIMELINE, 8, "3")
