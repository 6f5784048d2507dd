"""The published scale is published in every field, or what is not is named, before anything runs."""

from pathlib import Path

import pytest
from transformers import AutoConfig

from midmask.app.driver import recipe_for, scale_notes
from midmask.app.flags import parse
from midmask.app.job import Options, resolve
from midmask.errors import UserError
from midmask.experiment.schema import Recipe


def options_of(*flags: str) -> Options:
    return resolve(parse([*flags], "A job."), Path("jobs/run_recipe.py"))


def asked(*flags: str) -> tuple[Recipe, list[str]]:
    """The recipe that a command line asks for, and what is said of it."""
    options = options_of(*flags)
    recipe = recipe_for(options, default="retromae")
    return recipe, scale_notes(recipe, options)


@pytest.fixture
def bert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that a relative name finds, as if it had been fetched: the config of BERT-base, no weights."""
    AutoConfig.for_model("bert").save_pretrained(tmp_path / "bert-base-uncased")
    monkeypatch.chdir(tmp_path)


def test_published_is_published_in_every_field(bert: None) -> None:
    recipe, notes = asked("--recipe", "retromae", "--protocol", "retromae", "--scale", "published")
    assert notes == ["--scale published, but corpus.name = pydocs: steps are epochs over MS MARCO"]
    assert (recipe.backbone.name, recipe.backbone.dropout) == ("bert-base-uncased", 0.1)
    assert recipe.tokens.tokenizer == "bert-base-uncased"
    assert (recipe.tokens.query_length, recipe.tokens.max_length, recipe.tokens.titles) == (32, 140, True)
    middle = recipe.pretrain
    assert (middle.steps, middle.batch_size, middle.learning_rate) == (round(20 * 8_841_823 / 1024), 1024, 1e-4)
    assert [(stage.train.batch_size, stage.train.learning_rate) for stage in recipe.stages] == [(128, 2e-5)] * 2


FIELDS = {"backbone.name": "tiny", "pretrain.steps": "800", "stages.0.per_query": "7"}


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_of_another_scale_is_named_with_both_values(path: str, bert: None) -> None:
    _, notes = asked("--protocol", "retromae", "--scale", "published", "--set", f"{path}={FIELDS[path]}")
    assert any(f"{path} = {FIELDS[path]}, published: " in note for note in notes)
    assert len(notes) == 2, "that one, and the corpus"


def test_a_published_rate_does_not_follow_another_backbone(bert: None) -> None:
    """MLM's published 5e-5 is also the default of pre-trained backbones; on a fresh BERT-base it stays."""
    recipe, _ = asked("--recipe", "mlm", "--scale", "published", "--set", "backbone.name=base")
    assert recipe.pretrain.learning_rate == 5e-5 and recipe.tokens.max_length == 128


def test_a_backbone_that_is_not_at_hand_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    AutoConfig.for_model("roberta").save_pretrained(tmp_path / "bert-base-uncased")
    (tmp_path / "bert-base-uncased" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"--scale published trains bert-base-uncased: .*--set backbone.name=FOLDER"):
        asked("--recipe", "retromae", "--scale", "published")
