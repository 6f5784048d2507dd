"""Protocols: their published numbers, what they refuse, and each from texts to measures on a tiny collection."""

from pathlib import Path

import pytest

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import LOCAL
from midmask.identity import flatten, override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from tests.support.benchmark.tiny import write_collection


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protocols") / "tiny"
    write_collection(folder)
    return folder


def small(recipe: Recipe, collection: Path) -> Recipe:
    """The recipe on the collection, each training two steps long."""
    changes: dict[str, object] = {"corpus.name": f"beir:{collection}", "tokens.vocabulary_size": 300, "objective": None}
    for path in flatten(recipe):
        if path.startswith("stages.") and path.endswith(".steps"):
            changes[path] = 2
        if path.startswith("stages.") and path.endswith(".batch_size"):
            changes[path] = 4
    return override(recipe, {path: value for path, value in changes.items() if path in flatten(recipe)})


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "dupmae" else pytest.mark.system) for name in PROTOCOLS]
)
def test_a_protocol_runs_from_texts_to_measures(name: str, collection: Path, tmp_path: Path) -> None:
    recipe = small(PROTOCOLS[name]().on(RECIPES["scratch"](), "demo"), collection)
    recipe.check()
    stages = plan(recipe)
    storage = Place(str(collection.parent / "store"))
    done = Runner(storage, LOCAL, Silent()).run(stages.evaluation(recipe.evaluation))
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
"""First stages as methods.md prints them (7, 9, 12.2, 12.4, 12.6)."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_numbers(name: str) -> None:
    stage = flatten(PROTOCOLS[name]().stages[0])
    found = {
        path.rsplit(".", 1)[-1]: value for path, value in stage.items() if not path.startswith(("teacher", "mine.per"))
    }
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
