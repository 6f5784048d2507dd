"""What is asked of every objective whose decoder reads a text behind a vector, on top of `checks`."""

from typing import Any

import torch

from midmask.batch import Batch, TokenRows
from midmask.objectives import Objective, ObjectiveConfig
from midmask.objectives.pretraining.encoder_mask import MaskedRows
from tests.support.objectives import checks
from tests.support.objectives.reference import Reference, Vectors, assert_same_gradients


def build(config: ObjectiveConfig, fields: dict[str, Any]) -> Any:
    """A tiny objective whose fresh norms and biases are no ones and zeros, which would hide a wrong use of them."""
    objective = checks.tiny(config, **fields)
    torch.manual_seed(11)
    with torch.no_grad():
        for name, parameter in objective.named_parameters():
            if not name.startswith("backbone."):
                parameter.add_(0.02 * torch.randn_like(parameter))
    return objective


def places(rows: MaskedRows, row: int) -> list[int]:
    """The targets' places in one row."""
    return checks.places(rows.rows_R, row, rows.ids_BL.shape[1])


def ids(rows: MaskedRows | TokenRows, row: int) -> list[int]:
    """The tokens of one row, without padding."""
    return rows.ids_BL[row, : int(rows.lengths_B[row])].tolist()


def surprises(reference: Reference, states: Vectors, rows: MaskedRows, row: int, true: list[int]) -> Vectors:
    """-log p of the true token at each target of a row."""
    return [reference.surprise(states[place], true[place]) for place in places(rows, row)]


def assert_equal(
    objective: Objective, drawn: Any, reference: Reference, expected: dict[str, tuple[float, Vectors]]
) -> None:
    """Weights, sums, counts and the gradient of every parameter; `expected`: weight and terms of each part."""
    weights = {name: part.weight for name, part in objective(drawn).parts.items()}
    assert weights == {name: weight for name, (weight, _) in expected.items()}
    assert all(len(terms) > 1 for _, terms in expected.values())
    checks.assert_equals(objective, drawn, {name: terms for name, (_, terms) in expected.items()})
    assert_same_gradients(objective, reference)


def assert_sums_survive_cutting(objective: Objective, batch: Batch) -> None:
    """Every part's sum and count over the whole batch is that over its rows one by one, each without padding."""
    whole = objective(objective.draw(batch))
    for name, part in whole.parts.items():
        pieces = []
        for row in range(len(batch.texts["passage"].lengths_B)):
            alone = {kind: _row(text, row) for kind, text in batch.texts.items()}
            pieces.append(objective(objective.draw(Batch(0, alone))).parts[name])
        assert sum(piece.count for piece in pieces) == part.count > 0
        torch.testing.assert_close(sum(piece.total for piece in pieces), part.total, rtol=1e-9, atol=1e-9)


def _row(text: TokenRows, row: int) -> TokenRows:
    length = int(text.lengths_B[row])
    return TokenRows(text.ids_BL[row : row + 1, :length], text.lengths_B[row : row + 1], text.keys_B[row : row + 1])


def assert_finite(objective: Objective, batch: Batch) -> None:
    """The loss, every gradient and what it says of its health are."""
    drawn = objective.draw(batch)
    total = checks.total_of(objective(drawn))
    total.backward()
    assert total.isfinite() and all(value.isfinite() for value in objective.health(drawn).values())
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in objective.parameters())


def assert_health_compares(objective: Objective, batch: Batch, parts: dict[str, str]) -> None:
    """Each decoder's loss is as in training, and another if all texts share one vector. parts: by name in health."""
    objective.eval()
    drawn = objective.draw(batch)
    with torch.no_grad():
        health, loss = objective.health(drawn), objective(drawn)
    assert set(health) == {name + end for name in parts for end in ("", "_without_vector")}
    for name, part in parts.items():
        torch.testing.assert_close(health[name], loss.parts[part].total / loss.parts[part].count)
        assert abs(health[f"{name}_without_vector"] - health[name]) > 1e-6
