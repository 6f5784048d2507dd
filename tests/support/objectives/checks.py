"""What is asked of every objective, whatever its loss."""

from typing import Any

import torch
from torch import Tensor

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.identity import override
from midmask.objectives import Objective, ObjectiveConfig, build_objective
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows


def tiny(config: ObjectiveConfig, **fields: Any) -> Any:
    """An objective with some fields changed, on two layers of float64 without dropout; heads are of seed 5."""
    vocabulary = small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=0.0), vocabulary, seed=3)
    return build_objective(override(config, fields), backbone, vocabulary, seed=5).double()


def places(rows_R: Tensor, row: int, width: int) -> list[int]:
    """Which positions of a row are among places in the flattened batch."""
    return [place - row * width for place in rows_R.tolist() if row * width <= place < (row + 1) * width]


def total_of(loss: Any) -> Tensor:
    total: Tensor = loss.total({name: part.count for name, part in loss.parts.items()})
    return total


def assert_equals(objective: Any, drawn: Any, values: dict[str, list[Tensor]]) -> Tensor:
    """Counts, sums and the total are those of the reference's values by part; gives the reference's total."""
    loss = objective(drawn)
    counts = objective.counts(drawn)
    assert tuple(loss.parts) == objective.parts == tuple(values)
    expected = torch.zeros((), dtype=torch.float64)
    for name, part in loss.parts.items():
        assert counts[name] == part.count == len(values[name]), name
        if values[name]:
            torch.testing.assert_close(part.total, sum(values[name]), rtol=1e-6, atol=1e-6)
            expected = expected + part.weight * sum(values[name]) / len(values[name])
    total = total_of(loss)
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-6)
    total.backward()
    expected.backward()
    return expected


def assert_cutting_changes_nothing(objective: Objective) -> None:
    """The sums of a batch are those of its rows one by one, whatever their padding."""
    lengths = [30, 3, 12, 21]
    together = token_rows(random_texts(lengths))
    whole = objective(objective.draw(Batch(0, {"passage": together})))
    for name, part in whole.parts.items():
        pieces = []
        for row in range(4):
            size = lengths[row] + 2
            alone = TokenRows(
                *(t[row : row + 1] for t in (together.ids_BL[:, :size], together.lengths_B, together.keys_B))
            )
            pieces.append(objective(objective.draw(Batch(0, {"passage": alone}))).parts[name])
        assert sum(piece.count for piece in pieces) == part.count
        torch.testing.assert_close(sum(piece.total for piece in pieces), part.total, rtol=1e-9, atol=1e-9)


def assert_short_texts_are_finite(objective: Objective) -> None:
    """Texts of 0, 1 and 2 tokens, together and each alone: a finite loss and gradient."""
    for lengths in ([0], [1], [2], [0, 1, 2, 6]):
        objective.zero_grad()
        drawn = objective.draw(Batch(0, {"passage": token_rows(random_texts(lengths))}))
        total = total_of(objective(drawn))
        total.backward()
        assert bool(total.isfinite())
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in objective.parameters())
        assert all(bool(value.isfinite()) for value in objective.health(drawn).values())


def z_score(successes: float, trials: int, chance: float) -> float:
    """How many standard deviations a binomial count is from its mean."""
    return abs(successes - trials * chance) / (trials * chance * (1 - chance)) ** 0.5
