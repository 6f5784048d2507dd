"""A whole plan: what is cached, what must grow, what is refused, and what searches cost."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import RECORD, Place
from midmask.errors import UserError
from midmask.estimate import as_text, estimate, refuse_impossible, shape_named
from midmask.estimate.charge import Charge
from midmask.estimate.plan import Estimate
from midmask.estimate.searches import INDEX_FLOPS_PER_SECOND, dense_bytes, index_flops
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


MSMARCO = {
    "passages": 8_841_823,
    "queries": 509_919,
    "splits": {"train": {"queries": 502_939}, "dev": {"queries": 6_980}},
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Recipe:
    corpus = write_collection(tmp_path_factory.mktemp("searches") / "tiny")
    wanted = {"corpus.name": corpus, "backbone.name": "base", "stages.0.negatives": ["bm25"], "stages.0.per_query": 1}
    return override(RECIPES["none"](), wanted)


def reckoned(
    recipe: Recipe, shape: str, tmp_path: Path, result: dict, *, side_by_side: bool = False, workers: int | None = None
) -> Estimate:
    """The estimate of a plan whose collection is prepared, by its record, and nothing else is done."""
    planned, storage = plan(recipe), Place(str(tmp_path))
    (planned.corpus.place(storage) / RECORD).write_json({"fingerprint": planned.corpus.fingerprint, "result": result})
    targets = [planned.evaluation(recipe.evaluation), planned.bm25_evaluation(recipe.evaluation)]
    return estimate(targets, storage, shape_named(shape), side_by_side=side_by_side, workers=workers)


def test_bm25_grows_with_the_collection(recipe, tmp_path):
    """At 5.9 ns for a passage and a query, MS MARCO's train queries take 7.3 hours of a core; dev's their share."""
    told = reckoned(recipe, "1xcpu", tmp_path, MSMARCO)
    dev, train = sorted(told.hours(one) for one in told.charges if one.step.name == "bm25")
    assert train == pytest.approx(502_939 * 8_841_823 * 5.9e-9 / 3_600, rel=0.02)
    assert dev == pytest.approx(train * 6_980 / 502_939)
    words, index = (only(told, name) for name in ("bm25_words", "bm25_index"))
    assert told.hours(words) == pytest.approx(8_841_823 / 4_500 / 3_600)
    assert told.hours(index) < 0.1 * told.hours(words)
    small = reckoned(recipe, "1xcpu", tmp_path, {**MSMARCO, "passages": 88_418})
    assert max(small.hours(one) for one in small.charges if one.step.name == "bm25") == pytest.approx(
        train / 100, rel=0.01
    )


def only(told: Estimate, name: str) -> Charge:
    """The charge of the only step of this name."""
    (found,) = (one for one in told.charges if one.step.name == name)
    return found


def test_a_billion_passages_are_refused_with_what_to_do(recipe, tmp_path):
    """768 numbers of 4 bytes each: 2,861 GiB, 357.6 on each of eight GPUs."""
    billion = {**MSMARCO, "passages": 10**9}
    with pytest.raises(UserError) as refused:
        refuse_impossible(reckoned(recipe, "8xH100", tmp_path, billion))
    line = str(refused.value)
    assert "search on 8xH100" in line and "2,861.0 GiB, 357.6 GiB on each GPU" in line and "are 73.6 GiB" in line
    assert "--on 40xH100" in line and "evaluation.index" in line and "PQ64" in line
    refuse_impossible(reckoned(recipe, "40xH100", tmp_path, billion))
    compressed = override(recipe, {"evaluation.index": "IVF65536,PQ64"})
    told = reckoned(compressed, "8xH100", tmp_path, billion)
    refuse_impossible(told)
    assert "memory of the host in bm25: 93.1 GiB" in as_text(told)
    with pytest.raises(UserError, match=r"357.6 GiB on each GPU|2,861.0 GiB on each GPU"):
        refuse_impossible(reckoned(recipe, "40xH100", tmp_path, billion, side_by_side=True))


def test_building_an_index_compares_vectors_with_centres():
    lists = 2 * 8 * 16 * (10 * 1000 + 5000)
    codes = 2 * 8 * 256 * (25 * 1000 + 5000)
    own = {"width": 8, "passages": 5000, "rows": 1000}
    assert index_flops("IVF16,Flat", **own) == lists
    assert index_flops("IVF16,PQ4", **own) == lists + codes
    assert index_flops("OPQ4,IVF16,PQ4", **own) == lists + 2 * 8 * 256 * (265 * 1000 + 5000)
    assert index_flops("IVF2,Flat", **own) == 2 * 8 * 2 * (10 * 512 + 5000), "256 vectors of a centre are enough"
    assert index_flops("SQ8", **own) == 0
    graph = 4.5 * 2 * 8 * 40 * 2 * 32 * 5000
    assert index_flops("HNSW32", **own) == graph and index_flops("HNSW32,SQ8", **own, candidates=80) == 2 * graph


def test_one_process_builds_an_index_with_its_threads(recipe, tmp_path):
    def built(threads: int) -> tuple[Estimate, Charge]:
        wanted = {"evaluation.index": "IVF4096,PQ64", "evaluation.threads": threads}
        told = reckoned(override(recipe, wanted), "64xcpu", tmp_path, {**MSMARCO, "passages": 10**6})
        return told, only(told, "index")

    told, index = built(1)
    flops = index_flops("IVF4096,PQ64", width=768, passages=10**6, rows=262_144)
    assert 3600 * told.hours(index) == pytest.approx(flops / INDEX_FLOPS_PER_SECOND)
    assert told.host(index) == 10**6 * (64 + 8) + 4 * 768 * 262_144, "all codes and ids, and what it learns from"
    assert built(8)[0].hours(built(8)[1]) == pytest.approx(told.hours(index) / 8)


def test_an_index_beyond_the_hosts_memory_is_refused(recipe, tmp_path):
    """A stated memory, behind the colon, is all there is."""
    ten = {**MSMARCO, "passages": 10**7}
    with pytest.raises(UserError, match=r"search on 8xH100: its index takes 28.6 GiB .* and there are 16.0 GiB"):
        refuse_impossible(reckoned(recipe, "8xH100:16", tmp_path, ten))
    refuse_impossible(reckoned(recipe, "8xH100:64", tmp_path, ten))
    told = reckoned(recipe, "64xcpu", tmp_path, {**MSMARCO, "passages": 10**6})
    words = replace(told, charges=tuple(one for one in told.charges if one.step.name == "bm25"))
    with pytest.raises(UserError, match=r"bm25 on 64xcpu: the ids of its passages take 95.4 MiB .* 32.0 MiB.*max_pass"):
        refuse_impossible(replace(words, shape=replace(told.shape, ram=2**25)))


@pytest.mark.parametrize(
    ("factory", "size"),
    [
        ("IVF256,Flat", 3072 + 8),
        ("PQ32x4", 16),
        ("SQfp16", 1536),
        ("HNSW32", 3072 + 512),
        ("OPQ32_128,IVF256,PQ64", 64 + 8),
    ],
)
def test_bytes_of_a_vector(factory, size):
    assert dense_bytes(factory, 768) == size


def test_encoding_and_searching_are_no_faster_than_fp32_off_the_tensor_cores(recipe, tmp_path):
    """Makers' peaks in TFLOP/s; training in bf16 is faster."""
    recipe = override(recipe, {"evaluation.precision": "fp32"})
    for device, peak in {"H100": 67, "A100-80G": 19.5, "V100-32G": 15.7}.items():
        told = reckoned(recipe, f"4x{device}", tmp_path, MSMARCO)
        encode = max((one for one in told.charges if one.step.name == "encode"), key=lambda one: one.flops)
        (search,) = (one for one in told.charges if one.step.name == "search")
        for charge in (encode, search):
            assert 0.3 < charge.flops / (3600 * told.hours(charge) * 4 * peak * 1e12) <= 0.6 + 1e-9, device
        large = override(recipe, {"stages.0.train.batch_size": 4096})
        trained = reckoned(large, f"4x{device}", tmp_path, MSMARCO)
        (tuned,) = (one for one in trained.charges if one.step.name == "finetune")
        assert tuned.flops / trained.hours(tuned) > encode.flops / told.hours(encode), device


def test_no_training_takes_less_than_issuing_its_operators(recipe, tmp_path):
    """250,000 steps of a tiny model: 22 minutes on whatever GPUs, and not 0.04 hours."""
    tiny = override(recipe, {"backbone.name": "tiny", "stages.0.train.steps": 250_000})
    tiny = override(tiny, {"stages.0.negatives": [], "stages.0.per_query": 0})
    for shape in ("1xA100-40G", "8xH100"):
        told = reckoned(tiny, shape, tmp_path, MSMARCO)
        (tuned,) = (one for one in told.charges if one.step.name == "finetune")
        assert told.hours(tuned) == pytest.approx(250_000 * (270 + 2 * 2 * 130) * 10e-6 / 3600)
    beside = reckoned(tiny, "8xH100", tmp_path, MSMARCO, side_by_side=True)
    (tuned,) = (one for one in beside.charges if one.step.name == "finetune")
    assert beside.hours(tuned) == pytest.approx(told.hours(tuned) / 8, rel=0.01), "eight such trainings run at a time"
