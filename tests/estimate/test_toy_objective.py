"""An objective that only this file knows is priced by what it does, with an entry nowhere."""

from typing import ClassVar, Literal

import pytest
from torch import Tensor, nn

from midmask import objectives
from midmask.artifact import Place
from midmask.batch import Batch, Loss, Part, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.estimate import as_text, estimate, shape_named
from midmask.estimate.plan import Estimate
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.identity import override
from midmask.objectives.objective import Objective, ObjectiveConfig
from midmask.recipes import RECIPES
from midmask.registry import Registry
from midmask.vocabulary import Vocabulary
from tests.support.benchmark.tiny import short, write_collection

D, WIDE = 128, 4096


class Widened(Objective):
    """All tokens' states through one wide matrix."""

    class Config(ObjectiveConfig):
        name: Literal["widened"] = "widened"
        times: int = 1
        looks: bool = False

    parts: ClassVar[tuple[str, ...]] = ("widened",)

    def __init__(self, config: Config, backbone: Backbone, vocabulary: Vocabulary) -> None:
        super().__init__(backbone, vocabulary)
        self.config, self.wide = config, nn.Linear(D, WIDE, bias=False)

    def draw(self, batch: Batch) -> TokenRows:
        return batch.texts["passage"]

    def counts(self, drawn: TokenRows) -> dict[str, Tensor]:
        return {"widened": drawn.lengths_B.sum()}

    def forward(self, drawn: TokenRows) -> Loss:
        hidden_BLD = self.backbone.hidden(drawn.ids_BL, drawn.lengths_B)
        total = sum((self.wide(hidden_BLD).sum() for _ in range(self.config.times)), hidden_BLD.new_zeros(()))
        if self.config.looks and float(total.detach()) > 0:
            total = total + self.wide(hidden_BLD).sum()
        return Loss({"widened": Part(total, drawn.lengths_B.sum())})


@pytest.fixture
def recipe(tmp_path, monkeypatch) -> Recipe:
    table = objectives.PRETRAINING
    monkeypatch.setattr(objectives, "PRETRAINING", Registry(table.kind, {**table, "widened": Widened}))
    return short(RECIPES["mlm"](), write_collection(tmp_path / "tiny"))


def priced(recipe: Recipe, **objective: object) -> tuple[Estimate, float, float]:
    """An estimate on an empty storage; FLOPs of its pre-training, and its tokens."""
    step = plan(override(recipe, {"objective": objective} if objective else {})).pretrained
    whole = estimate([step], Place("/nonexistent/store"), shape_named("1xH100"))
    (charge,) = (one for one in whole.charges if one.step.name == "pretrain")
    return whole, charge.flops, charge.tokens


def test_a_new_objective_costs_what_it_does(recipe):
    """Once more through its matrix is 2 x width x columns a token, three times in training. Mean lengths are counted as
    whole tokens, 12 for 12.4 here. One that looks at numbers is priced as its encoder, and the report says so."""
    (_, once, tokens), (_, thrice, _) = priced(recipe, name="widened"), priced(recipe, name="widened", times=3)
    assert thrice - once == pytest.approx(2 * 3 * 2 * D * WIDE * tokens, rel=0.05)
    looking, flops, _ = priced(recipe, name="widened", looks=True)
    assert "widened: its loss needs numbers" in as_text(looking) and 0 < flops < once
    assert "needs numbers" not in as_text(priced(recipe)[0])
