"""Schedule and update, against the formulas and a slow AdamW."""

import math

import pytest
import torch
from torch import nn

from midmask.training.optimiser import TrainConfig, build_optimiser, learning_rate, update


def config(**changes: float) -> TrainConfig:
    return TrainConfig(**{"steps": 100, "batch_size": 4, "learning_rate": 0.01, **changes})


def test_the_rate_rises_stays_and_falls():
    settings = config(warmup=0.1, decay=0.2)
    rates = [learning_rate(settings, step) / 0.01 for step in range(100)]
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert rates[10:81] == [1.0] * 71
    assert rates[80:] == pytest.approx([(100 - step) / 20 for step in range(80, 100)])


def test_an_update_is_adamw_with_a_clipped_gradient():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)).double()
    settings = config(warmup=0.0, decay=0.0, weight_decay=0.1, clip_norm=0.5)
    expected = {name: value.detach().clone() for name, value in module.named_parameters()}
    moments = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in expected.items()}
    optimiser = build_optimiser(module, settings)
    for step in range(4):
        module(torch.randn(5, 3, dtype=torch.float64)).pow(3).sum().backward()
        gradients = {name: value.grad.clone() for name, value in module.named_parameters() if value.grad is not None}
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        assert float(update(module, optimiser, settings, step)[0]) == pytest.approx(norm)
        for name, gradient in gradients.items():
            clipped = gradient * min(1.0, 0.5 / (norm + 1e-6))
            first, second = moments[name]
            first, second = 0.9 * first + 0.1 * clipped, 0.999 * second + 0.001 * clipped**2
            moments[name] = (first, second)
            decay = 0.1 if expected[name].ndim == 2 else 0.0
            mean, square = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
            expected[name] = expected[name] * (1 - 0.01 * decay) - 0.01 * mean / (square.sqrt() + 1e-8)
        for name, value in module.named_parameters():
            torch.testing.assert_close(value.detach(), expected[name], rtol=1e-9, atol=1e-12)
            assert value.grad is None
