"""Regularisers of lexical views, and losses at several widths of the dense view, against loops in float64."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.distillation import Distillation
from midmask.objectives.finetuning.regularisers import Regularisers
from tests.support.objectives.checks import reference_of
from tests.support.objectives.ranked import (
    GROUP,
    PASSAGES,
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
    sparse_parts,
)


def flops(texts: list[Tensor]) -> Tensor:
    return sum((sum(text[word].abs() for text in texts) / len(texts)) ** 2 for word in range(len(texts[0])))


def l1(texts: list[Tensor]) -> Tensor:
    return sum(sum(weight.abs() for weight in text) for text in texts) / len(texts)


TERMS = {"flops": flops, "l1": l1}


def expected(
    sides: tuple[list[Any], list[Any]], config: Regularisers, progress: float
) -> dict[str, tuple[float, int, Tensor]]:
    """Weight, count and mean of each part."""
    queries, passages = ([lexical for _, lexical in side] for side in sides)
    rise = min(progress / config.ramp, 1.0) ** 2 if config.ramp else 1.0
    parts: dict[str, tuple[float, int, Tensor]] = {}
    if config.query is not None:
        parts["query_regulariser"] = (config.lambda_query * rise, len(queries), TERMS[config.query](queries))
    if config.passage is not None:
        groups = [passages]
        if config.passage_groups == "separate":
            groups = [passages[::GROUP], [p for n, p in enumerate(passages) if n % GROUP]]
        mean = sum(TERMS[config.passage](group) for group in groups) / len(groups)
        parts["passage_regulariser"] = (config.lambda_passage * rise, len(passages), mean)
    if config.anti_zero:
        sums = [sum(weight.abs() for text in texts for weight in text) for texts in (queries, passages)]
        parts["anti_zero"] = (config.anti_zero, len(queries), sum(1 / total**2 for total in sums))
    return parts | sparse_parts(sides)


CASES: dict[str, tuple[str, Regularisers, float]] = {
    "sigir 23": (
        "splade",
        Regularisers(query="l1", lambda_query=5e-3, passage="flops", lambda_passage=5e-3, anti_zero=1.0),
        0.4,
    ),
    "splade's first trainer": (
        "splade without specials",
        Regularisers(
            query="flops", lambda_query=0.5, passage="flops", lambda_passage=0.4, passage_groups="separate", ramp=0.5
        ),
        0.3,
    ),
    "l1 of two groups, risen": (
        "both",
        Regularisers(passage="l1", lambda_passage=0.1, passage_groups="separate", ramp=0.25),
        0.75,
    ),
    "weights of either sign": ("hybrid", Regularisers(query="l1", passage="flops", lambda_passage=0.2), 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_terms_and_every_gradient_equal_the_reference(case: str) -> None:
    name, config, progress = CASES[case]
    objective = build(Contrastive.Config(temperature=20.0, regularisers=config), REPRESENTATIONS[name])
    reference = reference_of(objective)
    sides = all_views(reference, REPRESENTATIONS[name])
    losses = []
    for row, query in enumerate(sides[0]):
        scores = [score(query, passage) / 20.0 for passage in sides[1]]
        losses.append(cross_entropy(scores, scores[row * GROUP]))
    parts = {"contrastive": (1.0, len(QUERIES), sum(losses) / len(QUERIES)), **expected(sides, config, progress)}
    assert_equal(objective, batch(progress=progress), reference, parts)


def test_separate_groups_without_negatives_are_the_positives_alone() -> None:
    values = []
    for groups in ("joint", "separate"):
        config = Regularisers(passage="flops", lambda_passage=0.1, passage_groups=groups)
        objective = build(Contrastive.Config(regularisers=config), REPRESENTATIONS["splade"])
        whole = batch(QUERIES, PASSAGES[: len(QUERIES)])
        alone = type(whole)(0, whole.texts)
        values.append(objective(objective.draw(alone)).parts["passage_regulariser"].total)
    assert values[0].isfinite() and torch.equal(*values)


def test_a_factor_needs_its_term() -> None:
    with pytest.raises(ValidationError, match=r"lambda_passage = 0\.1 needs passage = flops or l1"):
        Regularisers(lambda_passage=0.1, query="l1")


def test_a_dense_view_has_nothing_to_make_sparse() -> None:
    for config in (Regularisers(query="l1"), Regularisers(anti_zero=1.0)):
        with pytest.raises(UserError, match=r"representation\.lexical"):
            build(Contrastive.Config(regularisers=config), Representation())


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
