"""Rates, lengths and tokenizer follow the backbone: fresh weights, or pre-trained ones; what is set by hand stays."""

from pathlib import Path

import pytest
from transformers import AutoConfig

from midmask.app.driver import recipe_for
from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.schema import Recipe
from midmask.identity import flatten
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS

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


@pytest.mark.parametrize("path", FOLLOWING)
def test_what_is_set_by_hand_wins_even_if_it_is_the_other_default(path: str, folder: str) -> None:
    fresh, _ = FOLLOWING[path]
    found = flatten(asked("--set", f"{path}={fresh}", "--set", f"backbone.name={folder}"))
    assert found[path] == fresh
    assert {other: found[other] for other in FOLLOWING if other != path} == {
        other: pretrained for other, (_, pretrained) in FOLLOWING.items() if other != path
    }


def test_published_protocols_keep_their_numbers(folder: str) -> None:
    for name in PROTOCOLS:
        published = PROTOCOLS[name]().on(RECIPES["mlm"](), "published")
        found = apply_changes(published, {"backbone.name": folder})
        assert found.stages == published.stages, name
        assert found.pretrain.learning_rate == 5e-5, "the recipe's own, which is no protocol's"
