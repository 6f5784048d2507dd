"""Every name by which a page asks for a setting is one that plans and recipes have: a wrong one shows nothing."""

import re
from collections.abc import Iterator
from itertools import filterfalse
from typing import Any

import pytest

from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.identity import flatten
from midmask.leaderboard.entries import SEEDS, WITHOUT_EFFECT
from midmask.leaderboard.lineage import TOLD
from midmask.leaderboard.surfaces import DECODER_RATIO, ENCODER_RATIO
from midmask.recipes import RECIPES
from midmask.retrieve.run_file import RunFileConfig
from midmask.retrieve.search_config import SearchConfig
from midmask.retrieve.timing import TimingConfig
from tests.support.dashboards.browser import ROOT
from tests.support.queries.labelled import generating
from tests.support.tracked import is_foreign
from tests.support.unread import Unread

PLACES = ("platform/midmask/leaderboard", "dashboards")


@pytest.fixture(scope="module")
def recipes() -> list[Recipe]:
    return [RECIPES[name]() for name in RECIPES]


def steps_of(recipes: list[Recipe]) -> dict[str, list[Step]]:
    """Step name -> those of these recipes, of their evaluation, and of BM25's."""
    found: dict[str, list[Step]] = {}
    for recipe in recipes:
        planned = plan(recipe, Unread())
        config, indexed = EvaluateConfig(), EvaluateConfig(index="IVF8,Flat")
        fused = EvaluateConfig(bm25_share=0.5)
        targets = [planned.evaluation(config), planned.bm25_evaluation(config), planned.evaluation(fused)]
        if recipe.representation.lexical is None:
            targets.append(planned.evaluation(indexed))
        for target in targets:
            for step in target.upstream():
                found.setdefault(step.name, []).append(step)
    found["generator"] = [Step("generator", generating())]  # jobs' own steps, of no recipe
    found["read_run"] = [Step("read_run", RunFileConfig(split="test"))]
    found["time_searches"] = [Step("time_searches", TimingConfig(searches=(SearchConfig(),)))]
    return found


def test_lineage_asks_for_fields_of_the_steps_config(recipes: list[Recipe]) -> None:
    steps = steps_of(recipes)
    for step, paths in TOLD.items():
        assert steps[step], "no plan has this step"
        for path in paths:
            lacking = [one.config for one in steps[step] if not has(one.config.model_dump(mode="json"), path)]
            assert not lacking, f"{type(lacking[0]).__name__} has no {path}"


def has(config: Any, path: str) -> bool:
    for name in path.split("."):
        if config is None:
            return True  # a part that may be left out, as a teacher's backbone
        if not isinstance(config, dict) or name not in config:
            return False
        config = config[name]
    return True


def test_endings_of_seeds_and_of_runtime_fields_are_those_of_some_setting(recipes: list[Recipe]) -> None:
    known = {f".{path}" for recipe in recipes for path in flatten(recipe)}
    lacking = [name for name in (*SEEDS, *WITHOUT_EFFECT) if not any(path.endswith(f".{name}") for path in known)]
    assert not lacking


def test_params_that_pages_ask_for_by_name_exist(recipes: list[Recipe]) -> None:
    known = {path for recipe in recipes for path in flatten(recipe)}
    assert {ENCODER_RATIO, DECODER_RATIO} <= known
    asked = list(names_asked())
    assert asked, "the expression below finds what pages ask for"
    assert not [name for name in asked if not any(path == name or path.endswith(f".{name}") for path in known)]


def names_asked() -> Iterator[str]:
    """Literal names in `params.get("…")`, `params["…"]` and `param(run, "…")`."""
    asks = re.compile(r"""params\.get\(\s*"([^"]+)"|params\["([^"]+)"\]|\bparam\(\w+, "([^"]+)"\)""")
    for place in PLACES:
        for path in filterfalse(is_foreign, (ROOT / place).rglob("*.py")):
            yield from (next(filter(None, found)) for found in asks.findall(path.read_text(encoding="utf8")))
