"""TSDAE and SEED-Encoder against the slow reference; TSDAE attends as the published code does."""

from functools import partial
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, BertConfig

from midmask.batch import Batch
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.objectives.pretraining.seed import SEED
from midmask.objectives.pretraining.tsdae import TSDAE
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.reference import Reference, Vectors, gelu
from tests.support.objectives.texts import UNK, batch, random_texts, token_rows

objective = partial(build, TSDAE)
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
def test_loss_and_every_gradient_equal_the_reference(ratio: float) -> None:
    tsdae = objective(deletion_ratio=ratio)
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
    tsdae = objective().eval()
    width, attention = tsdae.backbone.width, tsdae.attentions[0]
    config = BertConfig(hidden_size=width, num_attention_heads=2, is_decoder=True, add_cross_attention=True)
    config._attn_implementation = "eager"
    published = _cross_attention(config).double().eval()
    own = {"self.value": attention.value, "output.dense": attention.out, "output.LayerNorm": attention.norm}
    for name, part in own.items():
        published.get_submodule(name).load_state_dict(part.state_dict())
    published.get_submodule("output.LayerNorm").eps = tsdae.backbone.norm_eps
    states, vector = torch.randn(3, 7, width).double(), torch.randn(3, 1, width).double()
    found = published(states, encoder_hidden_states=vector)[0]
    torch.testing.assert_close(attention(states, vector), found, rtol=1e-10, atol=1e-10)


def _cross_attention(config: BertConfig) -> torch.nn.Module:
    model = AutoModelForMaskedLM.from_config(config)
    module = model.get_submodule("bert.encoder.layer.0.crossattention")
    assert isinstance(module, torch.nn.Module)
    return module


def test_words_are_deleted_whole_and_with_their_probability() -> None:
    """20,000 words: a false alarm once in a million draws of seeds."""
    text = token_rows(random_texts([100] * 200))
    left = objective().draw(Batch(0, {"passage": text})).left
    kept = int((left.lengths_B - 2).sum()) / int((text.lengths_B - 2).sum())
    words = int((text.lengths_B - 2).sum())
    assert abs(kept - 0.4) < 8 * (0.6 * 0.4 / words) ** 0.5, "words of several tokens widen it"
    for row in range(5):
        whole, rest = ids(text, row), ids(left, row)
        places = iter(whole)
        assert all(token in places for token in rest), "what is left keeps its order"


@pytest.mark.parametrize("length", [1, 2, 3])
def test_one_word_stays_of_the_shortest_texts(length: int) -> None:
    drawn = objective(deletion_ratio=0.999).draw(batch(random_texts([length] * 50)))
    assert int(drawn.left.lengths_B.min()) == 3


def test_layers_that_are_not_berts_are_refused() -> None:
    words = objective().vocabulary(torch.device("cpu"))
    shape = build_backbone(BackboneConfig(name="tiny"), words, seed=0).shape
    with pytest.raises(UserError, match="layers of modernbert are not BERT's"):
        TSDAE.Config().check(shape.__class__(**{**vars(shape), "family": "modernbert"}))


VARIANTS: dict[str, dict[str, Any]] = {
    "three layers, span 2": {},
    "one layer, span 8": {"decoder_layers": 1, "window": 8, "decoder_weight": 0.9},
    "whole words": {"encoder_mask": "word", "encoder_mask_ratio": 0.5, "decoder_layers": 1, "window": None},
}


build_seed = partial(build, SEED)
SEED_READ = batch([*random_texts([20, 4, 15]), [UNK, 9, UNK, 12]])


@pytest.mark.parametrize("variant", VARIANTS)
def test_seed_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    seed = build_seed(**VARIANTS[variant])
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
