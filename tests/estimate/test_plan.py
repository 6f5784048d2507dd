"""A whole plan: what is cached, what must grow, what is refused, what searches cost; sizes of models and volumes."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.core.config import override
from midmask.corpora.config import CorpusConfig
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.estimate import Estimate, as_text, estimate, refuse_impossible, shape_named
from midmask.estimate.devices import DEVICES, core_peak, this_machine
from midmask.estimate.plan import INDEXED_PER_SECOND, Charge
from midmask.estimate.trainings import model_size
from midmask.estimate.volumes import RANKED_BYTES, Volumes, dense_bytes
from midmask.experiment.graph import Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan, rungs
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey
from midmask.objectives import build_objective
from midmask.objectives.sample import pretraining_batch
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.store.artifact import RECORD, load
from midmask.store.place import Place
from tests.support.benchmark.tiny import SPLITS, short, write_collection
from tests.support.corpora.collections import save
from tests.support.objectives.texts import sample_vocabulary

WORDS = sample_vocabulary(3000)


@pytest.mark.parametrize("fields", [{"name": "mini"}, {"experts": "ffn"}, {"experts": "all"}], ids=str)
def test_parameters_of_encoders_are_those_of_real_ones(fields: dict[str, str]) -> None:
    backbone = build_backbone(config := BackboneConfig(**fields), WORDS, seed=0)
    assert model_size(config, WORDS.size).parameters == sum(weight.numel() for weight in backbone.parameters())


@pytest.mark.parametrize("name", ["mlm", "retromae", "condenser", "lexmae", "cotmae_v2", "seed"])
def test_what_a_method_trains_and_predicts_is_near_to_a_real_step(name: str) -> None:
    """Parameters within a twentieth, words within a tenth."""
    small = {"backbone.name": "mini", "pretrain.batch_size": 8, "pretrain.precision": "fp32"}
    recipe = override(RECIPES[name](), small)
    words = WORDS
    size = model_size(recipe.backbone, words.size, recipe.objective)
    objective = build_objective(recipe.objective, build_backbone(recipe.backbone, words, seed=0), words).train()
    assert size.parameters == pytest.approx(sum(weight.numel() for weight in objective.parameters()), rel=0.05)
    batch = pretraining_batch(recipe.objective, words, rows=8, length=64)
    tokens = sum(text.ids_BL.numel() for text in batch.texts.values()) / 8
    drawn = objective.draw(batch)
    assert size.predicted == pytest.approx(sum(map(int, objective.counts(drawn).values())) / tokens / 8, rel=0.1)


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
    assert few.total_hours <= many.total_hours and few.peak_bytes <= many.peak_bytes
    assert wide.total_hours <= few.total_hours


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


def test_a_model_that_no_device_of_the_shape_holds_is_refused_with_the_smallest_that_would(large, tmp_path):
    told = estimated(large, "1xT4", tmp_path)
    refuse_impossible(told)
    state = only(told, "pretrain").training.state
    small = replace(told.shape, device=replace(told.shape.device, memory=int(state)))
    with pytest.raises(UserError, match=r"moments take 1\.. GiB, and a training has 1\.. GiB.* or --on 1xT4"):
        refuse_impossible(replace(told, shape=small))


def test_more_workers_than_devices_are_refused(recipe, tmp_path):
    assert "a GPU to itself, and 4xA100-40G has room for 4" in refusal(recipe, "4xA100-40G", tmp_path, workers=5)
    assert "2xcpu has room for 4; use --workers 4 or fewer" in refusal(recipe, "2xcpu", tmp_path, workers=5)


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
    with pytest.raises(UserError, match="has room for 4"):
        refuse_impossible(estimate([target], storage, shape, workers=5, side_by_side=True))


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
    dev, train = sorted(one.hours for one in told.charges if one.step.name == "bm25")
    assert train == pytest.approx(502_939 * 8_841_823 * 5.9e-9 / 3_600, rel=0.02)
    assert dev == pytest.approx(train * 6_980 / 502_939, rel=0.01)
    assert only(told, "bm25_words").hours == pytest.approx(8_841_823 / 6_500 / 3_600, rel=0.01)
    assert max(one.hours for one in small.charges if one.step.name == "bm25") == pytest.approx(train / 100, 0.01)


def test_a_billion_passages_are_refused_with_what_to_do(bare, tmp_path):
    """768 numbers of 4 bytes each: 2,861 GiB, 357.6 on each of eight GPUs."""
    with pytest.raises(UserError, match=r"takes 357.6 GiB on each GPU.* are 73.6 GiB.*--on 40xH100.*PQ64"):
        refuse_impossible(reckoned(bare, "8xH100", tmp_path, 10**9))
    refuse_impossible(reckoned(bare, "40xH100", tmp_path, 10**9))
    refuse_impossible(reckoned(override(bare, {"evaluation.index": "IVF65536,PQ64"}), "8xH100", tmp_path, 10**9))
    with pytest.raises(UserError, match=r"357.6 GiB on each GPU|2,861.0 GiB on each GPU"):
        refuse_impossible(reckoned(bare, "40xH100", tmp_path, 10**9, side_by_side=True))


def test_an_index_is_as_large_as_its_codes_and_built_by_one_process_with_its_threads(bare, tmp_path):
    sizes = {"IVF256,Flat": 3072 + 8, "PQ32x4": 16, "SQfp16": 1536, "HNSW32": 3072 + 512, "OPQ32_128,IVF256,PQ64": 72}
    assert {factory: dense_bytes(factory, 768) for factory in sizes} == sizes
    wanted = {"evaluation.index": "IVF4096,PQ64", "evaluation.threads": 8}
    index = only(reckoned(override(bare, wanted), "64xcpu", tmp_path, 10**6), "index")
    assert index.work_seconds == pytest.approx(10**6 / INDEXED_PER_SECOND / 8)
    assert index.host == index.bytes == 10**6 * (64 + 8), "all codes and ids"


def test_an_index_beyond_the_hosts_memory_is_refused(bare, tmp_path):
    told = reckoned(bare, "64xcpu", tmp_path, 10**6)
    with pytest.raises(UserError, match=r"search on 64xcpu: it holds 2.9 GiB .* and there are 2.0 GiB.*PQ64"):
        refuse_impossible(replace(told, shape=replace(told.shape, ram=2**31)))


def test_a_shape_is_a_number_of_devices():
    for text, name in (("4Xa100-40g", "4xA100-40G"), ("2xcpu", "2xcpu"), ("L4", "1xL4"), ("16XT4", "16xT4")):
        assert str(shape_named(text)) == name and shape_named(text).device == DEVICES[name.partition("x")[2].lower()]
    assert shape_named("8xH100").ram is None and shape_named("2xcpu").ram == this_machine().ram


def test_a_mistaken_shape_is_refused():
    known, wanted = {"8xH10": "did you mean 'H100'", "8xA100": "A100-40G, A100-80G"}, "COUNTxDEVICE"
    counts = {"0xH100": wanted, "-2xcpu": wanted, "eight H100": wanted, "8xH100:2TB": wanted}
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
    assert volume.characters == pytest.approx(5 * 45, rel=0.1)


N, Q, D = 48, len(SPLITS["dev"]), 128


@pytest.fixture(scope="module")
def storage(recipe, tmp_path_factory) -> Place:
    """Corpus and tokens are made, so that their numbers are known exactly."""
    place = Place(str(tmp_path_factory.mktemp("store")))
    Runner(place, LOCAL).compute(plan(recipe).tokens)
    return place


def charged(recipe: Recipe, name: str, storage: Place, shape: str = "1xcpu", **changes: Any) -> list[Charge]:
    changed = override(recipe, {path.replace("__", "."): value for path, value in changes.items()})
    told = estimate([plan(changed).evaluation(changed.evaluation)], storage, shape_named(shape))
    return [charge for charge in told.charges if charge.step.name == name]


def test_encodings_read_every_text_once_and_searches_all_pairs(recipe, storage):
    tokens = load(plan(recipe).tokens.place(storage)).result["tokens"]
    passages = max(charged(recipe, "encode", storage), key=lambda charge: charge.tokens)
    assert passages.tokens == pytest.approx(tokens) and passages.bytes == 4 * D * N
    cut = max(charged(recipe, "encode", storage, evaluation__passage_length=8), key=lambda charge: charge.tokens)
    assert cut.tokens == N * 8 and cut.work_seconds < passages.work_seconds
    (search,) = charged(recipe, "search", storage)
    assert search.bytes == RANKED_BYTES * Q * N, "no more rows than there are passages, though the depth is 101"
    assert search.work_seconds == pytest.approx(2 * Q * N * D / DEVICES["cpu"].rate(bf16=False))
    late = {"representation__dense": None, "representation__tokens": 32}
    stored = charged(recipe, "encode", storage, **late)[0].bytes
    assert stored == pytest.approx(N * ((32 + 4) * tokens / N + 4))


@pytest.mark.parametrize(("limits", "words"), [((None, None), (200, 30)), ((64, 7), (64, 7))])
def test_a_lexical_search_adds_up_the_postings_that_are_met(recipe, storage, limits, words):
    """Of V lists each query reads as many as it has words; a list is as long as passages have words, over V."""
    splade = {"representation__dense": None, "representation__lexical": "splade"}
    splade |= {"representation__passage_terms": limits[0], "representation__query_terms": limits[1]}
    vocabulary = load(plan(recipe).tokens.place(storage)).result["vocabulary"]
    (search,) = charged(recipe, "search", storage, **splade)
    assert search.work_seconds == pytest.approx(Q * words[1] * N * words[0] / vocabulary / 1e8)


def test_a_training_pays_for_the_steps_that_are_left(recipe, storage):
    """The second rung goes on from the first; a pre-training's state stays, 12 bytes a parameter more."""
    longer = override(recipe, {"pretrain.steps": 40, "pretrain.batch_size": 8})
    both = [steps.pretrained for steps in rungs(longer, (0.25, 1.0), Survey())]
    rung = [estimate([step], storage, shape_named("1xcpu")) for step in both]
    first, second = (told.charges[-1] for told in rung)
    assert (first.training.steps, second.training.steps) == (10, 30)
    assert second.tokens == pytest.approx(3 * first.tokens) and first.bytes > 16 * first.training.size.parameters
    (tuned,) = charged(longer, "finetune", storage)
    assert 4 * tuned.training.size.parameters < tuned.bytes < 5 * tuned.training.size.parameters


def test_scored_pairs_are_the_positive_and_every_listed_candidate(recipe, storage):
    """Query, passage and the three specials of a pair; a list is as long as it was mined, or as it is cut."""
    whole = short(PROTOCOLS["sigir23_32neg_distil"]().on(recipe, "demo"), recipe.corpus.name)
    for charge in charged(whole, "score", storage):
        lists = [source for name, source in charge.step.inputs.items() if name.startswith(("negatives", "ranked"))]
        listed = sum(getattr(source.config, "per_query", getattr(source.config, "depth", 0)) for source in lists)
        assert charge.bytes == 30 * len(SPLITS["train"]) * (1 + listed)
        assert 3 < charge.tokens / (len(SPLITS["train"]) * (1 + listed)) < 64


def test_a_report_names_what_is_left_and_what_it_needs(recipe, storage):
    told = estimate([plan(recipe).evaluation(recipe.evaluation)], storage, shape_named("2xH100"))
    lines = as_text(told).splitlines()
    assert any(line.split()[:2] == ["pretrain", "1"] for line in lines) and "2 steps are cached" in as_text(told)
    assert "peak storage, including temporary checkpoints: " in lines[-1]


def test_a_core_of_this_machine_has_the_share_of_its_own_products_that_trainings_reach():
    core = this_machine().device
    assert core.rate(bf16=True) == pytest.approx(0.3 * core_peak(torch.bfloat16)) and core.peak != DEVICES["cpu"].peak
