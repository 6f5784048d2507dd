"""The fused vocabulary heads and the decoders that are thrown away, against plain and slow ones and GPT-2's own code;
what they must never hold.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from midmask.encoders import heads
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.heads import linear_column_max, linear_cross_entropy
from midmask.objectives.decoders import CausalBlock, CausalDecoder, DecoderLayer, causal_window
from tests.support.objectives.texts import small_vocabulary

V, D, R = 50, 12, 17
B, L = 6, 5


def case(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((R, D), (V, D), (V,))
    hidden, weight, bias = (torch.randn(s, generator=generator, dtype=dtype).requires_grad_() for s in shapes)
    return hidden, weight, bias, torch.randint(0, V, (R,), generator=generator)


@pytest.fixture(params=[V, 3 * V, 10**6])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Chunks of 1 row, of 3 rows (the last one short), and all at once."""
    monkeypatch.setitem(heads.CHUNK_VALUES, "cpu", request.param)
    return int(request.param)


def test_loss_and_gradients_equal_the_plain_head(chunk: int) -> None:
    *tensors, labels = case()
    found = torch.autograd.grad(2.5 * linear_cross_entropy(*tensors, labels), tensors)
    plain = F.cross_entropy(tensors[0] @ tensors[1].t() + tensors[2], labels, reduction="sum")
    for left, right in zip(found, torch.autograd.grad(2.5 * plain, tensors), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(linear_cross_entropy(*tensors, labels), plain, rtol=1e-12, atol=0)


def test_backward_twice_gives_the_same_gradient() -> None:
    *tensors, labels = case()
    loss = linear_cross_entropy(*tensors, labels)
    first = torch.autograd.grad(3.0 * loss, tensors, retain_graph=True)
    second = torch.autograd.grad(3.0 * loss, tensors)
    assert all(torch.equal(left, right) for left, right in zip(first, second, strict=True))


def assert_frozen(loss: Callable[[], Tensor], tensors: list[Tensor], frozen: int) -> None:
    """It gets no gradient, and the others the same as before."""
    expected = torch.autograd.grad(loss(), tensors)
    tensors[frozen].requires_grad_(False)
    loss().backward()
    for index, tensor in enumerate(tensors):
        if index == frozen:
            assert tensor.grad is None
        else:
            torch.testing.assert_close(tensor.grad, expected[index])


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_a_frozen_input_gets_no_gradient_and_disturbs_no_other(frozen: int) -> None:
    *tensors, labels = case()
    assert_frozen(lambda: linear_cross_entropy(*tensors, labels), tensors, frozen)


def test_no_rows_give_a_loss_of_zero_and_gradients_of_zero() -> None:
    hidden, weight, bias, labels = case()
    loss = linear_cross_entropy(hidden[:0], weight, bias, labels[:0])
    loss.backward()
    assert float(loss.detach()) == 0
    assert weight.grad is not None and not weight.grad.any()


def test_extreme_logits_stay_finite() -> None:
    hidden, weight, bias, labels = case(torch.float32)
    loss = linear_cross_entropy(hidden * 1e4, weight, bias, labels)
    loss.backward()
    plain = F.cross_entropy(hidden * 1e4 @ weight.t() + bias, labels, reduction="sum")
    torch.testing.assert_close(loss, plain)
    assert hidden.grad is not None and bool(hidden.grad.isfinite().all())


def test_under_autocast_products_are_bfloat16_and_gradients_keep_their_types() -> None:
    *tensors, labels = case(torch.float32)
    plain = F.cross_entropy(tensors[0] @ tensors[1].t() + tensors[2], labels, reduction="sum")
    expected = torch.autograd.grad(plain, tensors)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(*tensors, labels)
    assert loss.dtype == torch.float32
    assert 0 < (loss - plain).abs().detach() < 0.02 * plain.detach()
    for tensor, gradient, right in zip(tensors, torch.autograd.grad(loss, tensors), expected, strict=True):
        assert gradient.dtype == tensor.dtype
        assert float((gradient - right).norm() / right.norm()) < 0.02


class Largest(TorchDispatchMode):
    """Notes the names of all operations, and the largest tensor that any of them makes; views make none."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.names = 0, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = result if isinstance(result, tuple) else (result,)
        self.names.append(func._schema.name)
        if func._schema.returns and func._schema.returns[0].alias_info is None:
            self.values = max([self.values, *(each.numel() for each in made if isinstance(each, Tensor))])
        return result


@pytest.mark.parametrize("grad", [True, False])
def test_logits_never_exist_for_more_rows_than_a_chunk(grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anything else that is large, where no gradients are wanted."""
    monkeypatch.setitem(heads.CHUNK_VALUES, "cpu", 2 * V)
    *tensors, labels = case()
    with torch.set_grad_enabled(grad), Largest() as largest:
        loss = linear_cross_entropy(*tensors, labels)
        if grad:
            loss.backward()
    assert loss.requires_grad == grad
    assert largest.values == (max(V * D, 2 * V) if grad else 2 * V) < R * V


def texts(dtype: torch.dtype = torch.float64) -> tuple[list[Tensor], Tensor, Tensor]:
    """Hidden states, weight and bias; the pooled positions; a gradient. Of six rows, all but position 0, all, a few,
    none, one, and the last alone are pooled."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((B, L, D), (V, D), (V,))
    tensors = [torch.randn(s, generator=generator, dtype=dtype).requires_grad_() for s in shapes]
    pooled = torch.tensor(
        [[0, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    ).bool()
    return tensors, pooled, torch.randn(B, V, generator=generator, dtype=torch.float64)


def slow_column_max(tensors: list[Tensor], pooled: Tensor, upstream: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The maximum and its gradients, one logit at a time; of equal logits the first one wins."""
    hidden, weight, bias = (tensor.detach().double() for tensor in tensors)
    h, w, b = hidden.tolist(), weight.tolist(), bias.tolist()
    highest, gradients = torch.zeros(B, V, dtype=torch.float64), [torch.zeros_like(t) for t in (hidden, weight, bias)]
    for row in range(B):
        for entry in range(V):
            best, winner = -float("inf"), None
            for position in range(L):
                logit = sum(h[row][position][i] * w[entry][i] for i in range(D)) + b[entry]
                if pooled[row, position] and logit > best:
                    best, winner = logit, position
            if winner is not None:
                highest[row, entry] = best
                gradients[0][row, winner] += upstream[row, entry] * weight[entry]
                gradients[1][entry] += upstream[row, entry] * hidden[row, winner]
                gradients[2][entry] += upstream[row, entry]
    return highest, gradients


@pytest.fixture(params=[1, 7 * B * L, 10**6])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Tiles of 1 vocabulary entry, of 7 (the last one of 1), and all at once."""
    monkeypatch.setitem(heads.TILE_VALUES, "cpu", request.param)
    return int(request.param)


def test_column_maximum_and_gradients_equal_the_slow_ones(tile: int) -> None:
    tensors, pooled, upstream = texts()
    highest, expected = slow_column_max(tensors, pooled, upstream)
    found = linear_column_max(*tensors, pooled)
    torch.testing.assert_close(found, highest, rtol=1e-12, atol=1e-12)
    assert not bool(found[3].any()) and not bool(expected[0][3].any())
    for left, right in zip(torch.autograd.grad(found, tensors, upstream), expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def test_of_equal_logits_one_gets_the_whole_gradient() -> None:
    (hidden, weight, bias), _, upstream = texts()
    same = hidden.detach()[:, :1].repeat(1, L, 1).requires_grad_()
    pooled = torch.tensor([False, True, True, False, True]).expand(B, L)
    (gradient,) = torch.autograd.grad(linear_column_max(same, weight, bias, pooled), same, upstream)
    torch.testing.assert_close(gradient.sum(1), upstream @ weight.detach())
    assert ((gradient != 0).any(-1).sum(1) == 1).all() and not bool(gradient[:, [0, 3]].any())


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_costs_the_column_maximum_nothing(frozen: int) -> None:
    tensors, pooled, upstream = texts()
    assert_frozen(lambda: (linear_column_max(*tensors, pooled) * upstream).sum(), tensors, frozen)
    with Largest() as calls:
        linear_column_max(*tensors, pooled).backward(upstream)
    assert sum(name.startswith("aten::_embedding_bag") for name in calls.names) == (1 if frozen < 2 else 2)


def test_the_column_maximum_never_holds_more_logits_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(heads.TILE_VALUES, "cpu", 4 * B * L)
    tensors, pooled, upstream = texts()
    with Largest() as largest:
        linear_column_max(*tensors, pooled).backward(upstream)
    assert largest.values == max(V * D, B * V, 4 * B * L) < B * L * V


def test_the_column_maximum_under_autocast_is_float32_of_bfloat16_products() -> None:
    tensors, pooled, upstream = texts(torch.float32)
    highest, _ = slow_column_max(tensors, pooled, upstream)
    with torch.autocast("cpu", torch.bfloat16):
        found = linear_column_max(*tensors, pooled)
    assert found.dtype == torch.float32
    assert 1e-4 < float((found.detach() - highest).norm() / highest.norm()) < 0.01
    logits = (tensors[0] @ tensors[1].t() + tensors[2]).masked_fill(~pooled[:, :, None], -torch.inf)
    close = logits.topk(2, 1).values.diff(dim=1).abs().squeeze(1) < 0.1  # rounding may have moved such a maximum
    clear = upstream.masked_fill(close, 0.0)
    gradients = torch.autograd.grad(found, tensors, clear.float())
    for left, right in zip(gradients, slow_column_max(tensors, pooled, clear)[1], strict=True):
        torch.testing.assert_close(left, right.float(), rtol=1e-4, atol=1e-4)


def test_fresh_decoder_weights_are_normal_with_deviation_002_and_zero_biases() -> None:
    layer = DecoderLayer(128, 2, 512, dropout=0.1, norm_eps=1e-12)
    for name, parameter in layer.named_parameters():
        if "norm" not in name and name.endswith("weight"):
            assert parameter.std().item() == pytest.approx(0.02, rel=0.03)
        elif name.endswith("bias"):
            assert not bool(parameter.any())


WIDTH, HEADS = 16, 4


def double(block: torch.nn.Module) -> torch.nn.Module:
    """In float64, with every parameter drawn anew, so that no zero or one hides a wrong use of it."""
    torch.manual_seed(3)
    block = block.double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return block


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
    linear = {"attn.c_attn": block.query_key_value, "attn.c_proj": block.attention_out}
    linear |= {"mlp.c_fc": block.feed_in, "mlp.c_proj": block.feed_out}
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
    plain, scaled = (block.query_key_value, block.feed_in), (block.attention_out, block.feed_out)
    for module, expected in [*((each, 0.02) for each in plain), *((each, 0.02 / 6**0.5) for each in scaled)]:
        # 16,384 draws or more: four standard errors are 2.3%, a false alarm once in 16,000
        assert module.weight.std().item() == pytest.approx(expected, rel=0.023)
        assert not module.bias.any()
    assert block.feed_in.out_features == 4 * 128


def test_dropout_acts_before_the_blocks_and_only_while_training() -> None:
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=0.5), small_vocabulary(), seed=0)
    decoder = CausalDecoder(backbone, layers=1, window=3)
    x, lengths = torch.randn(1, 5, backbone.width), torch.tensor([5])
    decoder.blocks[0].dropout = 0.0
    assert not torch.equal(decoder(x, lengths), decoder(x, lengths))
    decoder.eval()
    assert torch.equal(decoder(x, lengths), decoder(x, lengths))
