"""Cells of a benchmark, what a command line asks of one, and a published model folder as a system of it."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.benchmark.design import Benchmark, Setting, names_in, variant
from midmask.benchmark.job import preset_with_flags
from midmask.benchmark.layout import BenchmarkCell, lay_out, recipe_of
from midmask.benchmark.presets import PRESETS, Given
from midmask.benchmark.results import SystemKey
from midmask.errors import UserError
from midmask.recipes import RECIPES
from tests.support.benchmark.synthetic import dense
from tests.support.benchmark.tiny import SHORT, WORDS, write_collection


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return write_collection(tmp_path_factory.mktemp("design") / "tiny")


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> str:
    return write_collection(tmp_path_factory.mktemp("design") / "other")


def given(corpus: str, **changes) -> Benchmark:
    both = Setting(protocols={"dense": "in_batch", "splade": "in_batch_splade"})
    fields = {"name": "try", "title": "a try", "corpus": corpus, "settings": {"in_batch": both}, **changes}
    return Benchmark(**{"systems": ("bm25", "none", "mlm"), "representations": ("dense", "splade"), **fields})


def steps_of(cell: BenchmarkCell) -> dict[str, str]:
    """Names of the steps behind a cell's main evaluation -> their fingerprints."""
    return {step.name: step.fingerprint for step in cell.evaluations[cell.main].upstream()}


def test_each_system_meets_each_condition_once(corpus, other):
    layout = lay_out(given(corpus, collections={"corpus": (), "other": (other,)}, seeds=(0, 7)))
    found = [(cell.key.system, cell.key.collection, cell.key.representation, cell.seed) for cell in layout.cells]
    conditions = [(kind, seed) for kind in ("dense", "splade") for seed in (0, 7)]
    trained = [("mlm", name, *one) for name in ("corpus", "other") for one in conditions]
    untrained = [("none", "none", *one) for one in conditions]
    assert found == [("bm25", "none", "bm25", 0), *untrained, *trained]
    assert not layout.left_out and len({cell.name for cell in layout.cells}) == len(layout.cells)
    assert {name for cell in layout.cells for name in cell.evaluations} == {("tiny", "dev"), ("tiny", "test")}


def test_seeds_and_representations_share_the_middle_training(corpus, other):
    cells = lay_out(given(corpus, collections={"corpus": (), "other": (other,)}, seeds=(0, 7))).cells
    steps = [steps_of(cell) for cell in cells if cell.key.system == "mlm"]
    assert len({found["pretrain"] for found in steps}) == 2, "one per collection"
    assert len({found["finetune"] for found in steps}) == len(steps) == 8


def test_each_middle_training_is_fine_tuned_with_seeds_of_its_own(corpus):
    cells = lay_out(given(corpus, representations=("dense",), pretrain_seeds=(1, 2, 3), seeds=(0, 7))).cells
    steps = [steps_of(cell) for cell in cells]
    seeds = [(cell.key.system, cell.pretrain_seed, cell.seed) for cell in cells]
    nested = [("mlm", 1, 8), ("mlm", 1, 15), ("mlm", 2, 16), ("mlm", 2, 23), ("mlm", 3, 24), ("mlm", 3, 31)]
    assert seeds == [("bm25", None, 0), *(("none", None, seed) for *_, seed in nested), *nested]
    assert len({found["pretrain"] for found in steps[7:]}) == 3
    assert len({found["finetune"] for found in steps[1:]}) == len({cell.name for cell in cells}) - 1 == 12
    part = lay_out(given(corpus, representations=("dense",), pretrain_seeds=(2,), seeds=(0, 7))).cells
    assert {cell.name for cell in part} < {cell.name for cell in cells}, "a benchmark may be run in parts"


def test_a_setting_without_stages_measures_what_fine_tuning_begins_with(corpus):
    in_batch = {"dense": "in_batch"}
    settings = {"as it is": Setting(protocols=in_batch, stages=0), "tuned": Setting(protocols=in_batch)}
    cells = lay_out(given(corpus, settings=settings, representations=("dense",), seeds=(0, 7))).cells
    trained = [cell for cell in cells if cell.key.system != "bm25"]
    found = {(cell.key.system, cell.key.setting, cell.seed): steps_of(cell).keys() for cell in trained}
    once = {key for key in found if key[1] == "as it is"}
    assert once == {("none", "as it is", 0), ("mlm", "as it is", 0)}, "no seed draws anything there"
    assert not any("finetune" in found[key] for key in once) and len(found) == 6
    assert "initial" in found["none", "as it is", 0] and "pretrain" in found["mlm", "as it is", 0]


@pytest.mark.parametrize(
    "system, changes, reason",
    [
        ("simcse", {}, "splade): simcse leaves the MLM head"),
        ("scratch", {}, "random weights in any case"),
        ("retromae_ance", {"systems": ("retromae", "retromae_ance")}, "the same experiment as retromae"),
        ("mlm", {"representations": ("dense", "hybrid")}, "in_batch has no hybrid form"),
        ("mlm", {"only": {"splade": ("none",)}, "systems": ("none", "mlm")}, "with none alone"),
        ("cotmae", {"changes": {"spans.span_length": 4000}}, "the backbone takes at most"),
    ],
)
def test_what_makes_no_sense_is_left_out_with_its_reason(system, changes, reason, corpus):
    layout = lay_out(given(corpus, **{"systems": ("none", system), **changes}))
    told = [f"{key.representation}): {why}" for key, why in layout.left_out.items() if key.system == system]
    assert any(reason in line for line in told), told
    run = {(cell.key.system, cell.key.representation) for cell in layout.cells}
    assert not run & {(key.system, key.representation) for key in layout.left_out}
    again = lay_out(given(corpus, collections={"corpus": (), "again": (corpus,)}, representations=("dense",)))
    assert [key.collection for key in again.left_out] == ["again"], "a collection that is the corpus"


def test_variants_change_one_field_of_a_recipe(corpus):
    benchmark = given(corpus, systems=("retromae", "retromae[decoding=basic,decoder_layers=2]", "cotmae[experts=all]"))
    _, changed, split = [recipe_of(benchmark, key) for key in benchmark.keys() if key.representation == "dense"]
    assert (changed.objective.decoding, changed.objective.decoder_layers) == ("basic", 2)
    assert split.backbone.experts == "all" and split.objective.name == "cotmae"
    assert variant("dupmae[representation.passage_terms=260]")[1] == {"representation.passage_terms": "260"}


def test_a_representation_has_sizes_of_its_own_and_a_recipe_the_last_word(corpus):
    own = {"splade": {"evaluation.passage_terms": 256, "pretrain.seed": 5}, "mlm": {"pretrain.seed": 6}}
    benchmark = given(corpus, systems=("none", "mlm"), own=own)
    found = {(key.system, key.representation): recipe_of(benchmark, key) for key in benchmark.keys()}
    terms = {key: recipe.evaluation.passage_terms for key, recipe in found.items()}
    assert {key[1]: count for key, count in terms.items()} == {"dense": None, "splade": 256}
    assert [found["none", kind].pretrain.seed for kind in ("dense", "splade")] == [0, 5]
    assert [found["mlm", kind].pretrain.seed for kind in ("dense", "splade")] == [6, 6]
    with pytest.raises(UserError, match="recipe or representation"):
        given(corpus, own={"spalde": {}})


@pytest.mark.parametrize("system, message", [
    ("retromea", "retromae"), ("retromae[decoding]", "recipe\\[field=value"),
    ("retromae[decoder_layer=2]", "decoder_layers"), ("retromae[decoder_layers=2]", "needs decoding = basic"),
])  # fmt: skip
def test_a_mistyped_system_is_told_before_anything_runs(system, message, corpus):
    with pytest.raises(UserError, match=message):
        lay_out(given(corpus, systems=(system,)))


def test_a_change_for_all_stages_reaches_every_stage_and_only_teachers_that_are_there(corpus):
    setting = Setting(protocols={"hybrid": "dupmae"})
    changes = {"stages.*.train.steps": 5, "stages.*.teacher.train.steps": 9}
    only = {"systems": ("dupmae",), "representations": ("hybrid",), "settings": {"dupmae": setting}}
    benchmark = given(corpus, **only, changes=changes)
    (key,) = benchmark.keys()
    stages = recipe_of(benchmark, key).stages
    assert [stage.train.steps for stage in stages] == [5, 5, 5]
    assert [stage.teacher.train.steps for stage in stages if stage.teacher] == [9]
    cut = {"dupmae": setting.model_copy(update={"stages": 2})}
    two = recipe_of(benchmark.model_copy(update={"settings": cut}), key)
    assert len(two.stages) == 2 and not any(stage.teacher for stage in two.stages)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "collections"])
def test_every_preset_can_be_planned(name, corpus, other):
    """Published sizes with a backbone that is at hand; the demo's takes every recipe."""
    benchmark = PRESETS[name](Given("published", corpus, (other,)))
    small = {**benchmark.changes, "backbone.name": "tiny", "tokens.tokenizer": None}
    systems = tuple(RECIPES) if name == "demo" else benchmark.systems
    layout = lay_out(benchmark.model_copy(update={"changes": small, "systems": systems}))
    assert layout.cells and {cell.key.setting for cell in layout.cells} - {"none"} == set(benchmark.settings)
    run = {cell.key.system for cell in layout.cells}
    assert benchmark.baseline in run
    if name == "demo":
        assert set(RECIPES) - run <= {"scratch", "retromae_ance"}
    if name not in ("sigir23", "dupmae", "retromae"):
        assert "teach" not in {step.name for step in layout.steps().values()}, "it distils nothing"


@pytest.mark.parametrize(
    ("name", "scale"), [("sigir23", "demo"), ("sigir23", "published"), ("dupmae", "demo"), ("retromae", "published")]
)
def test_all_systems_of_a_setting_have_one_teacher(name, scale, corpus, other):
    """Whatever its middle training, collection, representation, lengths, negatives or seed. Other presets have none."""
    benchmark = PRESETS[name](Given(scale, corpus, (other,)))
    small = {**benchmark.changes, "backbone.name": "tiny", "tokens.tokenizer": None}
    systems = tuple(dict.fromkeys((*benchmark.systems, "scratch", "simcse", "cotmote", "cotmote_separate")))
    wanted = benchmark.model_copy(update={"changes": small, "seeds": (0, 7), "systems": systems})
    layout = lay_out(wanted)
    taught = {step.fingerprint: step for step in layout.steps().values() if step.name == "teach"}
    teachers: dict[str, set[str]] = {}
    for cell in layout.cells:
        for step in (step for last in cell.evaluations.values() for step in last.upstream() if step.name == "score"):
            teachers.setdefault(cell.key.setting, set()).add(step.inputs["teacher"].fingerprint)
    assert teachers and all(len(found) == 1 for found in teachers.values())
    assert set().union(*teachers.values()) == set(taught)
    assert len(taught) == (2 if name == "dupmae" else 1), "DupMAE's tables have RetroMAE as its own paper distils it"
    for teacher in taught.values():
        assert not {"pretrain", "finetune"} & {step.name for step in teacher.upstream()}


def test_collections_are_compared_at_equal_tokens(corpus, other):
    benchmark = PRESETS["collections"](Given(corpus=corpus, pretrain_on=(other,)))
    layout = lay_out(benchmark)
    kinds = {(cell.key.system, cell.key.collection) for cell in layout.cells}
    trained = {(name, read) for name in ("mlm", "retromae", "dupmae") for read in ("other", "tiny", "both")}
    assert kinds == {("bm25", "none"), ("none", "none"), *trained}
    trains = [step.config.train for step in layout.steps().values() if step.name == "pretrain"]
    assert len({train.steps * train.batch_size for train in trains}) == 1
    every = lay_out(benchmark.model_copy(update={"systems": tuple(RECIPES)}))
    more = {(cell.key.system, cell.key.collection) for cell in every.cells}
    assert kinds - {("bm25", "none")} < more, "the others are added"
    assert {read for name, read in more - kinds} == {"tiny"}, "and read the corpus alone"
    with pytest.raises(UserError, match="--pretrain-on"):
        PRESETS["collections"](Given(corpus=corpus))


JOB = Path(__file__).resolve().parents[2] / "jobs" / "benchmark_middle_training.py"
FLAGS = "preset systems seeds pretrain_seeds representations settings zero_shot collections out".split()


@pytest.fixture
def ask(tmp_path: Path):
    corpus, other = (write_collection(tmp_path / name) for name in ("tiny", "other"))

    def found(preset: str, *more: str, **flags: str) -> Benchmark:
        options = resolve(parse(["--corpus", corpus, "--pretrain-on", other, *more], None), JOB)
        given = Namespace(**{**dict.fromkeys(FLAGS), "preset": preset, **flags})
        return preset_with_flags(replace(options, home=tmp_path), given)

    return found


def test_settings_and_systems_are_chosen_by_name(ask) -> None:
    one = ask("retromae", settings="dpr", systems="none,retromae[decoding=basic,decoder_layers=2]", seeds="3,4")
    assert list(one.settings) == ["dpr"] and one.seeds == (3, 4)
    assert one.systems == ("none", "retromae[decoding=basic,decoder_layers=2]", "bm25")
    with pytest.raises(UserError, match="--settings anse: the preset has dpr, ance"):
        ask("retromae", settings="anse")
    assert list(ask("collections").collections) == ["other", "tiny", "both"]
    alone, two = ask("collections", collections="tiny"), ask("collections", collections="both,tiny")
    assert list(alone.collections) == ["tiny"] and not alone.only
    assert set(two.collections) == {"both", "tiny"} and set(two.only) == {"both"}
    with pytest.raises(UserError, match="--collections wiki: the preset has other, tiny, both"):
        ask("collections", collections="wiki")
    assert ask("demo", pretrain_seeds="0,1").pretrain_seeds == (0, 1)
    with pytest.raises(UserError, match="pretrain_seeds 1, 1: a seed is named twice"):
        ask("demo", pretrain_seeds="1,1")
    with pytest.raises(UserError, match="--seed 3: --pretrain-seeds names"):
        ask("demo", "--seed", "3", pretrain_seeds="0,1")


def test_a_system_that_the_preset_does_not_have_is_run_under_all_of_its_conditions(ask) -> None:
    flags = {
        "systems": "retromae,simcse,retromae[pretrain.learning_rate=5e-6]",
        "settings": "no labels",
        "representations": "dense",
    }
    layout = lay_out(ask("pretrained", **flags))
    assert [cell.key.system for cell in layout.cells] == ["retromae", "retromae[pretrain.learning_rate=5e-6]", "bm25"]
    assert [key.system for key in layout.left_out] == ["simcse"], "the preset runs it with labels alone"


def test_what_is_set_by_hand_outdoes_the_preset_and_stands_in_the_captions(ask) -> None:
    one = ask("rom", "--set", "stages.*.train.steps=7", "--set", "pretrain.steps=5")
    for cell in lay_out(one).cells:
        assert [stage.train.steps for stage in cell.recipe.stages] == [7] * len(cell.recipe.stages)
    assert "stages.*.train.steps = 7, pretrain.steps = 5" in one.notes[-1]


DPR = Setting(protocols={"dense": "dpr"}, changes={"stages.*.train.steps": 2, "stages.*.train.batch_size": 4})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a paper's authors publish: a BERT with its tokenizer, as transformers saves them."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    where = tmp_path_factory.mktemp("hub") / "RetroMAE"
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    core = Tokenizer(models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    core.normalizer, core.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    specials = {f"{name[1:-1].lower()}_token": name for name in names[:5]}
    PreTrainedTokenizerFast(tokenizer_object=core, **specials).save_pretrained(where)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    BertForMaskedLM(BertConfig(vocab_size=len(names), max_position_embeddings=512, **shape)).save_pretrained(where)
    return where


def benchmark_of(corpus: str, *systems: str, **fields: Any) -> Benchmark:
    given = {"name": "retromae", "title": "a try", "corpus": corpus, "settings": {"dpr": DPR}, "changes": SHORT}
    return Benchmark(**{**given, "systems": systems, "measures": ("retromae",), **fields})


def test_a_published_folder_is_fine_tuned_as_the_others_are(folder: Path, tmp_path: Path) -> None:
    system = f"none[backbone.name={folder},tokens.tokenizer={folder}]"
    corpus = write_collection(tmp_path / "collection")
    plain, published = lay_out(benchmark_of(corpus, "none", system, splits=("dev",))).cells
    assert (plain.key, published.key) == (dense("none", setting="dpr"), SystemKey(system, "none", "dense", "dpr"))
    assert (published.recipe.backbone.name, published.recipe.tokens.tokenizer) == (str(folder), str(folder))
    assert published.recipe.protocol == "dpr" and published.recipe.objective is None
    assert names_in(f"bm25,{system},none") == ["bm25", system, "none"]
    with pytest.raises(UserError, match="/hub/nothing"):
        lay_out(benchmark_of("pydocs", "none[backbone.name=/hub/nothing]"))
