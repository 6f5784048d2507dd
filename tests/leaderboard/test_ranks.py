"""Ranks and tie groups of a board, how its numbers are rounded, how settings are said, and where it opens."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from midmask.leaderboard.board import BYTES, GAIN, HOURS, SEARCH, BoardCell, BoardColumn, decimals, newest_place
from midmask.leaderboard.cells import number
from midmask.leaderboard.entries import entries
from midmask.leaderboard.export import as_csv, as_markdown
from midmask.leaderboard.marks import MOST
from midmask.leaderboard.ranks import lanes_of, range_of, rank_text
from midmask.leaderboard.rows import rows
from midmask.leaderboard.settings import said
from tests.support.dashboards import compared
from tests.support.dashboards.boards import NDCG, board, view


def by_recipe(found: dict[str, object]) -> dict[str, object]:
    return {name.partition(" ")[0]: value for name, value in found.items()}


@pytest.mark.parametrize(("order", "reverse"), [(NDCG, False), (HOURS, True)])
def test_ranks_are_those_of_the_measure_in_any_order(order: str, reverse: bool) -> None:
    shown = board(view(order=order, reverse=reverse))
    assert by_recipe(shown.ranks) == {"dupmae": 1, "retromae": 2, "none": 3, "bm25": 4}
    ranges = by_recipe({line.entry.name: range_of(shown, line) for line in shown.lines})
    assert ranges == {"dupmae": "1-2", "retromae": "1-2", "none": "", "bm25": ""}
    tied = {name: lanes == (True,) for name, lanes in by_recipe(dict(lanes_of(shown))).items()}
    assert tied == {"dupmae": True, "retromae": True, "none": False, "bm25": False}


def test_exports_tell_ranks_and_without_tests_they_are_those_of_the_means() -> None:
    shown = board(view())
    assert rank_text(shown, shown.lines[0]) == "1 (1-2)" == as_markdown(shown).splitlines()[2].split("|")[2].strip()
    assert as_csv(shown).splitlines()[1].startswith('1,1,2,"dupmae"')
    many = board(view(), [replace(shown.lines[0].entry, note=str(at)) for at in range(MOST + 1)])
    assert set(many.ranks.values()) == {1}, "equal means share a rank"
    assert not any(range_of(many, line) for line in many.lines) and not any(lanes_of(many).values())


@pytest.mark.parametrize(
    ("error", "expected"), [(0.031, 3), (0.0064, 4), (0.1, 2), (0.5, 2), (1e-9, 4), (None, 4), (0.0, 4)]
)
def test_a_measure_has_two_digits_of_its_error(error: float | None, expected: int) -> None:
    assert decimals([error]) == expected


def test_the_error_is_that_of_the_mean_over_queries() -> None:
    shown = board(view())
    means = np.mean([[*compared.values("dupmae", seed, "nDCG@10").values()] for seed in compared.SEEDS], axis=0)
    expected = means.std(ddof=1) / np.sqrt(len(means))
    assert shown.lines[0].cells[NDCG].error == pytest.approx(expected)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        *((HOURS, 1.5, "1h30m"), (BYTES, 1536.0, "1.5 kB"), (SEARCH, 0.2234, "0.223 ms")),
        *((SEARCH, 2300.0, "2.3 s"), (GAIN, 4.188, "+4.19"), (GAIN, None, "—")),
    ],
)
def test_costs_have_units(key: str, value: float | None, text: str) -> None:
    assert number(board(view()), BoardColumn(key, key), BoardCell(number=value)) == text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"objective.decoder_mask_ratio": "0.5", "objective.encoder_mask_ratio": "0.3"}, ["mask 0.30 / 0.50"]),
        ({"objective.encoder_mask_ratio": "0.125"}, ["encoder mask 0.125"]),
        ({"pretrain.steps": "1200"}, ["1,200 pre-training steps"]),
        ({"stages.1.train.steps": "300"}, ["300 fine-tuning steps stage 2"]),
        ({"corpus.max_passages": "5000"}, ["5,000 passages"]),
        ({"corpus.max_passages": "null"}, ["all passages"]),
        ({"representation.width": "null"}, ["width none"]),
    ],
)
def test_settings_are_said_as_people_say_them(settings: dict[str, str], words: list[str]) -> None:
    assert said(settings.items()) == words


def test_it_opens_where_the_newest_results_are() -> None:
    runs = compared.tracked_rows()
    later = [
        replace(run, run_id=f"{run.run_id}t", started=run.started + timedelta(days=1))
        for run in compared.tracked_rows("test")
    ]
    assert newest_place(entries(rows(runs))).split == "dev"
    assert newest_place(entries(rows([*later[:1], *runs]))).split == "test"
    assert newest_place(entries(rows([*later, *runs])), "squad").split == "test"
    trials = [replace(entry, trial=True) for entry in entries(rows(later))]
    both = [*trials, *entries(rows(runs))]
    assert newest_place(both).split == newest_place(both, "squad").split == "dev", "a newer trial of a sweep"
    assert newest_place(trials).split == "test", "where there is nothing else"
