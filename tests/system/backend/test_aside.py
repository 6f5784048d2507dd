"""What is computed aside, in a worker of a real Ray."""

import os

import pytest
import torch

from midmask.app.tracked_job import expected_seconds
from midmask.artifact import Place
from midmask.backend.aside import compute_aside
from midmask.backend.resources import Resources
from midmask.estimate import estimate
from midmask.estimate.devices import this_machine
from midmask.experiment.plan import plan
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import short, write_collection


def test_it_is_another_process_and_refusals_are_raised(ray_local: None) -> None:
    assert compute_aside(lambda number: (number, os.getpid()), 7)[0] == 7
    assert compute_aside(lambda: os.getpid()) != os.getpid()
    with pytest.raises(ZeroDivisionError):
        compute_aside(lambda: 1 / 0)


def test_steps_are_expected_to_take_what_a_dry_run_says_and_no_random_number_is_drawn_here(
    ray_local: None, tmp_path
) -> None:
    recipe = short(RECIPES["retromae"](), write_collection(tmp_path / "tiny"))
    storage, steps = Place(str(tmp_path / "store")), list(plan(recipe).evaluation(recipe.evaluation).upstream())
    torch.manual_seed(4)
    before = torch.get_rng_state()
    found = expected_seconds(steps, storage=storage, use=Resources(cpus=1, gpus=0, side_by_side=2))
    assert torch.equal(torch.get_rng_state(), before)
    told = estimate(steps[-1:], storage, this_machine(), workers=2, side_by_side=True)
    assert sum(found.values()) == pytest.approx(told.total_hours * 3600, rel=1e-9) and len(found) == len(steps)
