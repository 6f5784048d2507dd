"""FLOPs as they are counted on tensors without numbers, against formulas worked out by hand and against what is counted
while the real classes run on real numbers.

Tolerance: 1%. A quota of masked words is rounded for each text, and ICT's longest run in a batch is drawn by chance.
Spider's longest window too, which is a quarter of a row: 5%.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.cross_encoder import CrossEncoder, Pairs, Template
from midmask.encoders.reading import sized_settings
from midmask.encoders.representation import Representation
from midmask.estimate.counting import Counted, Row, count_encoding, count_scoring, count_training
from midmask.estimate.sizes import encoder_sizes
from midmask.objectives import FINETUNING, PRETRAINING, ObjectiveConfig, build_objective
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.sample import finetuning_batch, full_rows, pretraining_batch, sample_vocabulary
from tests.support.estimate.counted import count_flops, learn

TOLERANCE = 0.01
V, D, INNER, LAYERS = 1024, 128, 512, 2
WORDS = sample_vocabulary(V)
TINY = BackboneConfig(name="tiny")
ROWS, LENGTH = 16, 64
DENSE = Representation()

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "mlm_cls_tf": [{"tf_head": "linear"}],
    "retromae": [{"decoding": "basic", "decoder_layers": 3}],
    "dupmae": [{"decode": "cls"}, {"decode": "ot"}, {"bow_head": "projection"}],
    "lexmae": [{"bottleneck": "cls"}, {"bottleneck": "saturated", "decoder_layers": 1}],
    "cotmae_v2": [{"context": "pseudo_query", "ar_layers": 2}],
    "cotmote": [
        {"decoding": "together", "query_decodes": "passage"},
        {"views": "dense", "query_decodes": "nothing"},
        {"views": "sparse", "logits": "embeddings"},
    ],
    "simcse": [{"mlm_weight": 0.1, "projection": False}],
    "diffcse": [{"guesses": "likeliest"}],
    "ict": [{"views": "crops", "remove": 1.0}],
}
CASES = [(name, {}) for name in PRETRAINING]
CASES += [(name, fields) for name, cases in VARIANTS.items() for fields in cases]


def backbone(**fields: Any) -> Backbone:
    return build_backbone(TINY.model_copy(update=fields), WORDS, seed=0)


def counted(
    config: ObjectiveConfig, row: Row, *, on: str = "tiny", size: int = V, scored: Representation = DENSE
) -> Counted:
    return count_training(config, BackboneConfig(name=on), size, scored, row, kind="cpu", bf16=False)


@pytest.mark.parametrize(("name", "fields"), CASES, ids=lambda value: str(value or ""))
def test_pretraining(name: str, fields: dict[str, Any]) -> None:
    config = PRETRAINING[name].Config(**fields)
    objective = build_objective(config, backbone(), WORDS).train()
    batch = pretraining_batch(config, WORDS, rows=ROWS, length=LENGTH)
    second = batch.texts["context"].ids_BL.shape[1] if "context" in batch.texts else 0
    own = counted(config, Row(LENGTH, second))
    tolerance = 0.05 if name == "spider" else TOLERANCE
    assert own.flops(ROWS) == pytest.approx(count_flops(learn(objective, batch)), rel=tolerance)
    assert own.parameters == sum(parameter.numel() for parameter in objective.parameters()) and own.is_whole


def test_a_generator_that_is_read_from_a_folder_is_counted_without_its_weights(tmp_path: Path) -> None:
    """It learns nothing: of the default's three forward passes and one backward it runs the two that guess."""
    backbone().model.save_pretrained(tmp_path)
    configs = [PRETRAINING["simlm"].Config(generator=name) for name in (str(tmp_path), "tiny")]
    frozen, trained = (counted(config, Row(LENGTH)) for config in configs)
    step = counted(PRETRAINING["mlm"].Config(encoder_mask_ratio=0.3), Row(LENGTH))
    assert trained.row - frozen.row == pytest.approx(step.row, rel=TOLERANCE) and frozen.is_whole
    assert trained.parameters - frozen.parameters == step.parameters


def layer(tokens: int, width: int, inner: int) -> int:
    """FLOPs of a BERT layer, forward: four matrices of attention, two of the feed-forward layer, scores and sums."""
    return 2 * (4 * width**2 + 2 * width * inner) * tokens + 4 * tokens**2 * width


def head(targets: float, width: int, vocabulary: int) -> float:
    """The MLM head: a square matrix, then the output matrix."""
    return 2 * (width + vocabulary) * width * targets


def test_a_masked_lm_of_berts_size_by_hand() -> None:
    """0.15 of 128 tokens are 19; a training step costs three forward passes."""
    config = PRETRAINING["mlm"].Config(encoder_mask_ratio=0.15)
    forward = 12 * layer(128, 768, 3072) + head(19, 768, 30_522)
    assert counted(config, Row(128), on="base", size=30_522).row == pytest.approx(3 * forward, rel=0.005)


def test_retromae_by_hand() -> None:
    """Its decoder is a layer on all tokens; each but [CLS] and [SEP] is a target."""
    config = PRETRAINING["retromae"].Config()
    masked = config.encoder_mask_ratio * LENGTH
    forward = (LAYERS + 1) * layer(LENGTH, D, INNER) + head(masked, D, V) + head(LENGTH - 2, D, V)
    assert counted(config, Row(LENGTH)).row == pytest.approx(3 * forward, rel=0.01)


def test_dupmae_names_words_from_the_tokens_by_hand() -> None:
    """The column maximum reads all positions forward, and has one winner an entry backward."""
    both, ours = (counted(PRETRAINING["dupmae"].Config(decode=decode), Row(LENGTH)) for decode in ("both", "cls"))
    transform, logits = 3 * 2 * D * D * LENGTH, 2 * V * D * LENGTH + 4 * V * D
    assert both.row - ours.row == pytest.approx(transform + logits)


def test_rows_that_meet_are_counted_as_pairs() -> None:
    """Two spans a row, each held against all spans: 4 products of B x B vectors, three times; a masked LM has none."""
    meeting, apart = (counted(PRETRAINING[name].Config(), Row(LENGTH, LENGTH)) for name in ("cocondenser", "condenser"))
    assert meeting.pair == 3 * 4 * 2 * D and meeting.first_pass == pytest.approx(2 * LAYERS * layer(LENGTH, D, INNER))
    assert (apart.pair, apart.first_pass) == (0, 0)


REPRESENTATIONS = {
    "dense": DENSE,
    "mean": Representation(dense="mean"),
    "splade": Representation(dense=None, lexical="splade"),
    "hybrid": Representation(width=32, lexical="logits", passage_terms=16),
    "late": Representation(dense=None, tokens=32),
}


@pytest.mark.parametrize("name", FINETUNING)
@pytest.mark.parametrize("representation", REPRESENTATIONS.values(), ids=REPRESENTATIONS)
def test_finetuning(representation: Representation, name: str) -> None:
    encoder, config = backbone(), FINETUNING[name].Config()
    encoder.represent_as(representation, seed=0)
    objective = build_objective(config, encoder, WORDS).train()
    batch = finetuning_batch(WORDS, queries=8, group=4, query=16, passage=LENGTH)
    own = counted(config, Row(LENGTH, 16, group=4), scored=representation)
    assert own.flops(8) == pytest.approx(count_flops(learn(objective, batch)), rel=TOLERANCE)


def test_in_batch_negatives_by_hand() -> None:
    """Each query is held against the 4 passages of every query: a product of width D, forward and twice backward."""
    assert counted(FINETUNING["contrastive"].Config(), Row(LENGTH, 16, group=4)).pair == 3 * 2 * D * 4


@pytest.mark.parametrize("representation", REPRESENTATIONS.values(), ids=REPRESENTATIONS)
def test_encoding(representation: Representation) -> None:
    encoder = backbone().eval()
    encoder.represent_as(representation, seed=0)
    rows = full_rows(8, LENGTH, WORDS, seed=1)

    def encode() -> None:
        with torch.no_grad():
            encoder.pooling(encoder, rows.ids_BL, rows.lengths_B, WORDS.special_V, "passage")

    assert 8 * count_encoding(representation, TINY, V, LENGTH) == pytest.approx(count_flops(encode))


def test_in_batch_negatives_by_tokens_by_hand() -> None:
    """16 tokens of each query with all tokens of the 4 passages of every query: forward, again, and twice backward."""
    late = counted(FINETUNING["contrastive"].Config(), Row(LENGTH, 16, group=4), scored=REPRESENTATIONS["late"])
    assert late.is_whole and late.pair == 4 * 2 * 32 * 16 * 4 * LENGTH


def test_the_vector_of_the_first_token_needs_no_other_tokens_last_layer() -> None:
    """Of the last layer: its query and output, products with all tokens' states (per head, D wide), feed-forward."""
    heads = D // 64
    last = 2 * 2 * heads * D * LENGTH + 2 * 4 * D**2 + 2 * 2 * D * INNER
    by_hand = (LAYERS - 1) * layer(LENGTH, D, INNER) + last
    assert count_encoding(DENSE, TINY, V, LENGTH) == pytest.approx(by_hand, rel=0.01)


def test_a_cross_encoder() -> None:
    """By a real one; its training reads each pair of a list, twice with R-Drop."""
    settings = sized_settings("tiny", 0.1)
    settings.vocab_size, settings.num_labels = V, 1
    model = AutoModelForSequenceClassification.from_config(settings)
    encoder = CrossEncoder(model, Template((2,), (3,), (3,), None, 0), LENGTH).train()
    rows = full_rows(8, LENGTH, WORDS, seed=1)
    pairs = Pairs(rows.ids_BL, rows.lengths_B, None)

    def step() -> None:
        encoder(pairs).sum().backward()

    forward = count_scoring(TINY, V, 16, LENGTH - 16 + 1)
    assert 8 * 3 * forward == pytest.approx(count_flops(step))
    row = Row(LENGTH - 16 + 1, 16, group=4)
    once, twice = (counted(ListwiseRanking.Config(r_drop=weight), row) for weight in (0.0, 1.0))
    assert once.row == pytest.approx(4 * 3 * forward) and twice.row == pytest.approx(2 * once.row)
    assert once.parameters == sum(parameter.numel() for parameter in model.parameters())


WIDER: dict[str, Callable[[BackboneConfig], BackboneConfig]] = {
    "larger": lambda config: BackboneConfig(name="mini"),
    "with experts": lambda config: config.model_copy(update={"experts": "ffn"}),
}


@pytest.mark.parametrize("wider", WIDER.values(), ids=WIDER)
def test_parameters_of_encoders(wider: Callable[[BackboneConfig], BackboneConfig]) -> None:
    config = wider(TINY)
    real = build_backbone(config, WORDS, seed=0)
    assert encoder_sizes(config, V).parameters == sum(one.numel() for one in real.parameters())


def test_a_published_shape_is_counted_without_its_weights() -> None:
    """BERT's base size: 109.5 million parameters with an MLM head, by its published shape."""
    embeddings = (30_522 + 512 + 2) * 768 + 2 * 768
    one = 12 * 768**2 + (4 + 4 + 1) * 768 + 4 * 768
    own_head = 768**2 + 768 + 2 * 768 + 30_522
    assert encoder_sizes(BackboneConfig(name="base"), 30_522).parameters == embeddings + 12 * one + own_head
