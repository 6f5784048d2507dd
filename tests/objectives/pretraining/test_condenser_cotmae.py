"""Condenser, coCondenser and the three CoT-MAEs against the slow reference; what is masked and who sees what."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from midmask.core.batch import Batch
from midmask.core.config import override
from midmask.encoders.backbone import load_backbone
from midmask.errors import UserError
from midmask.objectives import build_objective
from midmask.objectives.pretraining.cocondenser import CoCondenser
from midmask.objectives.pretraining.condenser import Condenser
from midmask.objectives.pretraining.cotmae import CoTMAE
from midmask.objectives.pretraining.cotmae_qc import QueryAsContext
from midmask.objectives.pretraining.cotmae_v2 import CoTMAEv2
from midmask.objectives.pretraining.encoder_mask import MaskedRows
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises, total_of
from tests.support.objectives.reference import Reference, Vectors, log_sum_exp
from tests.support.objectives.texts import (
    FIRST,
    MASK,
    TEXTS,
    UNK,
    batch,
    random_texts,
    small_vocabulary,
    token_rows,
)


class HeadReference(Reference):
    """BERT that keeps the states behind one layer, and a head of ordinary layers."""

    def early(self, tokens: list[int], layer: int) -> Vectors:
        shallow = HeadReference.__new__(HeadReference)
        shallow.__dict__ = {**self.__dict__, "layers": layer}
        return shallow.encode(tokens)

    def read(self, vector: torch.Tensor, early: Vectors, head_layers: int) -> Vectors:
        states = [vector, *early[1:]]
        for number in range(head_layers):
            names = self.decoder_names(number)
            names = {part: name.replace("decoder.", "head.layers.") for part, name in names.items()}
            states = self.layer(names, states, states, [[True] * len(states)] * len(states))
        return states

    def losses(self, rows: MaskedRows, skip_from: int, head_layers: int) -> dict[str, list[torch.Tensor]]:
        """-log p(label) of every target, by part, row by row."""
        width = rows.ids_BL.shape[1]
        found: dict[str, list[torch.Tensor]] = {"head_mlm": [], "late_mlm": []}
        for place, label in zip(rows.rows_R.tolist(), rows.labels_R.tolist(), strict=True):
            row, column = divmod(place, width)
            tokens = rows.ids_BL[row, : int(rows.lengths_B[row])].tolist()
            late, early = self.encode(tokens), self.early(tokens, skip_from)
            found["head_mlm"].append(self.surprise(self.read(late[0], early, head_layers)[column], label))
            found["late_mlm"].append(self.surprise(late[column], label))
        return found


VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "one layer, other weights": {"head_layers": 1, "head_weight": 0.4, "late_weight": 1.7},
    "tokens": {"encoder_mask": "token", "encoder_mask_ratio": 0.4},
}


def deep(layers: int, folder: Path, **fields: Any) -> Any:
    """On a BERT of some layers, from a Hugging Face folder."""
    shape = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 256, "initializer_range": 0.05}
    torch.manual_seed(2)
    shape |= {"vocab_size": 60, "num_hidden_layers": layers, "max_position_embeddings": 64}
    BertForMaskedLM(BertConfig(**shape)).save_pretrained(folder)
    config = override(Condenser.Config(), fields)
    return build_objective(config, load_backbone(folder, dropout=0.0), small_vocabulary(), seed=5).double()


READ = batch(TEXTS)


def check(condenser: Condenser, layers: int, skip_from: int) -> None:
    reference, config = HeadReference(condenser, heads=2, layers=layers, pad_id=0), condenser.config
    drawn = condenser.draw(READ)
    terms = reference.losses(drawn, skip_from, config.head_layers)
    assert_equal(condenser, drawn, reference, terms, (config.head_weight, config.late_weight))


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    check(build(Condenser, **VARIANTS[variant]), layers=2, skip_from=1)


@pytest.mark.parametrize(("skip_from", "layer"), [(None, 2), (1, 1), (4, 4)])
def test_early_states_are_those_behind_the_chosen_layer(skip_from: int | None, layer: int, tmp_path: Path) -> None:
    """Half of five layers is two; the last layer itself is no choice."""
    check(deep(5, tmp_path, skip_from=skip_from, head_layers=1), layers=5, skip_from=layer)


def test_a_head_that_skips_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"condenser: skip_from = 2, but .* 2 layers; choose .* from 1 to 1"):
        build(Condenser, skip_from=2)
    with pytest.raises(UserError, match="condenser: the backbone has 1 layer"):
        deep(1, tmp_path)


def test_the_quota_leaves_specials_out_and_unknown_words_are_passed_over() -> None:
    """Of 30 tokens 0.15 are 4 (with [CLS] and [SEP] it would be 5), all of them taken from the six that are known."""
    drawn = build(Condenser).draw(batch([[UNK] * 24 + [6, 7, 8, 9, 10, 11]]))
    assert len(drawn.labels_R) == 4 and (drawn.rows_R > 24).all() and (drawn.labels_R > UNK).all()


COCONDENSER_VARIANTS: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 20, published weights with a cache": {"temperature": 20.0, "head_weight": 2.0, "late_weight": 2.0},
    "other weights, one layer": {"contrastive_weight": 0.3, "late_weight": 0.5, "head_layers": 1, "temperature": 7.0},
}

BATCH = batch(random_texts([8, 4, 6], seed=1), random_texts([5, 9, 7], seed=2))


@pytest.mark.parametrize("variant", COCONDENSER_VARIANTS)
def test_cocondenser_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    """The softmax of a span runs over all spans but itself; rows i and i + 3 of what is drawn are partners."""
    cocondenser = build(CoCondenser, **COCONDENSER_VARIANTS[variant])
    config, drawn = cocondenser.config, cocondenser.draw(BATCH)
    reference = HeadReference(cocondenser, heads=2, layers=2, pad_id=0)
    contrastive: Vectors = []
    vectors = [reference.encode(ids(drawn, row))[0] for row in range(6)]
    for row, vector in enumerate(vectors):
        scores = {n: vector @ other / config.temperature for n, other in enumerate(vectors) if n != row}
        partner = scores[row + 3 if row < 3 else row - 3]
        contrastive.append(log_sum_exp(torch.stack(list(scores.values()))) - partner)
    terms = {"contrastive": contrastive, **reference.losses(drawn, 1, config.head_layers)}
    weights = (config.contrastive_weight, config.head_weight, config.late_weight)
    assert_equal(cocondenser, drawn, reference, terms, weights)


def test_both_spans_are_masked_and_apart_from_each_other() -> None:
    """Both spans of a row carry the same key, and the same text is masked otherwise in each. Eight rows of 100 words,
    15 hidden in each span: were the masks independent, 2.25 would be shared in a row; that all eight rows were equal by
    chance has a probability below 1e-100."""
    text = token_rows(random_texts([100] * 8))
    drawn = build(CoCondenser).draw(Batch(0, {"passage": text, "context": text}))
    assert torch.equal(drawn.lengths_B, text.lengths_B.repeat(2))
    hidden_BL = drawn.selected_BL
    assert hidden_BL.sum(1).tolist() == [15] * 16
    shared = (hidden_BL[:8] & hidden_BL[8:]).sum()
    assert 0 < shared < 8 * 7
    untouched = ~hidden_BL
    assert torch.equal(drawn.ids_BL[untouched], text.ids_BL.repeat(2, 1)[untouched])


COTMAE_VARIANTS: dict[str, dict[str, Any]] = {
    "released, two layers": {},
    "paper, one layer": {"decoder_layers": 1, "decoder_weight": 0.7},
    "tokens": {"encoder_mask": "token", "encoder_weight": 0.3},
}

COTMAE_READ = batch(TEXTS, random_texts([5, 7, 3, 9], seed=1))
SPANS = [ids(COTMAE_READ.texts[name], row) for name in ("passage", "context") for row in range(4)]
"""First the passages, then their contexts, as the encoder reads them; the decoder's stand the other way round."""
OTHERS = SPANS[4:] + SPANS[:4]


@pytest.mark.parametrize("variant", COTMAE_VARIANTS)
def test_cotmae_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    cotmae = build(CoTMAE, **COTMAE_VARIANTS[variant])
    config, drawn, reference = cotmae.config, cotmae.draw(COTMAE_READ), reference_of(cotmae)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_mlm": []}
    for row in range(8):
        states = reference.encode(ids(drawn.encoder, row))
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, SPANS[row])
        read = [states[0], *reference.embed(ids(drawn.decoder, row))[1:]]
        decoded = reference.decoder(read, config.decoder_layers)
        terms["decoder_mlm"] += surprises(reference, decoded, drawn.decoder, row, OTHERS[row])
    assert_equal(cotmae, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_quotas_leave_out_specials_and_the_two_masks_are_independent() -> None:
    """1,000 rows of 100 one-token words. False alarms once in a million draws of seeds for each of the two z-scores."""
    texts = [[FIRST + (i + j) % 30 for j in range(100)] for i in range(500)]
    drawn = build(CoTMAE).draw(batch(texts, texts[::-1]))
    encoder, decoder = drawn.encoder.selected_BL, drawn.decoder.selected_BL.roll(500, 0)
    assert set(encoder.sum(1).tolist()) == {30} and set(decoder.sum(1).tolist()) == {45}  # 31 and 46 with specials
    shared = (encoder & decoder).sum()
    variance = 30 * 0.45 * 0.55 * 70 / 99  # hypergeometric
    assert abs(float(shared) / 1000 - 13.5) < 4.9 * (variance / 1000) ** 0.5
    decoder_ids = drawn.decoder.ids_BL.roll(500, 0)
    both = ((drawn.encoder.ids_BL == MASK) & (decoder_ids == MASK))[encoder & decoder].sum()
    chance = (0.8 + 0.1 / 60) ** 2  # a random token may be [MASK]
    assert abs(float(both / shared) - chance) < 4.9 * (chance * (1 - chance) / float(shared)) ** 0.5


QUERY_AS_CONTEXT_VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "two blocks": {"decoder_layers": 2, "decoder_weight": 0.7},
    "no window": {"window": None, "encoder_weight": 0.3},
}


@pytest.mark.parametrize("variant", QUERY_AS_CONTEXT_VARIANTS)
def test_query_as_context_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    method = build(QueryAsContext, **QUERY_AS_CONTEXT_VARIANTS[variant])
    config, drawn, reference = method.config, method.draw(COTMAE_READ), reference_of(method)
    terms: dict[str, Vectors] = {"encoder_mlm": [], "decoder_clm": []}
    for row in range(4):
        passage, query = (ids(COTMAE_READ.texts[name], row) for name in ("passage", "context"))
        states = reference.encode(ids(drawn.encoder, row))
        terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, row, passage)
        terms["decoder_clm"] += reference.written(states[:1], query, config.decoder_layers, config.window)
    assert_equal(method, drawn, reference, terms, (config.encoder_weight, config.decoder_weight))


def test_the_encoders_quota_leaves_out_specials() -> None:
    drawn = build(QueryAsContext).draw(batch([[9] * 100, [9] * 50, [9] * 5], [[7]] * 3))
    assert drawn.encoder.selected_BL.sum(1).tolist() == [30, 15, 2]  # 31, 16 and 2 with specials


COTMAE_V2_VARIANTS: dict[str, dict[str, Any]] = {
    "spans": {},
    "pseudo-queries": {"context": "pseudo_query", "ae_weight": 0.7, "ar_weight": 0.4},
    "two layers, two blocks": {"ae_layers": 2, "ar_layers": 2, "encoder_weight": 0.3},
}


def sparse_view(reference: Reference, states: Vectors) -> Tensor:
    """s E, entry by entry of the vocabulary; s of a text with negative logits alone is 0."""
    logits = [reference.logits(state) for state in states]
    table = reference.bert("embeddings.word_embeddings.weight")
    view = torch.zeros(128, dtype=torch.float64)
    for entry in range(len(table)):
        view = view + max(torch.log(1 + torch.relu(row[entry])) for row in logits) * table[entry]
    return view


@pytest.mark.parametrize("variant", COTMAE_V2_VARIANTS)
def test_cotmae_v2_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    method = build(CoTMAEv2, **COTMAE_V2_VARIANTS[variant])
    config, drawn, reference = method.config, method.draw(COTMAE_READ), reference_of(method)
    sides = [("passage", "context")] + ([("context", "passage")] if config.context != "pseudo_query" else [])
    terms: dict[str, Vectors] = {name: [] for name in method.parts}
    for number, (here, there) in enumerate(sides):
        for row in range(4):
            text, context = (ids(COTMAE_READ.texts[name], row) for name in (here, there))
            at = 4 * number + row
            states = reference.encode(ids(drawn.encoder, at))
            vectors = [states[0], sparse_view(reference, states)]
            masked = [*vectors, *reference.embed(ids(drawn.masked, at))[1:]]
            ae = reference.decoder(masked, config.ae_layers)[1:]
            terms["encoder_mlm"] += surprises(reference, states, drawn.encoder, at, text)
            terms["ae_mlm"] += surprises(reference, ae, drawn.masked, at, context)
            terms["ar_clm"] += reference.written(vectors, context, config.ar_layers, None)
    assert_equal(method, drawn, reference, terms, (config.encoder_weight, config.ae_weight, config.ar_weight))


def test_a_text_whose_logits_are_all_negative_has_no_sparse_view() -> None:
    method = build(CoTMAEv2)
    with torch.no_grad():
        method.backbone.output_bias_V.fill_(-100.0)
    text = COTMAE_READ.texts["passage"]
    hidden_BLD = method.backbone.hidden(text.ids_BL, text.lengths_B)
    vectors_B2D = method.both_views(hidden_BLD, text.lengths_B)
    assert torch.equal(vectors_B2D[:, 0], hidden_BLD[:, 0]) and not vectors_B2D[:, 1].any()
    total = total_of(method(method.draw(COTMAE_READ)))
    total.backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None) and total.isfinite()
