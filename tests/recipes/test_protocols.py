"""Recipes and protocols: their fields, published numbers, scales, what they refuse, and each from texts to measures."""

import re
from pathlib import Path

import pytest
from transformers import AutoConfig

from midmask.app.driver import recipe_for, scale_notes
from midmask.app.flags import parse
from midmask.app.job import resolve
from midmask.core.config import flatten, override
from midmask.errors import UserError
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.recipes import RECIPES
from midmask.recipes.fields import FILE, refuse_unknown_fields
from midmask.recipes.protocols import PROTOCOLS
from midmask.store.place import Place
from tests.support.benchmark.tiny import short, write_collection
from tests.tools.fields import fields, page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    write_collection((made := tmp_path_factory.mktemp("protocols")) / "tiny")
    return made


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "dupmae" else pytest.mark.system) for name in PROTOCOLS]
)
def test_a_protocol_runs_from_texts_to_measures(name: str, folder: Path) -> None:
    recipe = short(PROTOCOLS[name]().on(RECIPES["scratch"](), "demo"), f"beir:{folder}/tiny")
    recipe.check()
    stages = plan(recipe)
    done = Runner(Place(str(folder / "store")), LOCAL).compute(stages.evaluation(recipe.evaluation))
    assert done.result["queries"] == 12 and set(done.result["measures"]) == {"nDCG@10", "RR@10", "R@100"}
    assert done.result["measures"]["R@100"] == 1.0, "all 48 passages are ranked"
    for step, stage in zip(stages.stages, recipe.stages, strict=True):
        assert ("negatives" in step.inputs) == bool(stage.sources)
        assert ("scores" in step.inputs) == (stage.teacher is not None)


def test_names_are_those_of_the_table_and_scales_keep_the_structure() -> None:
    for name in PROTOCOLS:
        protocol = PROTOCOLS[name]()
        assert protocol.name == name
        demo, published = (protocol.on(RECIPES["mlm"](), scale) for scale in ("demo", "published"))
        assert published.stages == protocol.stages and published.protocol == demo.protocol == name
        assert published.tokens.max_length == protocol.passage_length
        assert demo.tokens.max_length == RECIPES["mlm"]().tokens.max_length
        for small_stage, stage in zip(demo.stages, published.stages, strict=True):
            assert (small_stage.negatives, small_stage.starts_from) == (stage.negatives, stage.starts_from)
            same = {"temperature": stage.loss.temperature}
            assert small_stage.loss.model_copy(update=same) == stage.loss
            assert (small_stage.teacher is None) == (stage.teacher is None)
            assert small_stage.train.steps <= 150 < stage.train.steps


PUBLISHED = {
    "sigir23_1neg": {"batch_size": 128, "steps": 150_000, "learning_rate": 2e-5, "per_query": 1},
    "sigir23_32neg_distil": {"batch_size": 20, "learning_rate": 2e-5, "per_query": 32, "warmup": 0.01},
    "lexmae": {"batch_size": 24, "learning_rate": 2e-5, "per_query": 15, "depth": 200, "lambda_passage": 0.002},
    "cotmote": {"batch_size": 64, "learning_rate": 2e-5, "per_query": 15, "depth": 200},
    "cocondenser": {"batch_size": 64, "learning_rate": 5e-6, "per_query": 7, "depth": 200},
    "retromae": {"batch_size": 128, "learning_rate": 2e-5, "per_query": 15, "depth": 200, "warmup": 0.0},
}
"""First stages as the papers print them."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_numbers(name: str) -> None:
    stage = flatten(PROTOCOLS[name]().stages[0])
    own = [path for path in stage if not path.startswith(("teacher", "mine.per"))]
    found = {path.rsplit(".", 1)[-1]: stage[path] for path in own}
    assert {field: found[field] for field in PUBLISHED[name]} == PUBLISHED[name]


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name.startswith("sigir23_")])
def test_the_runs_of_sigir_23_have_the_loss_of_their_trainer(name: str) -> None:
    """One negative: SPLADE's first trainer, its candidates and groups; 32: the trainer released with the paper."""
    loss = PROTOCOLS[name]().stages[0].loss
    one = "1neg" in name
    assert loss.candidates == ("positives" if one and "distil" not in name else "local_negatives")
    if "splade" in name:
        assert loss.regularisers.passage_groups == ("separate" if one else "joint")
        assert loss.regularisers.ramp == (pytest.approx(1 / 3) if one else 0.0)


def test_what_a_stage_cannot_do_is_said_at_once() -> None:
    recipe = PROTOCOLS["dupmae"]().on(RECIPES["mlm"](), "demo")
    for path, value, message in [
        ("stages.1.negatives", ("minced",), r"'minced' is no source of negatives; write bm25, mined"),
        ("stages.2.teacher", None, r"loss.name = distillation needs a teacher"),
        ("stages.1.mine.filters.teacher_margin", 3.0, r"teacher_margin asks for scores before negatives are chosen"),
        ("stages.1.queries", 10, r"queries and mine.max_queries are two samples"),
    ]:
        with pytest.raises(UserError, match=message):
            override(recipe, {path: value})


def asked(*flags: str) -> tuple[Recipe, list[str]]:
    """The recipe that a command line asks for, and what is said of it."""
    options = resolve(parse([*flags], "A job."), Path("jobs/run_recipe.py"))
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


def test_a_folder_that_is_no_backbone_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    AutoConfig.for_model("roberta").save_pretrained(tmp_path / "bert-base-uncased")
    (tmp_path / "bert-base-uncased" / "config.json").write_text("{}")
    with pytest.raises(UserError, match="bert-base-uncased"):
        asked("--recipe", "retromae", "--scale", "published")


def test_the_file_holds_the_fields_of_all_recipes() -> None:
    assert FILE.read_text("utf-8").split() == fields(), "type `make guide`"


@pytest.mark.parametrize("name", RECIPES)
def test_every_field_and_section_of_a_recipe_is_known(name: str) -> None:
    paths = list(flatten(RECIPES[name]()))
    refuse_unknown_fields([*paths, *{path.rpartition(".")[0] for path in paths if "." in path}])


@pytest.mark.parametrize("path", ["pretrain.stepz", "stages.0.trane.steps", "x", "pretrain.steps.more", "stages.*.los"])
def test_another_path_is_refused(path: str) -> None:
    with pytest.raises(UserError, match="unknown field"):
        refuse_unknown_fields(["pretrain.steps", path])


def test_the_page_of_fields_is_up_to_date_and_has_each_with_a_type_and_a_meaning() -> None:
    written = (Path(__file__).resolve().parents[2] / "docs" / "fields.md").read_text("utf-8")
    assert page() == written, "type `make guide`"
    rows = [line.strip("| ").split(" | ") for line in written.splitlines() if line.startswith("| `")]
    assert sorted({path for row in rows for path in re.findall(r"`([^`]+)`", row[0])}) == fields()
    assert not [row[0] for row in rows if not all(cell.strip() for cell in row[1:4])]
