"""Contrastive loss, distillation, regularisers of lexical views, losses at several widths: against loops in float64."""

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.distillation import Distillation
from midmask.objectives.finetuning.ranking import Regularisers
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


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("kind", ["all", "positives", "own", "local_negatives"])
def test_known_positives_are_no_negatives(kind: str, drop: bool) -> None:
    objective = built("cls", candidates=kind, drop_duplicates=drop)
    dropped = {(0, 4), (2, 7), (1, 9), (3, 3)} if drop else set()
    loss = expected(objective, SAME, REPEATED, kind, dropped)
    found = objective(objective.draw(batch(SAME, REPEATED))).parts["contrastive"]
    torch.testing.assert_close(found.total.detach() / len(SAME), loss.detach(), rtol=1e-9, atol=1e-9)


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
    scores = slow_scores(objective, reference, None)
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


def flops(texts: list[Tensor]) -> Tensor:
    return sum((sum(text[word].abs() for text in texts) / len(texts)) ** 2 for word in range(len(texts[0])))


def l1(texts: list[Tensor]) -> Tensor:
    return sum(sum(weight.abs() for weight in text) for text in texts) / len(texts)


TERMS = {"flops": flops, "l1": l1}


def regularisers_of(
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


# fmt: off
REGULARISED_CASES: dict[str, tuple[str, Regularisers, float]] = {
    "sigir 23": ("splade", Regularisers(
        query="l1", lambda_query=5e-3, passage="flops", lambda_passage=5e-3, anti_zero=1.0), 0.4),
    "splade's first trainer": ("splade without specials", Regularisers(
        query="flops", lambda_query=0.5, passage="flops", lambda_passage=0.4, passage_groups="separate", ramp=0.5
    ), 0.3),
    "l1 of two groups, risen": ("both", Regularisers(
        passage="l1", lambda_passage=0.1, passage_groups="separate", ramp=0.25), 0.75),
    "weights of either sign": ("hybrid", Regularisers(query="l1", passage="flops", lambda_passage=0.2), 0.0),
}
# fmt: on


@pytest.mark.parametrize("case", REGULARISED_CASES)
def test_terms_and_every_gradient_equal_the_reference(case: str) -> None:
    name, config, progress = REGULARISED_CASES[case]
    objective = build(Contrastive.Config(temperature=20.0, regularisers=config), REPRESENTATIONS[name])
    reference = reference_of(objective)
    sides = all_views(reference, REPRESENTATIONS[name])
    losses = [cross_entropy(row, row[n * GROUP]) for n, row in enumerate(slow_scores(objective, reference, None))]
    parts = {"contrastive": (1.0, len(QUERIES), sum(losses) / len(QUERIES)), **regularisers_of(sides, config, progress)}
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


def test_a_factor_needs_its_term_and_candidates_their_loss() -> None:
    with pytest.raises(ValidationError, match="set ce_weight too"):
        Distillation.Config(candidates="own")
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


@pytest.mark.parametrize("name", ["cls", "unit mean", "hybrid"])
def test_contrastive_losses_of_all_widths_are_added(name: str) -> None:
    widths = (2,) if name == "hybrid" else (8, 50)
    temperature = 0.5 if REPRESENTATIONS[name].normalise else 20.0
    objective = build(Contrastive.Config(), REPRESENTATIONS[name], widths=widths, temperature=temperature)
    reference = reference_of(objective)
    losses = []
    for width in (None, *widths):
        scores = slow_scores(objective, reference, width)
        losses += [cross_entropy(row, row[n * GROUP]) for n, row in enumerate(scores)]
    with torch.no_grad():
        sparse = sparse_parts(all_views(reference, REPRESENTATIONS[name]))
    parts = {"contrastive": (1.0, len(QUERIES), sum(losses) / len(QUERIES)), **sparse}
    assert_equal(objective, batch(), reference, parts)


def test_a_teacher_is_learnt_at_each_width() -> None:
    objective = build(Distillation.Config(), REPRESENTATIONS["cls"], widths=(16,), temperature=20.0)
    reference = reference_of(objective)
    total = torch.zeros((), dtype=torch.float64)
    for width in (None, 16):
        for row, scores in enumerate(slow_scores(objective, reference, width)):
            total = total + distance("kl", scores[own(row)], TEACHER[row].tolist())
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
