"""FLOPs that are counted while a real step runs, against formulas worked out by hand."""

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.flops import flop_counter
from midmask.objectives import PRETRAINING, build_objective
from midmask.objectives.sample import pretraining_batch, sample_vocabulary
from tests.support.estimate.counted import count_flops

ROWS, LENGTH, V = 3, 16, 300
LAYERS, D, TOKENS = 2, 128, ROWS * LENGTH  # of the backbone `tiny`


def layers(count: int) -> int:
    """BERT layers: 12 D^2 weights and attention on every token."""
    return count * (6 * 12 * D * D * TOKENS + 12 * LENGTH * D * TOKENS)


def head(rows: int) -> int:
    """The MLM head with its transform."""
    return 6 * (D * D + V * D) * rows


def expected(name: str, drawn: Any) -> int:
    if name == "mlm":
        return layers(LAYERS) + head(int(drawn.count))
    total = layers(LAYERS + 1) + head(int(drawn.encoder.count)) + head(TOKENS - 2 * ROWS)
    if name == "dupmae":
        total += 6 * D * D * TOKENS + 2 * V * D * TOKENS + 4 * V * D * ROWS
    return total


@pytest.mark.parametrize("name", ["mlm", "retromae", "dupmae"])
def test_counted_flops_are_those_of_the_formulas(name: str) -> None:
    words, config = sample_vocabulary(V), PRETRAINING[name].Config()
    objective = build_objective(config, build_backbone(BackboneConfig(name="tiny"), words, seed=0), words)
    drawn = objective.draw(pretraining_batch(config, words, rows=ROWS, length=LENGTH))

    def step() -> None:
        objective(drawn).total(objective.counts(drawn)).backward()

    assert count_flops(step) == expected(name, drawn)


def test_a_fused_backward_pass_counts_twice_the_forward_pass() -> None:
    """It computes the scores again, which is no more work of the model; 12 x length x width x tokens in all."""
    rows, heads, length, width = 2, 4, 16, 8
    q, k, v = (torch.randn(rows, heads, length, width, requires_grad=True) for _ in range(3))
    with flop_counter() as counted:
        scaled_dot_product_attention(q, k, v).sum().backward()
    assert any("flash" in str(name) for name in counted.get_flop_counts()["Global"])
    assert counted.get_total_flops() == 12 * length * (heads * width) * (rows * length)
