"""RetroMAE and DupMAE against the slow reference, for all they decode; and the rules of their decoders and bags."""

from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.dupmae import DupMAE
from midmask.objectives.pretraining.retromae import DecodingConfig, RetroMAE, RetroMAERows
from tests.support.objectives.checks import assert_equal, build, ids, places, reference_of, surprises
from tests.support.objectives.reference import Reference, Vectors, log_sum_exp
from tests.support.objectives.texts import MASK, TEXTS, UNK, batch, random_texts, token_rows


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
    "enhanced, P + h": {},
    "enhanced, embedding module": {"query_stream": "embedding"},
    "enhanced, independent masks": {"decoder_masks": "independent", "decoder_weight": 0.7},
    "basic, one layer": {"decoding": "basic"},
    "basic, three layers": {"decoding": "basic", "decoder_layers": 3, "encoder_weight": 0.3},
    "tokens": {"encoder_mask": "token"},
    "mean of the tokens": MEAN,
}
objective = partial(build, RetroMAE)
READ = batch(TEXTS)
TEXT = READ.texts["passage"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    retromae = objective(**VARIANTS[variant])
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
    drawn = objective().draw(READ).decoder
    assert torch.equal(drawn.ids_BL, TEXT.ids_BL)
    for row in range(4):
        assert places(drawn, row) == list(range(1, int(TEXT.lengths_B[row]) - 1))
    assert torch.equal(drawn.labels_R, TEXT.ids_BL.flatten()[drawn.rows_R])


def test_basic_targets_are_masked_whole_words_apart_from_the_encoders() -> None:
    text = token_rows(random_texts([120, 60]))
    drawn = objective(decoding="basic").draw(Batch(0, {"passage": text}))
    hidden = torch.zeros_like(text.ids_BL, dtype=torch.bool).flatten()
    hidden[drawn.decoder.rows_R] = True
    hidden = hidden.view_as(text.ids_BL)
    assert torch.equal(drawn.decoder.ids_BL, torch.where(hidden, MASK, text.ids_BL))
    assert hidden.sum(1).tolist() == [61, 31]
    shared = set(drawn.encoder.rows_R.tolist()) & set(drawn.decoder.rows_R.tolist())
    assert 0 < len(shared) < 0.8 * len(drawn.encoder.rows_R)


def test_dropout_acts_in_the_decoder_and_only_while_training() -> None:
    retromae = objective(dropout=0.3)
    drawn = retromae.draw(READ)
    queries = torch.randn(4, TEXT.ids_BL.shape[1], 128).double()

    def twice() -> bool:
        return torch.equal(*(retromae.decoder[0](queries, queries, drawn.visible_BXL) for _ in range(2)))

    assert not twice()
    retromae.eval()
    assert twice()


def test_health_tells_what_the_decoder_does_without_the_text_s_vector() -> None:
    retromae = objective().eval()
    drawn = retromae.draw(READ)
    found = retromae.health(drawn)
    hidden = retromae.backbone.hidden(drawn.encoder.ids_BL, drawn.encoder.lengths_B)
    same = sum(hidden[row, 0] for row in range(4)) / 4
    decoded = retromae.decode(torch.stack([same] * 4)[:, None], drawn.decoder.ids_BL, drawn.visible_BXL)
    logits = retromae.backbone.transform(decoded) @ retromae.backbone.output_weight_VD.t()
    logits = (logits + retromae.backbone.output_bias_V).flatten(0, 1)[drawn.decoder.rows_R]
    expected = torch.nn.functional.cross_entropy(logits, drawn.decoder.labels_R)
    torch.testing.assert_close(found["decoder_loss_without_vector"], expected)


DUPMAE_VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"bow_head": "projection", "bow_targets": "set", "query_stream": "paper"},
    "code": {"bow_weight": 0.1, "pool_masked": True, "pool_sep": True},
    "a sum over the set": {"bow_targets": "sum", "pool_sep": True, "decoder_weight": 0.7, "bow_weight": 0.3},
    "masked positions too": {"pool_masked": True, "encoder_weight": 0.3, "decoder_masks": "independent"},
    "decode = cls": {"decode": "cls"},
    "decode = ot": {"decode": "ot"},
    "basic decoding": {"decoding": "basic", "decoder_layers": 2},
}


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


build_dupmae = partial(build, DupMAE)
DUPMAE_TEXT = token_rows([*random_texts([8, 4, 1]), [UNK, 9, UNK, 12, 9, 9]])
"""Repeated tokens, [UNK], and a text whose only token is masked."""
DUPMAE_READ = Batch(0, {"passage": DUPMAE_TEXT})


@pytest.mark.parametrize("variant", DUPMAE_VARIANTS)
def test_dupmae_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    dupmae = build_dupmae(**DUPMAE_VARIANTS[variant])
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
    retromae, dupmae = build(RetroMAE, query_stream="embedding", drift=0.1), build_dupmae()
    assert set(dupmae.take_over(retromae.heads_state())) == set(dupmae.heads_state())
    mine, its = (each(each.draw(DUPMAE_READ)).parts["decoder_mlm"].total for each in (dupmae, retromae))
    torch.testing.assert_close(mine, its)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decode": "cls", "bow_head": "projection"}, "bow_head = projection has no effect with decode = cls"),
        ({"decode": "cls", "bow_weight": 0.1}, "bow_weight = 0.1 has no effect with decode = cls"),
        ({"decode": "ot", "decoder_mask_ratio": 0.9}, "decoder_mask_ratio = 0.9 has no effect with decode = ot"),
        ({"decoder_layers": 2}, "needs decoding = basic"),
        ({"bow_weight": 0.0}, "greater than 0"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        override(DupMAE.Config(), fields)
