"""Contrastive pre-training on weak pairs: its loss and gradients against loops in float64, and what is no negative."""

from functools import partial

import pytest
import torch

from midmask.batch import Batch
from midmask.objectives.pretraining.weak_pairs import WeakPairs
from tests.support.objectives.checks import assert_equal, build, ids, reference_of
from tests.support.objectives.reference import Reference, log_sum_exp
from tests.support.objectives.texts import batch, random_texts

QUERIES, PASSAGES = random_texts([4, 3, 5, 2], seed=1), random_texts([14, 9, 11, 8], seed=2)
SHARED_TITLE = [*QUERIES[:3], QUERIES[0]]
"""Pairs 0 and 3 have one title."""
COPIED = [*PASSAGES[:2], PASSAGES[1], PASSAGES[3]]
"""Pairs 1 and 2 have one passage."""


objective = partial(build, WeakPairs)
READ = batch(PASSAGES, QUERIES)


def losses(pairs: WeakPairs, reference: Reference, read: Batch, same: set[tuple[int, int]]) -> list[torch.Tensor]:
    """-log of a pair's share among its candidates; `same`: pairs that are no negatives of each other."""

    def unit(tokens: list[int]) -> torch.Tensor:
        first = reference.encode(tokens)[0]
        return first / torch.sqrt((first**2).sum())

    numbers = range(len(read.texts["passage"].lengths_B))
    q, p = ([unit(ids(read.texts[name], row)) for row in numbers] for name in ("context", "passage"))
    found = []
    for i in range(len(q)):
        others = [j for j in range(len(q)) if j != i and (i, j) not in same and (j, i) not in same]
        scores = [q[i] @ p[i], *(q[i] @ p[j] for j in others)]
        if pairs.config.candidates == "all":
            scores += [q[i] @ q[j] for j in others] + [p[i] @ q[j] for j in others] + [p[i] @ p[j] for j in others]
        scaled = [score / pairs.config.temperature for score in scores]
        found.append(log_sum_exp(torch.stack(scaled)) - scaled[0])
    return found


@pytest.mark.parametrize("temperature", [0.01, 0.5])
@pytest.mark.parametrize("candidates", ["passages", "all"])
def test_loss_and_every_gradient_equal_the_reference(candidates: str, temperature: float) -> None:
    pairs = objective(candidates=candidates, temperature=temperature)
    reference = reference_of(pairs)
    terms = {"contrastive": losses(pairs, reference, READ, set())}
    assert_equal(pairs, pairs.draw(READ), reference, terms, tolerance=1e-5)


@pytest.mark.parametrize("candidates", ["passages", "all"])
def test_a_pair_with_the_same_query_or_passage_is_no_negative(candidates: str) -> None:
    pairs, read = objective(candidates=candidates, temperature=0.5), batch(COPIED, SHARED_TITLE)
    reference = reference_of(pairs)
    expected = sum(losses(pairs, reference, read, {(0, 3), (1, 2)}))
    total = pairs(pairs.draw(read)).parts["contrastive"].total
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-9)


def test_it_reads_passages_with_pseudo_queries() -> None:
    assert WeakPairs.Config().reads().rows == "pseudo_queries"
