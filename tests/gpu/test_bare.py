"""A recipe is planned with little installed: torch, transformers, pydantic, numpy and pyarrow."""

from pathlib import Path

from tests.support.corpora.collections import write_beir
from tests.support.gpu.bare import BLOCKED, run_text

PLANNED = """
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
from midmask.experiment.plan import plan
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
recipe = override(RECIPES["retromae"](), {{"corpus.name": {corpus!r}}})
print(plan(recipe).evaluation(recipe.evaluation).inputs["ranked"].name in LOCAL)
"""


def test_a_recipe_is_planned_without_what_trackers_clusters_and_searches_need(tmp_path: Path) -> None:
    write_beir(tmp_path)
    outcome = run_text(PLANNED.format(blocked=BLOCKED, corpus=f"beir:{tmp_path}"))
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    assert outcome.stdout == "True\n"
