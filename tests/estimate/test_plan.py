"""A whole plan: what is cached, what must grow, what is refused, what searches cost; its price and its volumes."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.core.config import override
from midmask.corpora import CorpusConfig
from midmask.errors import UserError
from midmask.estimate import as_text, estimate, refuse_impossible, shape_named
from midmask.estimate.charges import Charge
from midmask.estimate.devices import DEVICES, this_machine
from midmask.estimate.plan import Estimate, Traffic
from midmask.estimate.rates import INDEX_FLOPS_PER_SECOND, WHOLE, dense_bytes, index_flops
from midmask.estimate.report import PRICES_VARIABLE, priced, read_prices
from midmask.estimate.sizes import remembered
from midmask.estimate.volumes import Volumes
from midmask.experiment.graph import Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.recipes import RECIPES
from midmask.store.artifact import load
from midmask.store.digests import RECORD
from midmask.store.place import Place
from tests.support.benchmark.tiny import short, write_collection
from tests.support.corpora.saved import save
from tests.support.object_store import object_store


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> str:
    return write_collection(tmp_path_factory.mktemp("plan") / "tiny")


@pytest.fixture(scope="module")
def recipe(collection) -> Recipe:
    return short(RECIPES["retromae"](), collection)


def test_what_is_cached_costs_nothing(recipe, tmp_path):
    steps, storage = plan(recipe), Place(str(tmp_path))
    target = steps.evaluation(recipe.evaluation)
    whole = estimate([target, target, steps.stages[0]], storage, shape_named("2xcpu"))
    assert len({charge.step.fingerprint for charge in whole.charges}) == len(whole.charges), "each is paid once"
    (steps.pretrained.place(storage) / RECORD).write_json({"fingerprint": steps.pretrained.fingerprint, "result": {}})
    left = estimate([target], storage, shape_named("2xcpu"))
    assert left.cached == 1 and left.total_hours < whole.total_hours
    names = [[charge.step.name for charge in each.charges] for each in (left, whole)]
    assert names[0] == [name for name in names[1] if name not in ("pretrain", "initial")]


def test_a_vocabulary_is_learned_by_one_core_and_then_all_tokenise(recipe, tmp_path):
    told = estimate([plan(recipe).tokens], Place(str(tmp_path)), shape_named("8xcpu"))
    charge = only(told, "tokenise")
    assert charge.alone_seconds > 0
    assert 3600 * told.hours(charge) == pytest.approx(charge.alone_seconds + charge.core_seconds / 8)


@given(
    field=st.sampled_from(["pretrain.steps", "pretrain.batch_size", "stages.0.train.steps", "tokens.max_length"]),
    value=st.integers(8, 200),
    more=st.integers(1, 200),
    count=st.integers(1, 16),
)
@settings(max_examples=5)
def test_more_work_costs_no_less_and_more_devices_take_no_longer(recipe, tmp_path_factory, field, value, more, count):
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


def estimated(recipe: Recipe, shape: str, tmp_path: Path) -> Estimate:
    return estimate([plan(recipe).evaluation(recipe.evaluation)], Place(str(tmp_path)), shape_named(shape))


def refusal(recipe: Recipe, shape: str, tmp_path: Path, **named: int) -> str:
    target = plan(recipe).evaluation(recipe.evaluation)
    with pytest.raises(UserError) as error:
        refuse_impossible(estimate([target], Place(str(tmp_path)), shape_named(shape), **named))
    return str(error.value)


def test_a_share_that_does_not_fit_is_cut_into_as_few_pieces_as_fit(large, tmp_path):
    told = estimated(large, "1xT4", tmp_path)
    refuse_impossible(told)
    charge = only(told, "pretrain")
    rows, room = charge.training.at_once(1), 0.92 * 15 * 2**30
    pieces = -(-2048 // rows)
    assert charge.memory.total <= room and 1 < rows < 2048 and rows == -(-2048 // pieces)
    in_fewer = estimated(override(large, {"pretrain.micro_batch": -(-2048 // (pieces - 1))}), "1xT4", tmp_path)
    assert max(one.memory.total for one in in_fewer.charges if one.memory) > room
    assert "pretrain.micro_batch=" in refusal(override(large, {"pretrain.micro_batch": 2 * rows}), "1xT4", tmp_path)


def test_where_not_one_row_fits_the_smallest_device_with_room_for_it_is_named(large, tmp_path):
    """BERT's base size takes 1.7 GiB before the first row."""
    assert "or --on 1xT4, which holds one" in refusal(override(large, {"pretrain.memory_gib": 1.5}), "1xL4", tmp_path)
    memory = only(estimated(override(large, {"pretrain.batch_size": 1}), "1xL4", tmp_path), "pretrain").memory
    half = override(large, {"pretrain.memory_gib": (memory.total - memory.activations / 2) / 2**30})
    assert "set pretrain.recompute=true" in refusal(half, "1xL4", tmp_path)
    refuse_impossible(estimated(override(half, {"pretrain.recompute": True}), "1xL4", tmp_path))


def test_memory_is_that_of_the_longest_rows_on_a_gpu(large, tmp_path):
    """A row of the longest texts keeps more than one of the mean length, by their ratio."""

    def kept(longest: int) -> float:
        own = override(large, {"tokens.max_length": longest, "pretrain.micro_batch": 1})
        charge = only(estimated(own, "1xH100", tmp_path), "pretrain")
        return charge.memory.activations / charge.training.counted.kept * charge.training.tokens

    assert kept(256) == pytest.approx(256) and kept(512) == pytest.approx(512)


def test_more_workers_than_devices_are_refused(recipe, tmp_path):
    assert "5 in all, and 4xA100-40G has 4" in refusal(recipe, "4xA100-40G", tmp_path, workers=5)
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
    few, many = ([one.training for one in each.charges if one.training] for each in (spread, beside))
    assert max(one.at_once(1) for one in many) == 4 * max(one.at_once(4) for one in few)
    with pytest.raises(UserError, match="has 4"):
        refuse_impossible(estimate([target], storage, shape, workers=5, side_by_side=True))


def test_a_batch_whose_rows_meet_is_read_twice_if_it_is_cut(recipe, tmp_path):
    def flops(**changes: int) -> float:
        steps = plan(override(recipe, {f"stages.0.train.{name}": value for name, value in changes.items()}))
        return only(estimate([steps.stages[0]], Place(str(tmp_path)), shape_named("2xcpu")), "finetune").flops

    assert flops(batch_size=8, micro_batch=4) == pytest.approx(4 / 3 * flops(batch_size=8), rel=0.01)
    assert flops(batch_size=8, micro_batch=8) == flops(batch_size=8)


MSMARCO = {"queries": 509_919, "splits": {"train": {"queries": 502_939}, "dev": {"queries": 6_980}}}


@pytest.fixture(scope="module")
def bare(collection) -> Recipe:
    """No pre-training; an encoder of BERT's size, and a fine-tuning with negatives of BM25."""
    wanted = {"backbone.name": "base", "stages.0.negatives": ["bm25"], "stages.0.per_query": 1}
    return override(RECIPES["none"](), {"corpus.name": collection, **wanted})


def reckoned(recipe: Recipe, shape: str, tmp_path: Path, passages: int = 8_841_823, **named: bool) -> Estimate:
    """The estimate of a plan whose collection is prepared, by its record, and nothing else is done."""
    planned, storage, result = plan(recipe), Place(str(tmp_path)), {**MSMARCO, "passages": passages}
    (planned.corpus.place(storage) / RECORD).write_json({"fingerprint": planned.corpus.fingerprint, "result": result})
    targets = [planned.evaluation(recipe.evaluation), planned.bm25_evaluation(recipe.evaluation)]
    return estimate(targets, storage, shape_named(shape), **named)


def only(told: Estimate, name: str) -> Charge:
    """The charge of the only step of this name."""
    (found,) = (one for one in told.charges if one.step.name == name)
    return found


def test_bm25_grows_with_the_collection(bare, tmp_path):
    """At 5.9 ns for a passage and a query, MS MARCO's train queries take 7.3 hours of a core; dev's their share."""
    told, small = (reckoned(bare, "1xcpu", tmp_path, passages) for passages in (8_841_823, 88_418))
    dev, train = sorted(told.hours(one) for one in told.charges if one.step.name == "bm25")
    assert train == pytest.approx(502_939 * 8_841_823 * 5.9e-9 / 3_600, rel=0.02)
    assert dev == pytest.approx(train * 6_980 / 502_939)
    assert told.hours(only(told, "bm25_words")) == pytest.approx(8_841_823 / 4_500 / 3_600)
    assert max(small.hours(one) for one in small.charges if one.step.name == "bm25") == pytest.approx(train / 100, 0.01)


def test_a_billion_passages_are_refused_with_what_to_do(bare, tmp_path):
    """768 numbers of 4 bytes each: 2,861 GiB, 357.6 on each of eight GPUs."""
    with pytest.raises(UserError, match=r"2,861.0 GiB, 357.6 GiB on each GPU.* are 73.6 GiB.*--on 40xH100.*PQ64"):
        refuse_impossible(reckoned(bare, "8xH100", tmp_path, 10**9))
    refuse_impossible(reckoned(bare, "40xH100", tmp_path, 10**9))
    refuse_impossible(reckoned(override(bare, {"evaluation.index": "IVF65536,PQ64"}), "8xH100", tmp_path, 10**9))
    with pytest.raises(UserError, match=r"357.6 GiB on each GPU|2,861.0 GiB on each GPU"):
        refuse_impossible(reckoned(bare, "40xH100", tmp_path, 10**9, side_by_side=True))


def test_an_index_compares_vectors_with_centres_and_holds_its_codes():
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
    sizes = {"IVF256,Flat": 3072 + 8, "PQ32x4": 16, "SQfp16": 1536, "HNSW32": 3072 + 512, "OPQ32_128,IVF256,PQ64": 72}
    assert {factory: dense_bytes(factory, 768) for factory in sizes} == sizes


def test_one_process_builds_an_index_with_its_threads(bare, tmp_path):
    hours = []
    for threads in (1, 8):
        wanted = {"evaluation.index": "IVF4096,PQ64", "evaluation.threads": threads}
        told = reckoned(override(bare, wanted), "64xcpu", tmp_path, 10**6)
        hours.append(told.hours(index := only(told, "index")))
        assert told.host(index) == 10**6 * (64 + 8) + 4 * 768 * 262_144, "all codes and ids, and what it learns from"
    flops = index_flops("IVF4096,PQ64", width=768, passages=10**6, rows=262_144)
    assert 3600 * hours[0] == pytest.approx(flops / INDEX_FLOPS_PER_SECOND) and hours[1] == pytest.approx(hours[0] / 8)


def test_an_index_beyond_the_hosts_memory_is_refused(bare, tmp_path):
    """A stated memory, behind the colon, is all there is."""
    with pytest.raises(UserError, match=r"search on 8xH100: its index takes 28.6 GiB .* and there are 16.0 GiB"):
        refuse_impossible(reckoned(bare, "8xH100:16", tmp_path, 10**7))
    refuse_impossible(reckoned(bare, "8xH100:64", tmp_path, 10**7))
    told = reckoned(bare, "64xcpu", tmp_path, 10**6)
    words = replace(told, charges=tuple(one for one in told.charges if one.step.name == "bm25"))
    with pytest.raises(UserError, match=r"bm25 on 64xcpu: the ids of its passages take 95.4 MiB .* 32.0 MiB"):
        refuse_impossible(replace(words, shape=replace(told.shape, ram=2**25)))


def test_encoding_and_searching_are_no_faster_than_fp32_off_the_tensor_cores(bare, tmp_path):
    """Makers' peaks in TFLOP/s; training in bf16 is faster."""
    single = override(bare, {"evaluation.precision": "fp32", "stages.0.train.batch_size": 4096})
    for device, peak in {"H100": 67, "A100-80G": 19.5, "V100-32G": 15.7}.items():
        told = reckoned(single, f"4x{device}", tmp_path)
        encode = max((one for one in told.charges if one.step.name == "encode"), key=lambda one: one.flops)
        for charge in (encode, only(told, "search")):
            assert 0.3 < charge.flops / (3600 * told.hours(charge) * 4 * peak * 1e12) <= 0.6 + 1e-9, device
        tuned = only(told, "finetune")
        assert tuned.flops / told.hours(tuned) > encode.flops / told.hours(encode), device


def test_no_training_takes_less_than_issuing_its_operators(bare, tmp_path):
    """250,000 steps of a tiny model: 22 minutes on whatever GPUs, and not 0.04 hours."""
    tiny = override(bare, {"backbone.name": "tiny", "stages.0.train.steps": 250_000})
    tiny = override(tiny, {"stages.0.negatives": [], "stages.0.per_query": 0})
    for shape in ("1xA100-40G", "8xH100"):
        told = reckoned(tiny, shape, tmp_path)
        hours = told.hours(only(told, "finetune"))
        assert hours == pytest.approx(250_000 * (270 + 2 * 2 * 130) * 10e-6 / 3600)
    beside = reckoned(tiny, "8xH100", tmp_path, side_by_side=True)
    assert beside.hours(only(beside, "finetune")) == pytest.approx(hours / 8, rel=0.01), "eight run at a time"


OWN = """
source = "our contract, 2026"
device_hour = {H100 = 2.5}
store = {writes = 0.01, reads = 0.001, gib_month = 0.02}
"""


def test_hours_of_every_device_and_requests_are_paid(recipe, tmp_path, monkeypatch):
    told = estimate([plan(recipe).evaluation(recipe.evaluation)], Place(str(tmp_path)), shape_named("4xH100"))
    told = replace(told, charges=[replace(charge, alone_seconds=36_000.0) for charge in told.charges])
    (tmp_path / "own.toml").write_text(OWN)
    assert all(shape_named(name).device.name == name for name in read_prices().device_hour), "shipped prices"
    monkeypatch.setenv(PRICES_VARIABLE, str(tmp_path / "own.toml"))
    hours = 4 * told.total_hours
    paid = f"price: {2.5 * hours:,.2f} USD for {hours:,.1f} hours of one H100 at 2.5"
    assert priced(told) == f"{paid} (our contract, 2026)"
    asked = replace(told, traffic=Traffic(writes=2e6, reads=3e6, up=0, down=0, exchanged=0))
    month = 0.02 * told.total_bytes / 2**30
    assert f"at 2.5, 23.00 for requests, {month:,.2f} for each month in the store (our" in priced(asked)
    assert priced(asked) in as_text(asked)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("2.5", "-2.5", r"own\.toml: device_hour\.H100 = -2\.5"), ("reads", "r", "reads: a ")],
)
def test_a_wrong_price_list_is_refused(old, new, message, tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text(OWN.replace(old, new))
    monkeypatch.setenv(PRICES_VARIABLE, str(tmp_path / "own.toml"))
    with pytest.raises(UserError, match=message):
        read_prices()


def test_every_byte_goes_up_once_and_comes_down_as_often_as_it_is_read(recipe):
    with object_store() as options:
        storage = Place(f"s3://bucket/store?{options}")
        steps = plan(recipe)
        Runner(storage, LOCAL).run(steps.corpus)
        done = sum(file["size"] for file in load(steps.corpus.place(storage)).record["files"].values())
        told = estimate([steps.evaluation(recipe.evaluation)], storage, shape_named("2xH100"), workers=2)
    own = {charge.step.fingerprint: charge.bytes for charge in told.charges}
    sizes = {**own, steps.corpus.fingerprint: done}
    read = sum(sizes[source.fingerprint] for charge in told.charges for source in charge.step.inputs.values())
    trained = [one.training for one in told.charges if one.training is not None]
    asked = told.traffic
    assert asked.up == pytest.approx(sum(own.values()))
    assert asked.down == pytest.approx(sum(own.values()) + read)
    assert asked.exchanged == pytest.approx(sum(2 * WHOLE * one.counted.parameters * one.steps for one in trained))
    assert estimate([steps.tokens], Place("/nowhere"), shape_named("2xH100")).traffic is None, "a disk has none"


def test_a_shape_is_a_number_of_devices_and_the_memory_of_a_machine_behind_a_colon():
    for text, name in (("4 x a100-40g", "4xA100-40G"), ("2xcpu", "2xcpu"), ("L4", "1xL4"), ("16XT4", "16xT4")):
        assert str(shape_named(text)) == name and shape_named(text).device == DEVICES[name.partition("x")[2].lower()]
    assert shape_named("8xH100:2048").ram == 2048 * 2**30 and shape_named("2xcpu:24").ram == 24 * 2**30
    assert shape_named("8xH100").ram is None and shape_named("2xcpu").ram == this_machine().ram


def test_a_mistaken_shape_is_refused():
    known, wanted = {"8xH10": "did you mean 'H100'", "8xA100": "A100-40G, A100-80G"}, "COUNTxDEVICE"
    counts = {"0xH100": "0 devices", "-2xcpu": "-2 devices", "eight H100": wanted, "8xH100:2TB": f"{wanted}:GIB"}
    for text, told in {**known, **counts}.items():
        with pytest.raises(UserError, match=told):
            shape_named(text)


@pytest.mark.parametrize("embedded", [False, True])
def test_saved_datasets_tell_their_passages_whatever_other_columns_there_are(tmp_path, embedded):
    count, draw = 12_000, random.Random(0)
    columns = {"text": pa.array(["word " * draw.randint(10, 80) for _ in range(count)])}
    if embedded:
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(count * 64, np.float32)), 64)
    save(tmp_path / "wiki", pa.table(columns), shards=2)
    volume = Volumes(Place(str(tmp_path / "store"))).corpus(Step("prepare", CorpusConfig(name=f"hf:{tmp_path}/wiki")))
    assert volume.passages == pytest.approx(count, rel=0.15)
    assert volume.mean_characters == pytest.approx(5 * 45, rel=0.1)


def counter(calls: list[tuple[object, ...]]):
    """A function of its own, as another process would have it."""

    @remembered(float)
    def area(side: int, *, scale: float = 1.0) -> float:
        calls.append((side, scale))
        return side * side * scale

    return area


def test_a_count_is_made_once_for_each_argument_and_anew_where_its_file_is_spoilt(tmp_path, monkeypatch):
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path))
    calls: list[tuple[object, ...]] = []
    assert [counter(calls)(3), counter(calls)(3), counter(calls)(4), counter(calls)(3, scale=2.0)] == [9, 9, 16, 18]
    assert calls == [(3, 1.0), (4, 1.0), (3, 2.0)]
    for number, content in enumerate(("{", '{"a": 1}'), start=4):
        for file in tmp_path.glob("counts/*.json"):
            file.write_text(content)
        assert counter(calls)(3) == 9.0 and len(calls) == number
    assert sorted(file.read_text() for file in tmp_path.glob("counts/*.json")) == ["9.0", content, content]
