"""FLOPs as they are reckoned against FLOPs as they are counted while the real classes run.

Tolerance: 2%. A quota of masked words is rounded for each text (one word of 64 tokens is half a percent of a step here,
where the vocabulary takes much of it), and ICT's longest run in a batch is not quite the longest there could be.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from midmask.batch import Batch
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.cross_encoder import CrossEncoder, Pairs, Template
from midmask.encoders.reading import sized_settings
from midmask.encoders.representation import Representation
from midmask.estimate.methods import METHODS, Row, row_work
from midmask.estimate.ranking import finetuning_work, pair_work, text_work
from midmask.estimate.sizes import encoder_sizes, trained_parameters
from midmask.objectives import PRETRAINING, build_objective
from midmask.objectives.finetuning.contrastive import Contrastive
from tests.speed.steps import batch_for, full_rows, vocabulary
from tests.support.estimate.counted import count_flops, learn

TOLERANCE = 0.02
WORDS = vocabulary(1024)
TINY = BackboneConfig(name="tiny")
SIZES = encoder_sizes(TINY, WORDS.size)
ROWS, LENGTH = 16, 64

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
    "ict": [{"views": "crops", "remove": 1.0}],
}
CASES = [(name, {}) for name in PRETRAINING]
CASES += [(name, fields) for name, cases in VARIANTS.items() for fields in cases]


def backbone(**fields: Any) -> Backbone:
    return build_backbone(TINY.model_copy(update=fields), WORDS, seed=0)


@pytest.mark.parametrize(("name", "fields"), CASES, ids=lambda value: str(value or ""))
def test_pretraining(name: str, fields: dict[str, Any]) -> None:
    config = PRETRAINING[name].Config(**fields)
    objective = build_objective(config, backbone(), WORDS).train()
    batch = batch_for(config, WORDS, rows=ROWS, length=LENGTH)
    second = batch.texts["context"].ids_BL.shape[1] if "context" in batch.texts else 0
    reckoned = row_work(config, Row(SIZES, LENGTH, second)).times(ROWS)
    coupled = 4 * 2 * ROWS**2 * SIZES.width if "contrastive" in objective.parts else 0  # rows meet, once a batch
    assert reckoned.flops + coupled == pytest.approx(count_flops(learn(objective, batch)), rel=TOLERANCE)
    assert trained_parameters(TINY, WORDS.size, config, Representation()) == sum(
        parameter.numel() for parameter in objective.parameters()
    )


def test_every_method_of_the_table_is_reckoned_by_its_own_entry() -> None:
    assert set(METHODS) == set(PRETRAINING)


REPRESENTATIONS = {
    "dense": Representation(),
    "mean": Representation(dense="mean"),
    "splade": Representation(dense=None, lexical="splade"),
    "hybrid": Representation(width=32, lexical="logits", passage_terms=16),
}


@pytest.mark.parametrize("representation", REPRESENTATIONS.values(), ids=REPRESENTATIONS)
def test_finetuning(representation: Representation) -> None:
    encoder = backbone()
    encoder.represent_as(representation, seed=0)
    objective = build_objective(Contrastive.Config(), encoder, WORDS).train()
    texts = {"query": full_rows(8, 16, WORDS, seed=1), "passage": full_rows(32, LENGTH, WORDS, seed=2)}
    reckoned = finetuning_work(representation, SIZES, query=16, passage=LENGTH, group=4, candidates=32).times(8)
    assert reckoned.flops == pytest.approx(count_flops(learn(objective, Batch(0, texts, group=4))), rel=TOLERANCE)


@pytest.mark.parametrize("representation", REPRESENTATIONS.values(), ids=REPRESENTATIONS)
def test_encoding(representation: Representation) -> None:
    encoder = backbone().eval()
    encoder.represent_as(representation, seed=0)
    rows = full_rows(8, LENGTH, WORDS, seed=1)

    def encode() -> None:
        with torch.no_grad():
            encoder.pooling(encoder, rows.ids_BL, rows.lengths_B, WORDS.special_V, "passage")

    assert text_work(representation, SIZES, LENGTH).times(8).forward == pytest.approx(
        count_flops(encode), rel=TOLERANCE
    )


def test_a_cross_encoder() -> None:
    settings = sized_settings("tiny", 0.1)
    settings.vocab_size, settings.num_labels = WORDS.size, 1
    model = AutoModelForSequenceClassification.from_config(settings)
    encoder = CrossEncoder(model, Template((2,), (3,), (3,), None, 0), LENGTH).train()
    rows = full_rows(8, LENGTH, WORDS, seed=1)
    pairs = Pairs(rows.ids_BL, rows.lengths_B, None)

    def step() -> None:
        encoder(pairs).sum().backward()

    assert pair_work(SIZES, LENGTH).times(8).flops == pytest.approx(count_flops(step), rel=TOLERANCE)


WIDER: dict[str, Callable[[BackboneConfig], BackboneConfig]] = {
    "larger": lambda config: BackboneConfig(name="mini"),
    "with experts": lambda config: config.model_copy(update={"experts": "ffn"}),
}


@pytest.mark.parametrize("wider", WIDER.values(), ids=WIDER)
def test_parameters_of_encoders(wider: Callable[[BackboneConfig], BackboneConfig]) -> None:
    config = wider(TINY)
    real = build_backbone(config, WORDS, seed=0)
    assert encoder_sizes(config, WORDS.size).parameters == sum(one.numel() for one in real.parameters())


def test_a_published_shape_is_counted_without_its_weights() -> None:
    """BERT's base size: 85.6 million in the matrices of its layers of 12 D² each; 109.5 million with an MLM head, by
    its published shape."""
    sizes = encoder_sizes(BackboneConfig(name="base"), 30_522)
    assert sizes.matrices == 12 * 12 * 768**2
    embeddings = (30_522 + 512 + 2) * 768 + 2 * 768
    layer = 12 * 768**2 + (4 + 4 + 1) * 768 + 4 * 768
    head = 768**2 + 768 + 2 * 768 + 30_522
    assert sizes.parameters == embeddings + 12 * layer + head
