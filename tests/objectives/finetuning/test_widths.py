"""Losses at several widths of the dense view: each is the loss of vectors that were cut by hand, and they are added."""

from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.errors import UserError
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.distillation import Distillation
from tests.support.objectives.checks import reference_of
from tests.support.objectives.ranked import (
    GROUP,
    QUERIES,
    REPRESENTATIONS,
    TEACHER,
    Views,
    all_views,
    assert_equal,
    batch,
    build,
    cross_entropy,
    score,
)


def cut(views: Views, width: int | None, *, unit: bool) -> Views:
    dense, lexical = views
    if width is None or dense is None:
        return views
    first = dense[:width]
    return (first / torch.sqrt((first**2).sum()) if unit else first), lexical


def slow_scores(objective: Any, reference: Any, width: int | None) -> list[list[Tensor]]:
    """Of each query with each passage, by the first `width` dimensions."""
    representation = objective.backbone.pooling.representation
    sides = all_views(reference, representation)
    queries, passages = ([cut(text, width, unit=representation.normalise) for text in side] for side in sides)
    return [[score(query, passage) / objective.config.temperature for passage in passages] for query in queries]


@pytest.mark.parametrize("name", ["cls", "unit mean"])
def test_contrastive_losses_of_all_widths_are_added(name: str) -> None:
    widths = (8, 50)
    temperature = 0.5 if REPRESENTATIONS[name].normalise else 20.0
    objective = build(Contrastive.Config(), REPRESENTATIONS[name], widths=widths, temperature=temperature)
    reference = reference_of(objective)
    losses = []
    for width in (None, *widths):
        for row, scores in enumerate(slow_scores(objective, reference, width)):
            losses.append(cross_entropy(scores, scores[row * GROUP]))
    assert_equal(objective, batch(), reference, {"contrastive": (1.0, len(QUERIES), sum(losses) / len(QUERIES))})


def test_a_lexical_view_is_whole_at_each_width() -> None:
    narrow, whole = (
        build(Contrastive.Config(), REPRESENTATIONS["hybrid"], widths=widths, temperature=20.0) for widths in ((2,), ())
    )
    reference = reference_of(narrow)
    found, alone = (one(one.draw(batch())).parts["contrastive"].total for one in (narrow, whole))
    expected = []
    for row, scores in enumerate(slow_scores(narrow, reference, 2)):
        expected.append(cross_entropy(scores, scores[row * GROUP]))
    torch.testing.assert_close((found - alone).detach(), sum(expected).detach(), rtol=1e-6, atol=1e-6)


def test_a_teacher_is_learnt_at_each_width() -> None:
    objective = build(Distillation.Config(), REPRESENTATIONS["cls"], widths=(16,), temperature=20.0)
    reference = reference_of(objective)
    total = torch.zeros((), dtype=torch.float64)
    for width in (None, 16):
        for row, scores in enumerate(slow_scores(objective, reference, width)):
            own = torch.stack(scores[row * GROUP : (row + 1) * GROUP])
            log_r, p = own - torch.log(torch.exp(own).sum()), torch.softmax(TEACHER[row].double(), 0)
            total = total + (p * (torch.log(p) - log_r)).sum()
    assert_equal(objective, batch(), reference, {"distillation": (1.0, len(QUERIES), total / len(QUERIES))})


def test_widths_that_a_view_does_not_have_are_refused() -> None:
    for widths in ((128,), (16, 300)):
        with pytest.raises(UserError, match=r"loss\.widths = .*: the dense view has 128 dimensions"):
            build(Contrastive.Config(), REPRESENTATIONS["cls"], widths=widths)
    with pytest.raises(UserError, match="the dense view has 5 dimensions"):
        build(Contrastive.Config(), REPRESENTATIONS["projected"], widths=(5,))
    with pytest.raises(UserError, match=r"representation\.dense = none"):
        build(Contrastive.Config(), REPRESENTATIONS["splade"], widths=(8,))
    for wrong in ((8, 8), (0, 4)):
        with pytest.raises(UserError, match="widths are different numbers of dimensions"):
            build(Contrastive.Config(), REPRESENTATIONS["cls"], widths=wrong)
