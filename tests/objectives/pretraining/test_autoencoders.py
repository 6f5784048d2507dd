"""RetroMAE, DupMAE, LexMAE, TSDAE and SEED-Encoder against the slow reference, for all they decode; masks, bags, and
attention as in the published code.
"""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM, BertConfig

from midmask.core.batch import Batch, TokenRows
from midmask.objectives.pretraining.dupmae import DupMAE
from midmask.objectives.pretraining.lexmae import LexMAE, LexMAERows
from midmask.objectives.pretraining.retromae import DecodingConfig, RetroMAE, RetroMAERows
from midmask.objectives.pretraining.seed import SEED
from midmask.objectives.pretraining.tsdae import TSDAE
from tests.support.objectives.checks import assert_equal, build, ids, places, reference_of, surprises, z_score
from tests.support.objectives.reference import Reference, Vectors, gelu, log_sum_exp
from tests.support.objectives.texts import CLS, MASK, PAD, SEP, TEXTS, UNK, batch, random_texts, token_rows


def decode(
    config: DecodingConfig, reference: Reference, vector: torch.Tensor, drawn: RetroMAERows, row: int
) -> Vectors:
    length = int(drawn.decoder.lengths_B[row])
    context = [vector, *reference.embed(drawn.decoder.ids_BL[row, :length].tolist())[1:]]
    if config.decoding == "basic":
        for number in range(config.decoder_layers):
            everything = [[True] * length] * length
            context = reference.layer(reference.decoder_names(number), context, context, everything)
        return context
    if config.query_stream == "paper":
        queries = [vector + reference.position(i) for i in range(length)]
    else:
        queries = [reference.embed_vector(vector, i) for i in range(length)]
    visible = drawn.visible_BXL[row, :length, :length].tolist()
    return reference.layer(reference.decoder_names(0), queries, context, visible)


MEAN = {"backbone": {"sentence_vector": "mean"}}
VARIANTS: dict[str, dict[str, Any]] = {
    "enhanced, P + h": {}, "enhanced, embedding module": {"query_stream": "embedding"},
    "enhanced, independent masks": {"decoder_masks": "independent", "decoder_weight": 0.7},
    "basic, one layer": {"decoding": "basic"},
    "basic, three layers": {"decoding": "basic", "decoder_layers": 3, "encoder_weight": 0.3},
    "tokens": {"encoder_mask": "token"}, "mean of the tokens": MEAN,
}  # fmt: skip
READ = batch(TEXTS)
TEXT = READ.texts["passage"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    retromae = build(RetroMAE, **VARIANTS[variant])
    config, drawn, reference = retromae.config, retromae.draw(READ), reference_of(retromae)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_mlm": []}
    for row in range(4):
        states, true = reference.encode(ids(drawn.encoder, row)), ids(TEXT, row)
        vector = sum(states) / len(states) if VARIANTS[variant] is MEAN else states[0]
        decoded = decode(config, reference, vector, drawn, row)
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, true)
        terms["decoder_mlm"] += surprises(reference, decoded, drawn.decoder, row, true)
    assert_equal(retromae, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_enhanced_targets_are_all_tokens_but_the_ends_and_nothing_is_masked() -> None:
    drawn = build(RetroMAE).draw(READ).decoder
    assert torch.equal(drawn.ids_BL, TEXT.ids_BL)
    for row in range(4):
        assert places(drawn, row) == list(range(1, int(TEXT.lengths_B[row]) - 1))
    assert torch.equal(drawn.labels_R, TEXT.ids_BL.flatten()[drawn.rows_R])


def test_basic_targets_are_masked_whole_words_apart_from_the_encoders() -> None:
    text = token_rows(random_texts([120, 60]))
    drawn = build(RetroMAE, decoding="basic").draw(Batch(0, {"passage": text}))
    hidden = torch.zeros_like(text.ids_BL, dtype=torch.bool).flatten()
    hidden[drawn.decoder.rows_R] = True
    hidden = hidden.view_as(text.ids_BL)
    assert torch.equal(drawn.decoder.ids_BL, torch.where(hidden, MASK, text.ids_BL))
    assert hidden.sum(1).tolist() == [61, 31]
    shared = set(drawn.encoder.rows_R.tolist()) & set(drawn.decoder.rows_R.tolist())
    assert 0 < len(shared) < 0.8 * len(drawn.encoder.rows_R)


def test_dropout_acts_in_the_decoder_and_only_while_training() -> None:
    retromae = build(RetroMAE, dropout=0.3)
    drawn = retromae.draw(READ)
    queries = torch.randn(4, TEXT.ids_BL.shape[1], 128).double()

    def twice() -> bool:
        return torch.equal(*(retromae.decoder[0](queries, queries, drawn.visible_BXL) for _ in range(2)))

    assert not twice()
    retromae.eval()
    assert twice()


def test_health_tells_what_the_decoder_does_without_the_text_s_vector() -> None:
    retromae = build(RetroMAE).eval()
    drawn = retromae.draw(READ)
    found = retromae.health(drawn)
    hidden = retromae.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
    same = torch.stack([sum(hidden[row, 0] for row in range(4)) / 4] * 4)[:, None]
    decoded = retromae.decoder(retromae.backbone, retromae.positions, same, drawn.decoder.ids_BL, drawn.visible_BXL)
    logits = retromae.backbone.transform(decoded) @ retromae.backbone.output_weight_VD.t()
    logits = (logits + retromae.backbone.output_bias_V).flatten(0, 1)[drawn.decoder.rows_R]
    expected = torch.nn.functional.cross_entropy(logits, drawn.decoder.labels_R)
    torch.testing.assert_close(found["decoder_loss_without_vector"], expected)


DUPMAE_VARIANTS: dict[str, dict[str, Any]] = {
    "default": {}, "paper": {"bow_head": "projection", "bow_targets": "set", "query_stream": "paper"},
    "code": {"bow_weight": 0.1, "pool_masked": True, "pool_sep": True},
    "a sum over the set": {"bow_targets": "sum", "pool_sep": True, "decoder_weight": 0.7, "bow_weight": 0.3},
    "masked positions too": {"pool_masked": True, "encoder_weight": 0.3, "decoder_masks": "independent"},
    "decode = cls": {"decode": "cls"}, "decode = ot": {"decode": "ot"},
    "basic decoding": {"decoding": "basic", "decoder_layers": 2},
}  # fmt: skip


def bag_loss(
    config: DupMAE.Config, reference: Reference, states: Vectors, true: list[int], masked: list[int]
) -> Tensor:
    """One text's - sum of w_v log softmax(mu)_v, by a dictionary of weights; 0 and no gradient if nothing is pooled."""
    last = len(true) - 1
    pooled = [i for i in range(1, last) if config.pool_masked or i not in masked] + ([last] if config.pool_sep else [])
    words = Counter(true[1:last])
    if not pooled or not words:
        return torch.zeros((), dtype=torch.float64)
    if config.bow_head == "tied":
        logits = [reference.logits(states[i]) for i in pooled]
    else:
        logits = [reference.get("projection.weight") @ states[i] for i in pooled]
    mu = torch.stack(logits).max(0).values
    weight = {"share": 1 / sum(words.values()), "set": 1 / len(words), "sum": 1.0}[config.bow_targets]
    return sum((weight * (log_sum_exp(mu) - mu[v]) for v in words), start=torch.zeros((), dtype=torch.float64))


DUPMAE_TEXT = token_rows([*random_texts([8, 4, 1]), [UNK, 9, UNK, 12, 9, 9]])
"""Repeated tokens, [UNK], and a text whose only token is masked."""
DUPMAE_READ = Batch(0, {"passage": DUPMAE_TEXT})


@pytest.mark.parametrize("variant", DUPMAE_VARIANTS)
def test_dupmae_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    dupmae = build(DupMAE, **DUPMAE_VARIANTS[variant])
    config, drawn, reference = dupmae.config, dupmae.draw(DUPMAE_READ), reference_of(dupmae)
    values: dict[str, list[Tensor]] = {"encoder_mlm": [], "decoder_mlm": [], "bag_of_words": []}
    for row in range(4):
        true, masked = ids(DUPMAE_TEXT, row), places(drawn.encoder, row)
        states = reference.encode(ids(drawn.encoder, row))
        values["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, true)
        if config.decode != "ot":
            assert drawn.decoder is not None
            decoded = decode(config, reference, states[0], RetroMAERows(drawn.encoder, *drawn.decoder), row)
            values["decoder_mlm"] += surprises(reference, decoded, drawn.decoder[0], row, true)
        loss = bag_loss(config, reference, states, true, masked)
        if config.decode != "cls" and loss > 0:
            values["bag_of_words"].append(loss)
    bags = 4 if config.pool_masked or config.pool_sep else 3
    assert len(values["bag_of_words"]) == (0 if config.decode == "cls" else bags)
    weights = (config.encoder_weight, config.decoder_weight, config.bow_weight)
    assert_equal(dupmae, drawn, reference, values, weights)


def test_it_goes_on_from_retromae_s_decoder() -> None:
    retromae, dupmae = build(RetroMAE, query_stream="embedding", drift=0.1), build(DupMAE)
    assert set(dupmae.take_over(retromae.heads_state())) == set(dupmae.heads_state())
    mine, its = (each(each.draw(DUPMAE_READ)).parts["decoder_mlm"].total for each in (dupmae, retromae))
    torch.testing.assert_close(mine, its)


LEXMAE_VARIANTS: dict[str, dict[str, Any]] = {
    "default": {}, "saturated": {"bottleneck": "saturated", "decoder_weight": 0.7},
    "cls": {"bottleneck": "cls", "decoder_layers": 1}, "off": {"bottleneck": "off", "encoder_weight": 0.3},
    "random masks": {"overlap": "random", "encoder_mask": "token"},
    "exclusive masks": {"overlap": "exclusive", "encoder_mask": "word"},
}  # fmt: skip


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


@pytest.mark.parametrize("variant", LEXMAE_VARIANTS)
def test_lexmae_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    lexmae = objective(**LEXMAE_VARIANTS[variant])
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


LONGER = batch([*random_texts([20, 4, 15]), [UNK, 9, UNK, 12]])


def decoded(reference: Reference, text: list[int], vector: torch.Tensor) -> Vectors:
    """The encoder's layers over the past, each with an attention over the vector alone."""
    states = reference.embed(text)
    past = [[j <= i for j in range(len(text))] for i in range(len(text))]
    for number in range(reference.layers):
        at, reads = f"backbone.model.bert.encoder.layer.{number}", f"attentions.{number}"
        x_LD = torch.stack(states)
        projected = (reference.linear(f"{at}.attention.self.{name}", x_LD) for name in ("query", "key", "value"))
        attended_LD = reference.attend(*projected, past)
        read_D = reference.linear(f"{reads}.out", reference.linear(f"{reads}.value", vector))
        out_LD = reference.linear(f"{at}.attention.output.dense", attended_LD)
        y_LD = reference.norm(f"{at}.attention.output.LayerNorm", x_LD + out_LD)
        y_LD = reference.norm(f"{reads}.norm", y_LD + read_D)
        inner = reference.linear(f"{at}.output.dense", gelu(reference.linear(f"{at}.intermediate.dense", y_LD)))
        states = list(reference.norm(f"{at}.output.LayerNorm", y_LD + inner))
    return states


@pytest.mark.parametrize("ratio", [0.6, 0.0])
def test_tsdae_loss_and_every_gradient_equal_the_reference(ratio: float) -> None:
    tsdae = build(TSDAE, deletion_ratio=ratio)
    drawn, reference = tsdae.draw(LONGER), reference_of(tsdae)
    terms: Vectors = []
    for row in range(4):
        text = ids(LONGER.texts["passage"], row)
        vector = reference.encode(ids(drawn.left, row))[0]
        states = decoded(reference, text, vector)
        terms += [reference.surprise(states[i], text[i + 1]) for i in range(len(text) - 1)]
    assert_equal(tsdae, drawn, reference, {"decoder_clm": terms})


def test_attention_over_one_vector_is_that_of_the_published_decoder() -> None:
    """BERT's own cross-attention, with queries and keys, as the published code builds its decoder."""
    torch.manual_seed(0)
    tsdae = build(TSDAE).eval()
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
    left = build(TSDAE).draw(Batch(0, {"passage": text})).left
    kept = int((left.lengths_B - 2).sum()) / int((text.lengths_B - 2).sum())
    words = int((text.lengths_B - 2).sum())
    assert abs(kept - 0.4) < 8 * (0.6 * 0.4 / words) ** 0.5, "words of several tokens widen it"
    for row in range(5):
        whole, rest = ids(text, row), ids(left, row)
        places = iter(whole)
        assert all(token in places for token in rest), "what is left keeps its order"


@pytest.mark.parametrize("length", [1, 2, 3])
def test_one_word_stays_of_the_shortest_texts(length: int) -> None:
    drawn = build(TSDAE, deletion_ratio=0.999).draw(batch(random_texts([length] * 50)))
    assert int(drawn.left.lengths_B.min()) == 3


SEED_VARIANTS: dict[str, dict[str, Any]] = {
    "three layers, span 2": {},
    "one layer, span 8": {"decoder_layers": 1, "window": 8, "decoder_weight": 0.9},
    "whole words": {"encoder_mask": "word", "encoder_mask_ratio": 0.5, "decoder_layers": 1, "window": None},
}


@pytest.mark.parametrize("variant", SEED_VARIANTS)
def test_seed_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    seed = build(SEED, **SEED_VARIANTS[variant])
    config, drawn, reference = seed.config, seed.draw(LONGER), reference_of(seed)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_clm": []}
    for row in range(4):
        text = ids(LONGER.texts["passage"], row)
        states = reference.encode(ids(drawn.encoder, row))
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, text)
        terms["decoder_clm"] += reference.written(states[:1], text, config.decoder_layers, config.window)
    assert_equal(seed, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_both_losses_have_half_weight() -> None:
    loss = build(SEED)(build(SEED).draw(LONGER))
    assert [part.weight for part in loss.parts.values()] == [0.5, 0.5]
