"""LexMAE, TSDAE and SEED-Encoder against the slow reference; masks, and attention as in the published code."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM, BertConfig

from midmask.batch import Batch, TokenRows
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.lexmae import LexMAE, LexMAERows
from midmask.objectives.pretraining.seed import SEED
from midmask.objectives.pretraining.tsdae import TSDAE
from tests.support.objectives.checks import assert_equal, build, ids, places, reference_of, surprises, z_score
from tests.support.objectives.reference import Reference, Vectors, gelu, log_sum_exp
from tests.support.objectives.texts import CLS, MASK, PAD, SEP, UNK, batch, random_texts, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "saturated": {"bottleneck": "saturated", "decoder_weight": 0.7},
    "cls": {"bottleneck": "cls", "decoder_layers": 1},
    "off": {"bottleneck": "off", "encoder_weight": 0.3},
    "random masks": {"overlap": "random", "encoder_mask": "token"},
    "exclusive masks": {"overlap": "exclusive", "encoder_mask": "word"},
}


def objective(**fields: Any) -> Any:
    """With word embeddings five times as long as fresh ones: mixtures of those are nearly nothing for every text."""
    built = build(LexMAE, **fields)
    with torch.no_grad():
        built.backbone.word_embeddings_VD.mul_(5.0)
    return built


def drawn_for(lexmae: LexMAE, text: TokenRows) -> LexMAERows:
    return lexmae.draw(Batch(0, {"passage": text}))


def vector(config: LexMAE.Config, reference: Reference, states: Vectors, seen: list[int], context: Vectors) -> Tensor:
    """b, entry by entry of the vocabulary; the embeddings that it mixes get no gradient from here."""
    if config.bottleneck == "cls":
        return states[0]
    if config.bottleneck == "off":
        return context[0]
    logits = [reference.logits(state) for state, token in zip(states, seen, strict=True) if token not in (CLS, SEP)]
    u = torch.stack(logits).max(0).values
    if config.bottleneck == "softmax":
        a = torch.exp(u - log_sum_exp(u))
    else:
        s = torch.stack([torch.log(1 + x) if x > 0 else x * 0 for x in u])
        a = s / (s.sum() + 1e-4)
    table = reference.bert("embeddings.word_embeddings.weight").detach()
    return sum((a[v] * table[v] for v in range(len(a))), start=torch.zeros(128, dtype=torch.float64))


def decoder_surprise(reference: Reference, state: Tensor, token: int) -> Tensor:
    """-log p(token) by the decoder's own transform and bias, and the encoder's output matrix."""
    x = reference.norm("norm", gelu(reference.linear("transform", state)))
    logits = reference.bert("embeddings.word_embeddings.weight") @ x + reference.get("bias")
    return log_sum_exp(logits) - logits[token]


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    lexmae = objective(**VARIANTS[variant])
    config, text = lexmae.config, token_rows([*random_texts([8, 5, 7]), [UNK, 9, UNK, 12, 9]])
    drawn, reference = drawn_for(lexmae, text), reference_of(lexmae)
    values: dict[str, list[Tensor]] = {"encoder_mlm": [], "decoder_mlm": []}
    for row in range(4):
        true, seen = ids(text, row), ids(drawn.encoder, row)
        states = reference.encode(seen)
        values["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, true)
        context = reference.embed(ids(drawn.decoder, row))
        read = [vector(config, reference, states, seen, context), *context[1:]]
        decoded = reference.decoder(read, config.decoder_layers)
        targets = places(drawn.decoder, row)
        values["decoder_mlm"] += [decoder_surprise(reference, decoded[j], true[j]) for j in targets]
    assert_equal(lexmae, drawn, reference, values, (config.encoder_weight, config.decoder_weight))


def many() -> TokenRows:
    """12,000 tokens of 240 texts of 50."""
    return token_rows(random_texts([50] * 240))


def test_the_encoder_s_mask_is_exact_and_rounded_up() -> None:
    text = token_rows([*random_texts([1, 3, 4, 10, 11, 33]), [UNK, UNK, UNK, UNK]])
    drawn = drawn_for(objective(), text)
    expected = [math.ceil(0.3 * length) for length in (1, 3, 4, 10, 11, 33, 4)]
    assert drawn.encoder.selected_BL.sum(1).tolist() == expected
    assert not drawn.encoder.selected_BL[:, 0].any() and UNK in drawn.encoder.labels_R


@pytest.mark.parametrize(
    ("overlap", "chance", "shared"), [("inclusive", 2 / 7, 1.0), ("random", 0.5, 0.5), ("exclusive", 5 / 7, 0.0)]
)
def test_the_decoder_s_mask_holds_meets_or_avoids_the_encoder_s(overlap: str, chance: float, shared: float) -> None:
    """Chance of a false alarm: two binomials at 4 standard deviations, 0.013% by case."""
    drawn = drawn_for(objective(overlap=overlap), many())
    encoder, decoder = drawn.encoder.selected_BL, drawn.decoder.selected_BL
    masked, others = 240 * 15, 240 * 35
    assert int(encoder.sum()) == masked
    assert z_score(int((decoder & ~encoder).sum()), others, chance) < 4
    both = int((decoder & encoder).sum())
    assert both == shared * masked if shared in (0.0, 1.0) else z_score(both, masked, shared) < 4
    assert not decoder[:, 0].any() and not decoder[:, 51].any()


def test_both_sides_are_corrupted_80_10_10_and_apart() -> None:
    """Where both sides hide a token, [MASK] on one says nothing of the other, and replacements are seldom the same.
    Chance of a false alarm: five binomials at 4 standard deviations, 0.03%."""
    text = many()
    drawn = drawn_for(objective(), text)
    both = drawn.encoder.selected_BL & drawn.decoder.selected_BL
    true, left, right = (ids[both] for ids in (text.ids_BL, drawn.encoder.ids_BL, drawn.decoder.ids_BL))
    trials, masks, kept = len(true), 0.8 + 0.1 / 60, 0.1 + 0.1 / 60
    for side in (left, right):
        assert z_score(int((side == MASK).sum()), trials, masks) < 4
        assert z_score(int((side == true).sum()), trials, kept) < 4
    assert z_score(int(((left == MASK) & (right == MASK)).sum()), trials, masks**2) < 4
    other = (left != MASK) & (left != true)
    assert int((left[other] == right[other]).sum()) < 0.1 * int(other.sum())
    untouched = ~drawn.decoder.selected_BL
    assert torch.equal(drawn.decoder.ids_BL[untouched], text.ids_BL[untouched])


def test_text_positions_are_judged_on_the_corrupted_ids() -> None:
    """[MASK] is pooled; a token that was replaced by [CLS] or [SEP] by chance is not, one replaced by padding is."""
    text = token_rows([*random_texts([50] * 239), random_texts([20])[0]])
    drawn = drawn_for(objective(), text)
    seen, pooled = drawn.encoder.ids_BL, drawn.pooled_BL
    for row, length in enumerate(text.lengths_B.tolist()):
        expected = [j < length and int(seen[row, j]) not in (CLS, SEP) for j in range(52)]
        assert pooled[row].tolist() == expected
    inside = seen[:239, 1:51]
    assert ((inside == CLS) | (inside == SEP)).sum() > 3 and (inside == PAD).sum() > 1


@pytest.mark.parametrize(
    ("overlap", "ratio", "message"),
    [
        ("inclusive", 0.2, "at least encoder_mask_ratio = 0.3"),
        ("exclusive", 0.8, "at most 1 - encoder_mask_ratio = 0.3"),
    ],
)
def test_masks_that_do_not_fit_together_are_refused(overlap: str, ratio: float, message: str) -> None:
    fields = {"decoder_mask_ratio": ratio, "overlap": overlap}
    with pytest.raises(UserError, match=f"overlap = {overlap}: .*{message}"):
        override(LexMAE.Config(), fields)
    assert override(LexMAE.Config(), {**fields, "overlap": "random"}).overlap == "random"


build_tsdae = partial(build, TSDAE)
READ = batch([*random_texts([20, 4, 15]), [UNK, 9, UNK, 12]])


def decoded(reference: Reference, text: list[int], vector: torch.Tensor) -> Vectors:
    """The encoder's layers over the past, each with an attention over the vector alone."""
    states = reference.embed(text)
    past = [[j <= i for j in range(len(text))] for i in range(len(text))]
    for number in range(reference.layers):
        at, reads = f"backbone.model.bert.encoder.layer.{number}", f"attentions.{number}"
        queries, keys, values = (
            [reference.linear(f"{at}.attention.self.{name}", x) for x in states] for name in ("query", "key", "value")
        )
        attended = reference.attend(queries, keys, values, past)
        read = reference.linear(f"{reads}.out", reference.linear(f"{reads}.value", vector))
        after = []
        for x, a in zip(states, attended, strict=True):
            out = reference.linear(f"{at}.attention.output.dense", a)
            y = reference.norm(f"{at}.attention.output.LayerNorm", x + out)
            y = reference.norm(f"{reads}.norm", y + read)
            inner = reference.linear(f"{at}.output.dense", gelu(reference.linear(f"{at}.intermediate.dense", y)))
            after.append(reference.norm(f"{at}.output.LayerNorm", y + inner))
        states = after
    return states


@pytest.mark.parametrize("ratio", [0.6, 0.0])
def test_tsdae_loss_and_every_gradient_equal_the_reference(ratio: float) -> None:
    tsdae = build_tsdae(deletion_ratio=ratio)
    drawn, reference = tsdae.draw(READ), reference_of(tsdae)
    terms: Vectors = []
    for row in range(4):
        text = ids(READ.texts["passage"], row)
        vector = reference.encode(ids(drawn.left, row))[0]
        states = decoded(reference, text, vector)
        terms += [reference.surprise(states[i], text[i + 1]) for i in range(len(text) - 1)]
    assert_equal(tsdae, drawn, reference, {"decoder_clm": terms})


def test_attention_over_one_vector_is_that_of_the_published_decoder() -> None:
    """BERT's own cross-attention, with queries and keys, as the published code builds its decoder."""
    torch.manual_seed(0)
    tsdae = build_tsdae().eval()
    width, attention = tsdae.backbone.width, tsdae.attentions[0]
    config = BertConfig(hidden_size=width, num_attention_heads=2, is_decoder=True, add_cross_attention=True)
    config._attn_implementation = "eager"
    published = AutoModelForMaskedLM.from_config(config).get_submodule("bert.encoder.layer.0.crossattention")
    published = published.double().eval()
    own = {"self.value": attention.value, "output.dense": attention.out, "output.LayerNorm": attention.norm}
    for name, part in own.items():
        published.get_submodule(name).load_state_dict(part.state_dict())
    published.get_submodule("output.LayerNorm").eps = tsdae.backbone.norm_eps
    states, vector = torch.randn(3, 7, width).double(), torch.randn(3, 1, width).double()
    found = published(states, encoder_hidden_states=vector)[0]
    torch.testing.assert_close(attention(states, vector), found, rtol=1e-10, atol=1e-10)


def test_words_are_deleted_whole_and_with_their_probability() -> None:
    """20,000 words: a false alarm once in a million draws of seeds."""
    text = token_rows(random_texts([100] * 200))
    left = build_tsdae().draw(Batch(0, {"passage": text})).left
    kept = int((left.lengths_B - 2).sum()) / int((text.lengths_B - 2).sum())
    words = int((text.lengths_B - 2).sum())
    assert abs(kept - 0.4) < 8 * (0.6 * 0.4 / words) ** 0.5, "words of several tokens widen it"
    for row in range(5):
        whole, rest = ids(text, row), ids(left, row)
        places = iter(whole)
        assert all(token in places for token in rest), "what is left keeps its order"


@pytest.mark.parametrize("length", [1, 2, 3])
def test_one_word_stays_of_the_shortest_texts(length: int) -> None:
    drawn = build_tsdae(deletion_ratio=0.999).draw(batch(random_texts([length] * 50)))
    assert int(drawn.left.lengths_B.min()) == 3


TSDAE_VARIANTS: dict[str, dict[str, Any]] = {
    "three layers, span 2": {},
    "one layer, span 8": {"decoder_layers": 1, "window": 8, "decoder_weight": 0.9},
    "whole words": {"encoder_mask": "word", "encoder_mask_ratio": 0.5, "decoder_layers": 1, "window": None},
}

build_seed = partial(build, SEED)
SEED_READ = batch([*random_texts([20, 4, 15]), [UNK, 9, UNK, 12]])


@pytest.mark.parametrize("variant", TSDAE_VARIANTS)
def test_seed_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    seed = build_seed(**TSDAE_VARIANTS[variant])
    config, drawn, reference = seed.config, seed.draw(SEED_READ), reference_of(seed)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_clm": []}
    for row in range(4):
        text = ids(SEED_READ.texts["passage"], row)
        states = reference.encode(ids(drawn.encoder, row))
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, text)
        terms["decoder_clm"] += reference.written(states[:1], text, config.decoder_layers, config.window)
    assert_equal(seed, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_both_losses_have_half_weight() -> None:
    loss = build_seed()(build_seed().draw(SEED_READ))
    assert [part.weight for part in loss.parts.values()] == [0.5, 0.5]
