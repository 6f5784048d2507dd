"""The causal decoder that is thrown away: what a row sees, its equations against GPT-2's own code, fresh weights."""

import pytest
import torch
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from midmask.decoders import CausalBlock, CausalDecoder, causal_window

WIDTH, HEADS = 16, 4


def double(block: torch.nn.Module) -> torch.nn.Module:
    """In float64, with every parameter drawn anew, so that no zero or one hides a wrong use of it."""
    torch.manual_seed(3)
    block = block.double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return block


@pytest.mark.parametrize(("window", "counts"), [(1, [1, 2, 2, 2, 2]), (3, [1, 2, 3, 4, 4]), (None, [1, 2, 3, 4, 5])])
def test_a_row_sees_the_vector_itself_and_the_window_before_it(window: int | None, counts: list[int]) -> None:
    visible = causal_window(torch.tensor([5]), 5, window)
    assert visible.shape == (1, 5, 5) and visible.sum(-1).tolist() == [counts]
    for i in range(5):
        nearest = range(max(0, i - (window or 5) + 1), i + 1)
        assert visible[0, i].nonzero().flatten().tolist() == sorted({0, *nearest})


def test_a_second_vector_is_seen_by_every_row_from_its_own_on() -> None:
    visible = causal_window(torch.tensor([6]), 6, 2, 2)[0]
    assert [row.nonzero().flatten().tolist() for row in visible] == [
        *([0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 3, 4], [0, 1, 4, 5])
    ]


@pytest.mark.parametrize("window", [2, None])
def test_padding_is_seen_by_no_row_and_no_row_is_blind(window: int | None) -> None:
    lengths = torch.tensor([0, 1, 2, 6])
    visible = causal_window(lengths, 6, window)
    assert visible.any(-1).all()
    for row, length in enumerate(lengths.tolist()):
        assert not visible[row, :, max(length, 1) :].any()
        assert torch.equal(visible[row, :length, :length], visible[3, :length, :length])


def test_a_block_equals_gpt2s() -> None:
    block = double(CausalBlock(WIDTH, HEADS, dropout=0.0, norm_eps=1e-12))
    off = {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "layer_norm_epsilon": 1e-12}
    settings = GPT2Config(n_embd=WIDTH, n_head=HEADS, activation_function="gelu", attn_implementation="eager", **off)
    theirs = GPT2Block(settings, layer_idx=0).double()
    linear = {
        "attn.c_attn": block.query_key_value,
        "attn.c_proj": block.attention_out,
        "mlp.c_fc": block.feed_in,
        "mlp.c_proj": block.feed_out,
    }
    state = {f"{name}.weight": own.weight.T for name, own in linear.items()}
    norms = {"ln_1.weight": block.attention_norm.weight, "ln_2.weight": block.feed_norm.weight}
    biased = {**linear, "ln_1": block.attention_norm, "ln_2": block.feed_norm}
    theirs.load_state_dict({**state, **norms, **{f"{name}.bias": own.bias for name, own in biased.items()}})
    x = torch.randn(2, 7, WIDTH, dtype=torch.float64)
    for window in (None, 3):
        visible = causal_window(torch.tensor([7, 7]), 7, window)
        added = torch.zeros(visible.shape, dtype=torch.float64).masked_fill(~visible, -torch.inf)[:, None]
        expected = theirs(x, attention_mask=added)
        expected = expected[0] if isinstance(expected, tuple) else expected
        torch.testing.assert_close(block(x, visible), expected, rtol=1e-9, atol=1e-9)
    causal = causal_window(torch.tensor([7, 7]), 7, None)
    torch.testing.assert_close(block(x), block(x, causal), rtol=1e-9, atol=1e-9)


def test_fresh_projections_onto_the_residual_stream_are_scaled_by_depth() -> None:
    torch.manual_seed(0)
    block = CausalBlock(128, 2, dropout=0.0, norm_eps=1e-12, layers=3)
    for module, expected in (
        (block.query_key_value, 0.02),
        (block.feed_in, 0.02),
        (block.attention_out, 0.02 / 6**0.5),
        (block.feed_out, 0.02 / 6**0.5),
    ):
        # 16,384 draws or more: four standard errors are 2.3%, a false alarm once in 16,000
        assert module.weight.std().item() == pytest.approx(expected, rel=0.023)
        assert not module.bias.any()
    assert block.feed_in.out_features == 4 * 128


def test_dropout_acts_before_the_blocks_and_only_while_training() -> None:
    decoder = CausalDecoder(WIDTH, HEADS, layers=1, window=3, dropout=0.5, norm_eps=1e-12)
    x, lengths = torch.randn(1, 5, WIDTH), torch.tensor([5])
    decoder.blocks[0].dropout = 0.0
    assert not torch.equal(decoder(x, lengths), decoder(x, lengths))
    decoder.eval()
    assert torch.equal(decoder(x, lengths), decoder(x, lengths))
