"""Every family of backbones, in its published variants, against the Hugging Face model that it wraps; steps of every
method on a BERT, of MLM on every family, and what is refused (all on all: tests/system/objectives).
"""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from midmask.core.batch import TokenRows
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone, load_backbone, shape_of
from midmask.encoders.cross_encoder import CrossEncoder, Pairs, Template
from midmask.encoders.families import FAMILIES
from midmask.encoders.seq2seq import build_seq2seq
from midmask.objectives.decoders import DecoderPositions, decoder_input
from midmask.retrieve.text_encoder import load_base_model
from tests.support.encoders.methods import METHODS, REFUSED, assert_steps
from tests.support.encoders.models import VARIANTS, random_model
from tests.support.objectives.texts import small_vocabulary

IDS = torch.tensor(
    [[2, 6, 7, 20, 8, 3, 0, 0, 0, 0], [2, 9, 10, 11, 12, 13, 14, 15, 30, 3], [2, 6, 3, 0, 0, 0, 0, 0, 0, 0]]
)
LENGTHS = torch.tensor([6, 10, 3])
SEEN = torch.arange(10) < LENGTHS[:, None]
INPUTS = {"input_ids": IDS, "attention_mask": SEEN.long()}
CLOSE = {"rtol": 1e-6, "atol": 1e-6}
NO_TABLE = [name for name in VARIANTS if name.startswith(("deberta", "modernbert")) and "with positions" not in name]
NARROW = [name for name in VARIANTS if "narrow" in name]


def wrapped(variant: str) -> Backbone:
    return Backbone(random_model(variant), dropout=0.0).eval()


def test_the_variants_cover_all_families() -> None:
    assert {name.partition(",")[0] for name in VARIANTS} == set(FAMILIES)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_states_and_logits_equal_hugging_faces(variant: str) -> None:
    backbone, theirs = wrapped(variant), random_model(variant)(**INPUTS, output_hidden_states=True)
    for layer in range(backbone.layers + 1):
        last, at_layer = backbone.hidden_and_layer(IDS, LENGTHS, layer)
        torch.testing.assert_close(at_layer[SEEN], theirs.hidden_states[layer][SEEN], **CLOSE)
    torch.testing.assert_close(last, at_layer, rtol=0, atol=0)
    torch.testing.assert_close(backbone.hidden(IDS, LENGTHS)[SEEN], theirs.hidden_states[-1][SEEN], **CLOSE)
    torch.testing.assert_close(backbone.embed(IDS)[SEEN], theirs.hidden_states[0][SEEN], **CLOSE)
    logits = backbone.transform(last) @ backbone.output_weight_VD.t() + backbone.output_bias_V
    torch.testing.assert_close(logits[SEEN], theirs.logits[SEEN], **CLOSE)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = backbone.hidden(IDS[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(alone[0], last[row, :length], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", FAMILIES)
def test_every_family_computes_in_bf16_as_in_fp32(variant: str) -> None:
    """As a training on a GPU does; transformers' first DeBERTa raises there."""
    backbone = wrapped(variant)
    with torch.autocast("cpu", torch.bfloat16):
        states = backbone.hidden(IDS, LENGTHS)[SEEN]
    expected = backbone.hidden(IDS, LENGTHS)[SEEN]
    assert 0 < (states - expected).norm() < 0.03 * expected.norm()
    states.float().square().sum().backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in backbone.parameters() if weight.grad is not None)


def test_deberta_computes_in_bf16_for_a_search_a_teacher_and_a_generator(tmp_path: Path) -> None:
    random_model("deberta").save_pretrained(tmp_path)
    classifier = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(tmp_path))
    teacher = CrossEncoder(classifier, Template((2,), (3,), (3,), None, 0), max_length=10)
    words = small_vocabulary(40)
    writer = build_seq2seq(BackboneConfig(name=str(tmp_path)), words, decoder_layers=1, seed=0)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert load_base_model(tmp_path)(**INPUTS).last_hidden_state.isfinite().all()
        assert teacher(Pairs(IDS, LENGTHS, None)).isfinite().all()
        assert writer(TokenRows(IDS, LENGTHS, LENGTHS), IDS[:, :4]).isfinite().all()


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_a_saved_folder_loads_in_hugging_face_and_here(variant: str, tokenizer_folder: Path, tmp_path: Path) -> None:
    wrapped(variant).save(tmp_path, tokenizer_folder)
    hidden = random_model(variant)(**INPUTS, output_hidden_states=True).hidden_states[-1]
    again = load_backbone(tmp_path, dropout=0.0).eval()
    for other in (
        AutoModel.from_pretrained(tmp_path).eval()(**INPUTS)[0],
        AutoModelForMaskedLM.from_pretrained(tmp_path).eval()(**INPUTS, output_hidden_states=True).hidden_states[-1],
        again.hidden(IDS, LENGTHS),
    ):
        torch.testing.assert_close(other[SEEN], hidden[SEEN], rtol=1e-5, atol=1e-5)
    assert {path.suffix for path in tmp_path.iterdir()} <= {".json", ".txt", ".safetensors"}
    assert again.shape == shape_of(BackboneConfig(name=str(tmp_path), dropout=0.0))
    torch.testing.assert_close(again.output_bias_V, wrapped(variant).output_bias_V)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_shape_and_embedding_parts_fit_together(variant: str) -> None:
    """What a method may ask of the embeddings is what the shape says, as wide as the hidden states."""
    backbone = wrapped(variant)
    shape = backbone.shape
    assert (shape.has_positions, shape.embedding_width) == (variant not in NO_TABLE, 16 if variant in NARROW else 32)
    assert shape.embeds_streams == (variant not in NO_TABLE and variant not in NARROW)
    assert backbone.output_weight_VD.shape == (40, shape.embedding_width) and backbone.output_bias_V.shape == (40,)
    assert backbone.word_embeddings_VD.shape == (40, 32) and backbone.heads == 4
    assert (shape.layers, backbone.feed_forward) == (4 if variant.startswith("modernbert") else 2, 48)
    if not shape.has_positions:
        with pytest.raises(ValueError, match=rf"a {shape.family} backbone has no table"):
            backbone.positions(8)
    if shape.embeds_streams:
        embedded = backbone.embed_stream(backbone.word_embeddings_VD[IDS])
        torch.testing.assert_close(embedded[SEEN], backbone.embed(IDS)[SEEN], **CLOSE)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in NO_TABLE])
@torch.no_grad()
def test_words_and_positions_add_up_to_what_is_normed_or_projected(variant: str) -> None:
    backbone = wrapped(variant)
    module = backbone.encoder.embeddings
    kind = getattr(module, "token_type_embeddings", None)
    ids = IDS[1:2]
    if variant == "electra, narrow words":  # its norm stands before the projection, so that the sum is not seen
        project = backbone.encoder.embeddings_project
        expected = project(module.word_embeddings(ids) + module.position_embeddings.weight[:10])
        return torch.testing.assert_close(backbone.word_embeddings_VD[ids] + backbone.positions(10), expected, **CLOSE)
    summed = backbone.word_embeddings_VD[ids] + backbone.positions(10)
    if kind is not None:
        first = kind.weight[0]
        summed = summed + (module.embed_proj(first) if variant in NARROW else first)
    torch.testing.assert_close(module.LayerNorm(summed), backbone.embed(ids), **CLOSE)
    return None


@pytest.mark.parametrize("variant", ["bert", "modernbert", "deberta-v2"])
def test_a_decoder_knows_places_on_every_backbone(variant: str) -> None:
    """A text of one repeated token: its places are told apart only by a table, the backbone's or the decoder's."""
    backbone = wrapped(variant)
    positions = DecoderPositions(backbone)
    assert [name for name, _ in positions.named_parameters()] == (["table"] if variant in NO_TABLE else [])
    ids, vector = torch.full((2, 9), 7), torch.randn(2, 1, 32)
    read = decoder_input(backbone, positions, vector, ids)
    assert torch.equal(read[:, :1], vector)
    assert len({tuple(row) for row in read[0, 1:].tolist()}) == 8
    rows = positions(backbone, 9)
    assert len({tuple(row) for row in rows.tolist()}) == 9
    if variant not in NO_TABLE:
        assert torch.equal(rows, backbone.positions(9)) and torch.equal(read[:, 1:], backbone.embed(ids)[:, 1:])
    else:
        torch.testing.assert_close(read[:, 1:] - backbone.embed(ids)[:, 1:], rows[1:].expand(2, 8, 32))


@pytest.mark.parametrize("variant", ["bert", "modernbert", "deberta, published head"])
def test_fresh_weights_have_the_named_models_shape_and_depend_on_the_seed_alone(variant, vocabulary, tmp_path) -> None:
    trained = random_model(variant)
    trained.save_pretrained(tmp_path)

    def fresh(seed: int) -> dict[str, torch.Tensor]:
        config = BackboneConfig(name=str(tmp_path), fresh=True, dropout=0.0)
        return build_backbone(config, vocabulary, seed=seed).model.state_dict()

    first, again, other = fresh(4), fresh(4), fresh(5)
    shapes = [{name: tensor.shape for name, tensor in each.items()} for each in (first, trained.state_dict())]
    assert shapes[0] == shapes[1]
    words = next(name for name in first if name.endswith(("word_embeddings.weight", "tok_embeddings.weight")))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first[words], other[words]) and not torch.equal(first[words], trained.state_dict()[words])
    assert abs(float(first[words].std()) - 0.02) < 0.004


PAIRS = [*((method, "bert") for method in METHODS), *(("mlm", variant) for variant in VARIANTS), *REFUSED]


@pytest.mark.parametrize(("method", "variant"), sorted(set(PAIRS)))
def test_a_step_is_finite_or_refused_beforehand(method: str, variant: str) -> None:
    assert_steps(method, variant)
