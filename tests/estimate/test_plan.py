"""A whole plan: what is cached, what must grow, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import RECORD, Place
from midmask.errors import UserError
from midmask.estimate import as_text, estimate, refuse_impossible, shape_named
from midmask.estimate.plan import Estimate
from midmask.experiment.plan import Plan, plan
from midmask.experiment.schema import Recipe
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import short, write_collection


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> str:
    return write_collection(tmp_path_factory.mktemp("plan") / "tiny")


@pytest.fixture(scope="module")
def recipe(collection) -> Recipe:
    return short(RECIPES["retromae"](), collection)


@pytest.fixture(scope="module")
def steps(recipe) -> Plan:
    return plan(recipe)


def test_what_is_cached_costs_nothing(recipe, steps, tmp_path):
    storage, target = Place(str(tmp_path)), steps.evaluation(recipe.evaluation)
    whole = estimate([target, target, steps.stages[0]], storage, shape_named("2xcpu"))
    assert len({charge.step.fingerprint for charge in whole.charges}) == len(whole.charges), "each is paid once"
    (steps.pretrained.place(storage) / RECORD).write_json({"fingerprint": steps.pretrained.fingerprint, "result": {}})
    left = estimate([target], storage, shape_named("2xcpu"))
    assert left.cached == 1 and left.total_hours < whole.total_hours
    assert [charge.step.name for charge in left.charges] == [
        charge.step.name for charge in whole.charges if charge.step.name not in ("pretrain", "initial")
    ]


def test_a_vocabulary_is_learned_by_one_core_and_then_all_tokenise(steps, tmp_path):
    told = estimate([steps.tokens], Place(str(tmp_path)), shape_named("8xcpu"))
    (charge,) = (one for one in told.charges if one.step.name == "tokenise")
    assert charge.alone_seconds > 0
    assert 3600 * told.hours(charge) == pytest.approx(charge.alone_seconds + charge.core_seconds / 8)


@given(
    field=st.sampled_from(["pretrain.steps", "pretrain.batch_size", "stages.0.train.steps", "tokens.max_length"]),
    value=st.integers(8, 200),
    more=st.integers(1, 200),
    count=st.integers(1, 16),
)
@settings(max_examples=5)
def test_more_work_never_costs_less_and_more_devices_never_take_longer(
    recipe, tmp_path_factory, field, value, more, count
):
    storage = Place(str(tmp_path_factory.getbasetemp() / "none"))

    def told(number: int, devices: int) -> Estimate:
        steps = plan(override(recipe, {field: number}))
        return estimate([steps.evaluation(recipe.evaluation)], storage, shape_named(f"{devices}xA100-40G"))

    few, many, wide = told(value, count), told(value + more, count), told(value, count + 1)
    assert sum(one.flops for one in few.charges) <= sum(one.flops for one in many.charges)
    assert few.total_hours <= many.total_hours and few.peak_bytes <= many.peak_bytes
    assert wide.total_hours <= few.total_hours
    memory = [max(one.memory.total for one in told.charges if one.memory) for told in (wide, few, many)]
    assert memory == sorted(memory)


@pytest.fixture(scope="module")
def large(collection) -> Recipe:
    base = override(RECIPES["retromae"](), {"corpus.name": collection, "backbone.name": "base"})
    return override(base, {"pretrain.batch_size": 2048, "pretrain.steps": 20_000})


def refusal(recipe: Recipe, shape: str, tmp_path: Path, **named: int) -> str:
    target = plan(recipe).evaluation(recipe.evaluation)
    with pytest.raises(UserError) as error:
        refuse_impossible(estimate([target], Place(str(tmp_path)), shape_named(shape), **named))
    return str(error.value)


def test_a_share_that_does_not_fit_is_cut_into_as_few_pieces_as_fit(large, tmp_path):
    told = estimated(large, "1xT4", tmp_path)
    refuse_impossible(told)
    charge = next(one for one in told.charges if one.step.name == "pretrain")
    rows, room = charge.training.at_once(1), 0.92 * 15 * 2**30
    pieces = -(-2048 // rows)
    assert charge.memory.total <= room and 1 < rows < 2048 and rows == -(-2048 // pieces)
    in_fewer = estimated(override(large, {"pretrain.micro_batch": -(-2048 // (pieces - 1))}), "1xT4", tmp_path)
    assert max(one.memory.total for one in in_fewer.charges if one.memory) > room
    assert "pretrain.micro_batch=" in refusal(override(large, {"pretrain.micro_batch": 2 * rows}), "1xT4", tmp_path)
    assert f"micro-batch in pretrain: {rows} of 2048 rows at once, which fit into memory" in as_text(told)
    assert "micro-batch" not in as_text(estimated(override(large, {"pretrain.batch_size": 8}), "1xT4", tmp_path))


def test_where_not_one_row_fits_the_smallest_device_with_room_for_it_is_named(large, tmp_path):
    """BERT's base size takes 1.7 GiB before the first row."""
    tight = override(large, {"pretrain.memory_gib": 1.5})
    told = refusal(tight, "1xL4", tmp_path)
    assert "pretrain on 1xL4: 1 row at once needs" in told and "there are 1.5 GiB" in told
    assert "not even one row fits; take a smaller backbone, or shorter rows, or --on 1xT4, which holds one" in told
    one_row = override(large, {"pretrain.batch_size": 1})
    memory = next(one.memory for one in estimated(one_row, "1xL4", tmp_path).charges if one.step.name == "pretrain")
    half = override(large, {"pretrain.memory_gib": (memory.total - memory.activations / 2) / 2**30})
    assert "not even one row fits; set pretrain.recompute=true, or take a smaller" in refusal(half, "1xL4", tmp_path)
    refuse_impossible(estimated(override(half, {"pretrain.recompute": True}), "1xL4", tmp_path))


def test_memory_is_that_of_the_longest_rows_on_a_gpu(large, tmp_path):
    """A row of the longest texts keeps more than one of the mean length, by their ratio."""

    def kept(longest: int) -> float:
        own = override(large, {"tokens.max_length": longest, "pretrain.micro_batch": 1})
        charge = next(one for one in estimated(own, "1xH100", tmp_path).charges if one.step.name == "pretrain")
        return charge.memory.activations / charge.training.counted.kept * charge.training.tokens

    assert kept(256) == pytest.approx(256) and kept(512) == pytest.approx(512)


def estimated(recipe: Recipe, shape: str, tmp_path: Path) -> Estimate:
    return estimate([plan(recipe).evaluation(recipe.evaluation)], Place(str(tmp_path)), shape_named(shape))


def test_more_workers_than_devices_are_refused(recipe, tmp_path):
    told = refusal(recipe, "4xA100-40G", tmp_path, workers=5)
    assert "--workers 5: one GPU each, 5 in all, and 4xA100-40G has 4" in told
    assert "2.5 in all, and 2xcpu has 2; use --workers 4 or fewer" in refusal(recipe, "2xcpu", tmp_path, workers=5)


def test_trainings_side_by_side_have_a_device_each(large, tmp_path):
    """Of a model that keeps its device busy."""
    recipe = override(large, {"stages.0.train.batch_size": 2048})
    target, storage, shape = plan(recipe).evaluation(recipe.evaluation), Place(str(tmp_path)), shape_named("4xH100")
    spread = estimate([target], storage, shape)
    beside = estimate([target], storage, shape, side_by_side=True)
    assert (spread.workers, spread.at_once, beside.workers, beside.at_once) == (4, 1, 1, 4)
    assert spread.total_hours == pytest.approx(beside.total_hours)
    pairs = estimate([target], storage, shape, per_training=2, side_by_side=True)
    assert (pairs.workers, pairs.at_once) == (2, 2)
    few, many = (
        max(one.training.at_once(each.workers) for one in each.charges if one.training) for each in (spread, beside)
    )
    assert many == 4 * few
    with pytest.raises(UserError, match="has 4"):
        refuse_impossible(estimate([target], storage, shape, workers=5, side_by_side=True))


def test_a_batch_whose_rows_meet_is_read_twice_if_it_is_cut(recipe, tmp_path):
    def flops(**changes: int) -> float:
        steps = plan(override(recipe, {f"stages.0.train.{name}": value for name, value in changes.items()}))
        told = estimate([steps.stages[0]], Place(str(tmp_path)), shape_named("2xcpu"))
        return next(one.flops for one in told.charges if one.step.name == "finetune")

    assert flops(batch_size=8, micro_batch=4) == pytest.approx(4 / 3 * flops(batch_size=8), rel=0.01)
    assert flops(batch_size=8, micro_batch=8) == flops(batch_size=8)
