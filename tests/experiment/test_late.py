"""Late interaction in a plan: whose candidates it scores, and what is refused before anything is computed."""

from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.experiment.plan import Step, plan
from midmask.experiment.schema import Recipe
from midmask.identity import identity_of, override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.retrieve.bm25 import Bm25Config
from tests.support.corpora.collections import write_beir


@pytest.fixture
def late(tmp_path: Path) -> Recipe:
    write_beir(tmp_path / "few")
    recipe = PROTOCOLS["in_batch_late"]().on(RECIPES["none"](), "demo")
    return override(recipe, {"corpus.name": f"beir:{tmp_path}/few", "evaluation.depth": 50})


def search_of(recipe: Recipe) -> Step:
    return plan(recipe).evaluation(recipe.evaluation).inputs["ranked"]


def test_the_candidates_are_bm25s_first_and_one_more_for_a_query_that_is_a_passage(late: Recipe) -> None:
    pooled, deeper = search_of(late), search_of(override(late, {"evaluation.pool": 2000}))
    config = pooled.inputs["candidates"].config
    assert isinstance(config, Bm25Config)
    assert (config.depth, config.splits, config.titles) == (1001, ("dev",), late.tokens.titles)
    assert pooled.fingerprint != deeper.fingerprint and pooled.inputs["passages"] == deeper.inputs["passages"]
    whole = search_of(override(late, {"evaluation.candidates": "all"}))
    assert "candidates" not in whole.inputs and pooled.inputs["passages"] == whole.inputs["passages"]
    own = [plan(late).bm25_evaluation(evaluation).fingerprint for evaluation in (late.evaluation, pooled_by(late))]
    assert own[0] == own[1], "BM25 itself has no pool"


def pooled_by(late: Recipe) -> object:
    return override(late, {"evaluation.pool": 77}).evaluation


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation.pool": 49}, r"evaluation\.pool = 49 with evaluation\.depth = 50: .* set evaluation\.pool=50"),
        ({"evaluation.index": "HNSW8"}, r"evaluation\.index = HNSW8: no dense vectors are searched"),
        ({"representation": {}, "evaluation.pool": 70}, r"evaluation\.pool = 70: it is of late interaction"),
        ({"representation": {}, "evaluation.candidates": "all"}, r"evaluation\.candidates = all: it is of late"),
    ],
)
def test_what_means_nothing_is_refused_by_the_plan(late: Recipe, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        search_of(override(late, changes))


def test_other_representations_keep_their_fingerprints() -> None:
    """Fields of late interaction are in no identity where they have no effect."""
    recipe = RECIPES["none"]()
    assert "tokens" not in identity_of(recipe.representation)
    assert not {"pool", "candidates"} & identity_of(recipe.evaluation).keys()
    assert not {"pool", "candidates"} & identity_of(recipe.stages[0].mine).keys()
