"""Distillation against the slow reference: every loss, both temperatures, the mixtures of published code."""

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.objectives.finetuning.distillation import Distillation
from tests.support.objectives.checks import reference_of
from tests.support.objectives.ranked import (
    GROUP,
    PASSAGES,
    QUERIES,
    REPRESENTATIONS,
    TEACHER,
    all_views,
    assert_equal,
    batch,
    build,
    cross_entropy,
    score,
    sparse_parts,
)
from tests.support.objectives.texts import token_rows


def softmax(scores: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in scores)
    return [math.exp(value) / total for value in scores]


def distance(kind: str, student: list[Tensor], teacher: list[float]) -> Tensor:
    """Of one query, by the equations."""
    if kind == "margin_mse":
        squares = [((student[0] - s) - (teacher[0] - t)) ** 2 for s, t in zip(student[1:], teacher[1:], strict=True)]
        return sum(squares) / len(squares)
    surprises = [cross_entropy(student, s) for s in student]
    wanted = softmax(teacher)
    value = sum(p * surprise for p, surprise in zip(wanted, surprises, strict=True))
    return value if kind == "soft_ce" else value + sum(p * math.log(p) for p in wanted)


def student_scores(objective: Any, reference: Any) -> list[list[Tensor]]:
    """Of every query with every passage, divided by the temperature."""
    queries, passages = all_views(reference, objective.backbone.pooling.representation)
    return [[score(query, passage) / objective.config.temperature for passage in passages] for query in queries]


def own(row: int) -> slice:
    return slice(row * GROUP, (row + 1) * GROUP)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "kl": ("cls", {"loss": "kl", "temperature": 7.0}),
    "soft_ce of a hybrid": ("hybrid", {"loss": "soft_ce", "temperature": 3.0, "teacher_temperature": 2.0}),
    "margin_mse": ("projected", {"loss": "margin_mse", "temperature": 0.5, "teacher_temperature": 4.0}),
    "sigir 23": ("cls", {"weight": 0.99, "ce_weight": 0.01, "candidates": "local_negatives", "temperature": 9.0}),
    "late": ("late", {"loss": "kl", "temperature": 0.7}),
    "late margins": ("late", {"loss": "margin_mse", "ce_weight": 0.2}),
    "retromae": ("cls", {"weight": 1 / GROUP, "ce_weight": 1e-4, "temperature": 5.0}),
}


@pytest.mark.parametrize("case", CASES)
def test_losses_and_every_gradient_equal_the_reference(case: str) -> None:
    name, fields = CASES[case]
    objective = build(Distillation.Config(), REPRESENTATIONS[name], **fields)
    config, reference = objective.config, reference_of(objective)
    scores = student_scores(objective, reference)
    teacher = [[float(t) / config.teacher_temperature for t in row] for row in TEACHER.tolist()]
    values = [distance(config.loss, row[own(i)], teacher[i]) for i, row in enumerate(scores)]
    parts = {"distillation": (config.weight, len(QUERIES), sum(values) / len(QUERIES))}
    if config.ce_weight:
        losses = []
        for i, row in enumerate(scores):
            is_all = config.candidates == "all"
            kept = [n for n in range(len(PASSAGES)) if is_all or n % GROUP or n == i * GROUP]
            losses.append(cross_entropy([row[n] for n in kept], row[i * GROUP]))
        parts["contrastive"] = (config.ce_weight, len(QUERIES), sum(losses) / len(QUERIES))
    with torch.no_grad():
        parts |= sparse_parts(all_views(reference, objective.backbone.pooling.representation))
    assert_equal(objective, batch(), reference, parts)


def test_retromaes_mean_over_elements_is_a_weight() -> None:
    """Its code takes the mean of p (log p - log r) over queries and passages."""
    objective = build(Distillation.Config(), REPRESENTATIONS["cls"], weight=1 / GROUP, temperature=5.0)
    drawn = objective.draw(batch())
    with torch.no_grad():
        loss = objective(drawn)
        rows = student_scores(objective, reference_of(objective))
        student_QG = torch.stack([torch.stack(row[own(i)]) for i, row in enumerate(rows)])
        p_QG = TEACHER.double().softmax(1)
        published = (p_QG * (p_QG.log() - student_QG.log_softmax(1))).mean()
    torch.testing.assert_close(loss.total(objective.counts(drawn)), published, rtol=1e-6, atol=1e-9)


def test_a_batch_without_scores_or_without_negatives_is_refused() -> None:
    objective = build(Distillation.Config(), REPRESENTATIONS["cls"])
    with pytest.raises(UserError, match="without a teacher's scores"):
        objective.draw(Batch(0, batch().texts, GROUP))
    alone = {"query": token_rows(QUERIES), "passage": token_rows(PASSAGES[: len(QUERIES)])}
    with pytest.raises(UserError, match="per_query >= 1"):
        objective.draw(Batch(0, alone, 1, teacher_QG=TEACHER[:, :1]))


def test_candidates_without_a_contrastive_loss_are_refused() -> None:
    with pytest.raises(ValidationError, match="set ce_weight too"):
        Distillation.Config(candidates="own")
