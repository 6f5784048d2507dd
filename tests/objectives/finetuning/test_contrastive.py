"""The contrastive loss against the slow reference: representations, choices of candidates, known positives."""

from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.objectives.finetuning.contrastive import Contrastive
from tests.support.objectives.checks import reference_of
from tests.support.objectives.ranked import (
    GROUP,
    PASSAGES,
    QUERIES,
    REPRESENTATIONS,
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
