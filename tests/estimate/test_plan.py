"""A whole plan: against what a tiny run really writes, what is cached, what must grow, and what is refused."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place, load
from midmask.errors import UserError
from midmask.estimate import as_text, estimate, refuse_impossible, shape_named
from midmask.estimate.devices import this_machine
from midmask.estimate.plan import Estimate
from midmask.experiment.plan import Plan, plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS

PASSAGES, QUERIES = 1500, 300


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Passages of made-up words, the first of each being a query's."""
    folder = tmp_path_factory.mktemp("collection") / "small"
    (folder / "qrels").mkdir(parents=True)
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(800)]
    texts = [" ".join(draw.choices(words, k=draw.randint(15, 60))) for _ in range(PASSAGES)]
    lines = [json.dumps({"_id": f"d{number}", "title": "", "text": text}) for number, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    asked = [json.dumps({"_id": f"q{number}", "text": texts[number][:40]}) for number in range(QUERIES)]
    (folder / "queries.jsonl").write_text("\n".join(asked) + "\n")
    for split, numbers in (("train", range(200)), ("dev", range(200, 250)), ("test", range(250, QUERIES))):
        rows = "".join(f"q{number}\td{number}\t1\n" for number in numbers)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    return f"beir:{folder}"


@pytest.fixture(scope="module")
def recipe(collection: str) -> Recipe:
    changes = {"corpus.name": collection, "pretrain.steps": 6, "pretrain.batch_size": 8, "tokens.vocabulary_size": 600}
    changes |= {"stages.0.train.steps": 4, "stages.0.train.batch_size": 8, "pretrain.threads": 1}
    return override(RECIPES["retromae"](), {**changes, "stages.0.train.threads": 1})


@pytest.fixture(scope="module")
def steps(recipe: Recipe) -> Plan:
    return plan(recipe)


@pytest.fixture(scope="module")
def before(recipe: Recipe, steps: Plan, tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Estimate]:
    """The storage, filled by a run, and what was estimated when it was empty."""
    storage = Place(str(tmp_path_factory.mktemp("storage")))
    target = steps.evaluation(recipe.evaluation)
    told = estimate([target], storage, shape_named("2xcpu"))
    Runner(storage, LOCAL, Silent()).run(target)
    return storage, told


TOLERANCES = {"pretrain": 0.05, "finetune": 0.05, "encode": 0.05, "tokenise": 0.7, "prepare": 0.7, "search": 0.7}
"""Weights and vectors follow from shapes, beside a tokenizer of some 20 kB; what is compressed depends on the text."""


def test_a_vocabulary_is_learned_by_one_core_and_then_all_tokenise(steps: Plan, tmp_path: Path) -> None:
    told = estimate([steps.tokens], Place(str(tmp_path)), shape_named("8xcpu"))
    (charge,) = (one for one in told.charges if one.step.name == "tokenise")
    assert charge.alone_seconds > 0
    assert 3600 * told.hours(charge) == pytest.approx(charge.alone_seconds + charge.core_seconds / 8)


def test_what_a_run_writes_is_as_much_as_was_told(before: tuple[Place, Estimate]) -> None:
    storage, told = before
    for charge in told.charges:
        if charge.step.name in TOLERANCES:
            real = charge.step.place(storage).size()
            slack = 40_000 if charge.step.name in ("pretrain", "finetune") else 6_000
            assert charge.bytes == pytest.approx(real, rel=TOLERANCES[charge.step.name], abs=slack), charge.step.name


def test_the_files_tell_how_many_passages_and_tokens_there_are(before: tuple[Place, Estimate], steps: Plan) -> None:
    storage, told = before
    (line,) = told.volumes
    assert "estimated from" in line
    passages = int(line.split(": ")[1].split()[0].replace(",", ""))
    assert passages == pytest.approx(PASSAGES, rel=0.1)
    real = json.loads((Path(steps.pretrained.place(storage).uri) / "record.json").read_text())["result"]  # type: ignore[union-attr]
    (charge,) = (one for one in told.charges if one.step.name == "pretrain")
    assert charge.tokens == pytest.approx(real["tokens"], rel=0.25)


def test_what_is_cached_costs_nothing(before: tuple[Place, Estimate], recipe: Recipe, steps: Plan) -> None:
    storage, told = before
    done = estimate([steps.evaluation(recipe.evaluation)], storage, shape_named("2xcpu"))
    assert done.charges == () and done.total_hours == 0 and "nothing is left to compute" in as_text(done)
    longer = plan(override(recipe, {"stages.0.train.steps": 8}))
    left = estimate([longer.evaluation(recipe.evaluation)], storage, shape_named("2xcpu"))
    assert [charge.step.name for charge in left.charges] == ["finetune", "encode", "encode", "search", "evaluate"]
    assert left.cached == 3 and "of its record" not in as_text(told)
    (tuned,) = (charge for charge in left.charges if charge.training)
    (earlier,) = (charge for charge in told.charges if charge.step.name == "finetune")
    assert tuned.flops == pytest.approx(2 * earlier.flops, rel=0.25)


def test_a_step_of_two_targets_is_paid_once(recipe: Recipe, steps: Plan, tmp_path: Path) -> None:
    target = steps.evaluation(recipe.evaluation)
    storage, shape = Place(str(tmp_path)), shape_named("8xH100")
    once, twice = (estimate(targets, storage, shape) for targets in ([target], [target, target, steps.stages[0]]))
    assert once.total_hours == twice.total_hours and len(once.charges) == len(twice.charges)


@given(
    field=st.sampled_from(["pretrain.steps", "pretrain.batch_size", "stages.0.train.steps", "tokens.max_length"]),
    value=st.integers(8, 200),
    more=st.integers(1, 200),
    count=st.integers(1, 16),
)
@settings(max_examples=15)
def test_more_work_never_costs_less_and_more_devices_never_take_longer(
    recipe: Recipe, tmp_path_factory: pytest.TempPathFactory, field: str, value: int, more: int, count: int
) -> None:
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
def large(collection: str) -> Recipe:
    base = override(RECIPES["retromae"](), {"corpus.name": collection, "backbone.name": "base"})
    return override(base, {"pretrain.batch_size": 2048, "pretrain.steps": 20_000})


def refusal(recipe: Recipe, shape: str, tmp_path: Path, **named: int) -> str:
    target = plan(recipe).evaluation(recipe.evaluation)
    with pytest.raises(UserError) as error:
        refuse_impossible(estimate([target], Place(str(tmp_path)), shape_named(shape), **named))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_share_that_does_not_fit_is_cut_into_as_few_pieces_as_fit(large: Recipe, tmp_path: Path) -> None:
    told = estimated(large, "1xT4", tmp_path)
    refuse_impossible(told)
    charge = next(one for one in told.charges if one.step.name == "pretrain")
    assert charge.training is not None and charge.memory is not None
    rows, room = charge.training.at_once(1), 0.92 * 15 * 2**30
    pieces = -(-2048 // rows)
    assert charge.memory.total <= room and 1 < rows < 2048 and rows == -(-2048 // pieces)
    in_fewer = estimated(override(large, {"pretrain.micro_batch": -(-2048 // (pieces - 1))}), "1xT4", tmp_path)
    assert max(one.memory.total for one in in_fewer.charges if one.memory) > room
    assert f"micro-batch in pretrain: {rows} of 2048 rows at once, which fit into memory" in as_text(told)
    assert "micro-batch" not in as_text(estimated(override(large, {"pretrain.batch_size": 8}), "1xT4", tmp_path))


def test_micro_batches_that_a_recipe_names_are_refused_where_they_do_not_fit(large: Recipe, tmp_path: Path) -> None:
    named = override(large, {"pretrain.micro_batch": 2048})
    told = refusal(named, "1xT4", tmp_path)
    assert "pretrain on 1xT4: 2048 rows at once need" in told and "activations" in told and "AdamW" in told
    fitting = int(told.split("pretrain.micro_batch=")[1].split()[0])
    refuse_impossible(estimated(override(named, {"pretrain.micro_batch": fitting}), "1xT4", tmp_path))
    assert "micro_batch" in refusal(override(named, {"pretrain.micro_batch": 2 * fitting}), "1xT4", tmp_path)


def test_where_not_one_row_fits_the_smallest_device_with_room_for_it_is_named(large: Recipe, tmp_path: Path) -> None:
    """BERT's base size takes 1.7 GiB before the first row."""
    tight = override(large, {"pretrain.memory_gib": 1.5})
    told = refusal(tight, "1xL4", tmp_path)
    assert "pretrain on 1xL4: 1 row at once needs" in told and "there are 1.5 GiB" in told
    assert "not even one row fits; take a smaller backbone, or shorter rows, or --on 1xT4, which holds one" in told
    one_row = override(large, {"pretrain.batch_size": 1})
    memory = next(one.memory for one in estimated(one_row, "1xL4", tmp_path).charges if one.step.name == "pretrain")
    assert memory is not None
    half = override(large, {"pretrain.memory_gib": (memory.total - memory.activations / 2) / 2**30})
    assert "not even one row fits; set pretrain.recompute=true, or take a smaller" in refusal(half, "1xL4", tmp_path)
    refuse_impossible(estimated(override(half, {"pretrain.recompute": True}), "1xL4", tmp_path))


def test_memory_is_that_of_the_longest_rows_on_a_gpu(large: Recipe, tmp_path: Path) -> None:
    """A row of the longest texts keeps more than one of the mean length, by their ratio."""

    def kept(longest: int) -> float:
        own = override(large, {"tokens.max_length": longest, "pretrain.micro_batch": 1})
        charge = next(one for one in estimated(own, "1xH100", tmp_path).charges if one.step.name == "pretrain")
        assert charge.memory is not None and charge.training is not None
        return charge.memory.activations / charge.training.counted.kept * charge.training.tokens

    assert kept(256) == pytest.approx(256) and kept(512) == pytest.approx(512)


def estimated(recipe: Recipe, shape: str, tmp_path: Path) -> Estimate:
    return estimate([plan(recipe).evaluation(recipe.evaluation)], Place(str(tmp_path)), shape_named(shape))


def test_more_workers_than_devices_are_refused(recipe: Recipe, tmp_path: Path) -> None:
    told = refusal(recipe, "4xA100-40G", tmp_path, workers=5)
    assert "--workers 5: one GPU each, 5 in all, and 4xA100-40G has 4" in told
    assert "2.5 in all, and 2xcpu has 2; use --workers 4 or fewer" in refusal(recipe, "2xcpu", tmp_path, workers=5)


def test_days_without_a_gpu_are_refused_with_the_sum(large: Recipe, tmp_path: Path) -> None:
    cut = override(large, {"pretrain.micro_batch": 8})
    told = refusal(cut, "2xcpu", tmp_path)
    assert "FLOPs at 57.6G FLOP/s" in told and "days without a GPU" in told and "--on 8xH100" in told
    target = [plan(cut).evaluation(cut.evaluation)]
    assert "warning: slow" not in as_text(estimate(target, Place(str(tmp_path)), shape_named("8xH100")))
    slow = as_text(estimate(target, Place(str(tmp_path)), shape_named("1xL4")))
    assert "warning: slow" in slow


def test_trainings_side_by_side_have_a_device_each(large: Recipe, tmp_path: Path) -> None:
    """Of a model that keeps its device busy."""
    recipe = override(large, {"stages.0.train.batch_size": 2048})
    target, storage, shape = plan(recipe).evaluation(recipe.evaluation), Place(str(tmp_path)), shape_named("4xH100")
    spread = estimate([target], storage, shape)
    beside = estimate([target], storage, shape, side_by_side=True)
    assert (spread.workers, spread.at_once, beside.workers, beside.at_once) == (4, 1, 1, 4)
    assert spread.total_hours == pytest.approx(beside.total_hours)
    pairs = estimate([target], storage, shape, per_training=2, side_by_side=True)
    assert (pairs.workers, pairs.at_once) == (2, 2)
    rows = [
        max(one.training.at_once(told.workers) for one in told.charges if one.training) for told in (spread, beside)
    ]
    assert rows[1] == 4 * rows[0]
    with pytest.raises(UserError, match="has 4"):
        refuse_impossible(estimate([target], storage, shape, workers=5, side_by_side=True))


def test_a_batch_whose_rows_meet_is_read_twice_if_it_is_cut(recipe: Recipe, tmp_path: Path) -> None:
    def flops(**changes: int) -> float:
        steps = plan(override(recipe, {f"stages.0.train.{name}": value for name, value in changes.items()}))
        told = estimate([steps.stages[0]], Place(str(tmp_path)), shape_named("2xcpu"))
        return next(one.flops for one in told.charges if one.step.name == "finetune")

    assert flops(micro_batch=4) == pytest.approx(4 / 3 * flops(), rel=0.01)
    assert flops(micro_batch=8) == flops()


@pytest.mark.parametrize("protocol", ["dupmae", "sigir23_32neg_distil", "cotmote"])
def test_every_step_of_long_protocols_is_charged(protocol: str, recipe: Recipe, tmp_path: Path) -> None:
    whole = PROTOCOLS[protocol]().on(recipe, "published")
    target = plan(whole).evaluation(whole.evaluation)
    told = estimate([target], Place(str(tmp_path)), shape_named("8xA100-80G"))
    assert {charge.step.fingerprint for charge in told.charges} == {step.fingerprint for step in target.upstream()}
    for charge in told.charges:
        assert charge.bytes > 0 and told.hours(charge) > 0, charge.step.name


def test_trainings_of_this_machine_tell_its_rate(
    before: tuple[Place, Estimate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tiny run's own trainings, however short; their rate is what was reckoned by the seconds that were taken."""
    storage, _ = before
    monkeypatch.setattr("midmask.estimate.measured.LONG_ENOUGH", 0.0)
    told = estimate([], storage)
    assert "finished trainings" in told.shape.device.measured
    assert replace(told.shape, device=this_machine().device) == this_machine()
    done = [
        (told.shape.device.rate, charge.flops / seconds)
        for charge in before[1].charges
        if charge.training and (seconds := load(charge.step.place(storage)).result["seconds"])
    ]
    assert min(rate for _, rate in done) * 0.7 < done[0][0] < max(rate for _, rate in done) * 1.3
