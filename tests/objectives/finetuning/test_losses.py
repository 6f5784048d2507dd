"""Contrastive loss and distillation against the slow reference: representations, candidates, mixtures."""

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.objectives.finetuning.contrastive import Contrastive
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

CONFIG = Contrastive.Config(temperature=20.0)
REPEATED = [*PASSAGES[:4], PASSAGES[0], *PASSAGES[5:7], PASSAGES[6], *PASSAGES[8:]]
"""Passage 4 (a negative of query 1) repeats the positive of query 0; 7 repeats its own query's positive, 6."""
SAME = [QUERIES[0], QUERIES[1], QUERIES[2], QUERIES[1]]
"""Queries 1 and 3 are the same text with different positives, 3 and 9."""


def candidates_of(query: int, kind: str) -> list[int]:
    own = range(query * GROUP, (query + 1) * GROUP)
    if kind == "own":
        return list(own)
    if kind == "positives":
        return [n for n in range(len(PASSAGES)) if n % GROUP == 0 or n in own]
    return [n for n in range(len(PASSAGES)) if kind == "all" or n % GROUP or n == own[0]]


def expected(
    objective: Any, queries: list[list[int]], passages: list[list[int]], kind: str, dropped: set[tuple[int, int]]
) -> Tensor:
    """Mean over queries of the cross-entropy among the candidates but the dropped (query, passage) pairs."""
    representation = objective.backbone.pooling.representation
    slow_queries, slow_passages = all_views(objective.reference, representation, queries, passages)
    losses = []
    for row, query in enumerate(slow_queries):
        kept = [n for n in candidates_of(row, kind) if (row, n) not in dropped]
        scores = {n: score(query, slow_passages[n]) / objective.config.temperature for n in kept}
        losses.append(cross_entropy(list(scores.values()), scores[row * GROUP]))
    return sum(losses) / len(losses)


def built(name: str, **fields: Any) -> Any:
    objective = build(CONFIG, REPRESENTATIONS[name], **fields)
    objective.reference = reference_of(objective)
    return objective


@pytest.mark.parametrize("name", ["cls", "projected", "hybrid", "both", "late"])
def test_loss_and_every_gradient_equal_the_reference(name: str) -> None:
    representation = REPRESENTATIONS[name]
    objective = built(name, temperature=0.5 if representation.normalise or representation.tokens else 20.0)
    loss = expected(objective, QUERIES, PASSAGES, "all", set())
    with torch.no_grad():
        sparse = sparse_parts(all_views(objective.reference, representation))
    parts = {"contrastive": (1.0, len(QUERIES), loss), **sparse}
    assert_equal(objective, batch(), objective.reference, parts)


@pytest.mark.parametrize("kind", ["positives", "own", "local_negatives"])
def test_candidates_equal_the_reference(kind: str) -> None:
    objective = built("cls", candidates=kind)
    loss = expected(objective, QUERIES, PASSAGES, kind, set())
    assert_equal(objective, batch(), objective.reference, {"contrastive": (1.0, len(QUERIES), loss)})


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("kind", ["all", "positives", "own", "local_negatives"])
def test_known_positives_are_no_negatives(kind: str, drop: bool) -> None:
    objective = built("cls", candidates=kind, drop_duplicates=drop)
    dropped = {(0, 4), (2, 7), (1, 9), (3, 3)} if drop else set()
    loss = expected(objective, SAME, REPEATED, kind, dropped)
    found = objective(objective.draw(batch(SAME, REPEATED))).parts["contrastive"]
    torch.testing.assert_close(found.total.detach() / len(SAME), loss.detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["own", "local_negatives"])
def test_a_query_without_negatives_is_refused_where_they_are_the_candidates(kind: str) -> None:
    alone = Batch(0, {"query": token_rows(QUERIES), "passage": token_rows(PASSAGES[: len(QUERIES)])})
    with pytest.raises(UserError, match="per_query >= 1"):
        built("cls", candidates=kind).draw(alone)
    for other in ("all", "positives"):
        assert built("cls", candidates=other).draw(alone).passage_hash_QG.shape == (len(QUERIES), 1)


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
