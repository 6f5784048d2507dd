"""A small objective to test, and its comparison with a reference."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from midmask.core.config import override
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import build_objective
from tests.support.objectives.reference import Reference, Vectors, assert_same_gradients, log_sum_exp
from tests.support.objectives.texts import small_vocabulary


def build(
    method: Any, *, dropout: float = 0.0, backbone: dict | None = None, drift: float = 0.02, **fields: Any
) -> Any:
    """An objective with some fields changed, on two layers of float64.

    Args:
        drift: how far heads and experts have moved: fresh norms and biases are ones and zeros, which would hide a wrong
            use of them, and fresh experts are the encoder.
    """
    vocabulary = small_vocabulary()
    config = BackboneConfig(name="tiny", dropout=dropout, **(backbone or {}))
    encoder = build_backbone(config, vocabulary, seed=3)
    objective = build_objective(override(method.Config(), fields), encoder, vocabulary, seed=5).double()
    torch.manual_seed(11)
    with torch.no_grad():
        for name, parameter in objective.named_parameters():
            if not name.startswith("backbone.") or name.startswith("backbone.experts."):
                parameter.add_(drift * torch.randn_like(parameter))
    return objective


def reference_of(objective: Any) -> Reference:
    return Reference(objective, heads=2, layers=2, pad_id=0)


def ids(rows: Any, row: int) -> list[int]:
    """The tokens of one row, without padding."""
    found: list[int] = rows.ids_BL[row, : int(rows.lengths_B[row])].tolist()
    return found


def places(rows: Any, row: int) -> list[int]:
    """The targets' places in one row."""
    width = rows.ids_BL.shape[1]
    return [place - row * width for place in rows.rows_R.tolist() if place // width == row]


def surprises(reference: Reference, states: Vectors, rows: Any, row: int, true: list[int]) -> Vectors:
    """-log p of the true token at each target of a row."""
    return [reference.surprise(states[place], true[place]) for place in places(rows, row)]


def unit(vector: Tensor) -> Tensor:
    return vector / torch.sqrt((vector**2).sum())


def in_batch(queries: Vectors, candidates: Vectors, temperature: float) -> Vectors:
    """-log softmax of each query with its partner, which stands at its number among the candidates."""
    scores = [torch.stack([query @ other for other in candidates]) / temperature for query in queries]
    return [log_sum_exp(row) - row[place] for place, row in enumerate(scores)]


def total_of(loss: Any) -> Tensor:
    total: Tensor = loss.total({name: part.count for name, part in loss.parts.items()})
    return total


def assert_equal(
    objective: Any,
    drawn: Any,
    reference: Reference,
    terms: dict[str, Vectors],
    weights: Sequence[float] | None = None,
    tolerance: float = 1e-6,
) -> None:
    """Counts, sums, the weighted total and every parameter's gradient are those of the reference.

    Args:
        terms: by part, one for each target.
        weights: of the parts, in order; none: 1 each.
    """
    loss, counts = objective(drawn), objective.counts(drawn)
    assert tuple(loss.parts) == objective.parts == tuple(terms)
    expected = torch.zeros((), dtype=torch.float64)
    for (name, part), weight in zip(loss.parts.items(), weights or [1.0] * len(terms), strict=True):
        assert counts[name] == part.count == len(terms[name]), name
        if terms[name]:
            assert math.isclose(part.weight, weight), name
            torch.testing.assert_close(part.total, sum(terms[name]), rtol=1e-6, atol=1e-6)
            expected = expected + weight * sum(terms[name]) / len(terms[name])
    total = total_of(loss)
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-6)
    total.backward()
    expected.backward()
    assert_same_gradients(objective, reference, tolerance)


def z_score(successes: float, trials: int, chance: float) -> float:
    """How many standard deviations a binomial count is from its mean."""
    return abs(successes - trials * chance) / (trials * chance * (1 - chance)) ** 0.5
