"""TSDAE against the slow reference, and against the attention that the published code has."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, BertConfig

from midmask.batch import Batch
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.objectives.pretraining.tsdae import TSDAE
from tests.support.objectives import two_sided
from tests.support.objectives.reference import Reference, Vectors, gelu
from tests.support.objectives.texts import UNK, random_texts, token_rows


def objective(**fields: Any) -> TSDAE:
    built = two_sided.build(TSDAE.Config(), fields)
    assert isinstance(built, TSDAE)
    return built


def batch() -> Batch:
    return Batch(0, {"passage": token_rows([*random_texts([20, 4, 15]), [UNK, 9, UNK, 12]])})


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
    tsdae, read = objective(deletion_ratio=ratio), batch()
    drawn = tsdae.draw(batch())
    reference = Reference(tsdae, heads=2, layers=2, pad_id=0)
    terms: Vectors = []
    for row in range(4):
        text = two_sided.ids(read.texts["passage"], row)
        vector = reference.encode(two_sided.ids(drawn.left, row))[0]
        states = decoded(reference, text, vector)
        terms += [reference.surprise(states[i], text[i + 1]) for i in range(len(text) - 1)]
    two_sided.assert_equal(tsdae, drawn, reference, {"decoder_clm": (1.0, terms)})


def test_attention_over_one_vector_is_that_of_the_published_decoder() -> None:
    """BERT's own cross-attention, with queries and keys, as the published code builds its decoder."""
    torch.manual_seed(0)
    tsdae = objective().double().eval()
    width, attention = tsdae.backbone.width, tsdae.attentions[0]
    config = BertConfig(hidden_size=width, num_attention_heads=2, is_decoder=True, add_cross_attention=True)
    config._attn_implementation = "eager"
    published = _cross_attention(config).double().eval()
    own = {"self.value": attention.value, "output.dense": attention.out, "output.LayerNorm": attention.norm}  # type: ignore[union-attr]
    for name, part in own.items():
        published.get_submodule(name).load_state_dict(part.state_dict())  # type: ignore[union-attr]
    published.get_submodule("output.LayerNorm").eps = tsdae.backbone.norm_eps  # type: ignore[assignment]
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
        whole, rest = two_sided.ids(text, row), two_sided.ids(left, row)
        places = iter(whole)
        assert all(token in places for token in rest), "what is left keeps its order"


@pytest.mark.parametrize("length", [1, 2, 3])
def test_one_word_stays_of_the_shortest_texts(length: int) -> None:
    read = Batch(0, {"passage": token_rows(random_texts([length] * 50))})
    drawn = objective(deletion_ratio=0.999).draw(read)
    assert int(drawn.left.lengths_B.min()) == 3


def test_sums_do_not_depend_on_how_a_batch_is_cut() -> None:
    two_sided.assert_sums_survive_cutting(objective(), batch())


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int) -> None:
    two_sided.assert_finite(objective(), Batch(0, {"passage": token_rows(random_texts([length, 6]))}))


def test_health_compares_with_and_without_the_vector() -> None:
    tsdae = objective().eval()
    with torch.no_grad():
        health = tsdae.health(tsdae.draw(batch()))
    assert set(health) == {"decoder_loss", "decoder_loss_without_vector"}
    assert abs(health["decoder_loss"] - health["decoder_loss_without_vector"]) > 1e-6


def test_layers_that_are_not_berts_are_refused() -> None:
    words = objective().vocabulary(torch.device("cpu"))
    shape = build_backbone(BackboneConfig(name="tiny"), words, seed=0).shape
    with pytest.raises(UserError, match="layers of modernbert are not BERT's"):
        TSDAE.Config().check(shape.__class__(**{**vars(shape), "family": "modernbert"}))
