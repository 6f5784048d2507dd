"""An encoder that is fine-tuned at several widths and searched by the first dimensions, as a recipe says it."""

from pathlib import Path

import pytest

from midmask.artifact import Place, load
from midmask.errors import UserError
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import short, write_collection


def test_a_recipe_with_widths_is_searched_by_them_without_new_vectors(tmp_path: Path) -> None:
    corpus, storage = write_collection(tmp_path / "words"), Place(str(tmp_path / "store"))
    recipe = override(short(RECIPES["none"](), corpus), {"stages.0.loss.widths": (32, 64)})
    runner, found = Runner(storage, LOCAL, Silent()), {}
    for width in (None, 32):
        steps = plan(recipe)
        evaluation = steps.evaluation(recipe.evaluation.model_copy(update={"width": width}))
        runner.run(evaluation)
        search = evaluation.inputs["ranked"]
        found[width] = load(search.place(storage)).result["bytes_per_passage"]
    assert found[32] == 4 * 32 < found[None]
    assert len((storage / "encode").names()) == 2, "passages and queries, once"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stages.0.loss.widths": (64, 128)}, "loss.widths = 64,128: the dense view has 128 dimensions"),
        ({"evaluation.width": 129}, "evaluation.width = 129: the dense view that is searched has 128 dimensions"),
        ({"evaluation.width": 8, "representation.width": 4}, "has 4 dimensions"),
        ({"evaluation.width": 8, "evaluation.index": "IVF4,Flat"}, "it is of an exact search"),
    ],
)
def test_widths_that_cannot_be_are_refused_before_any_work(changes: dict[str, object], told: str) -> None:
    with pytest.raises(UserError) as refused:
        override(RECIPES["none"](), changes).check()
    assert told in str(refused.value)
