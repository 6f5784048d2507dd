"""FLOPs and memory of every objective, each way of scoring and each precision, against real tensors."""

from itertools import product
from typing import Any

import pytest
import torch

from midmask.encoders.representation import Representation
from midmask.estimate.counting import count_encoding
from midmask.objectives import FINETUNING, PRETRAINING
from midmask.objectives.sample import full_rows
from tests.support.estimate.counted import (
    LENGTH,
    TINY,
    WORDS,
    V,
    backbone,
    count_flops,
    finetuning_step,
    kept_by_step,
    learn,
    pretraining_step,
)

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
REPRESENTATIONS = {
    "dense": Representation(),
    "mean": Representation(dense="mean"),
    "splade": Representation(dense=None, lexical="splade"),
    "hybrid": Representation(width=32, lexical="logits", passage_terms=16),
    "late": Representation(dense=None, tokens=32),
}


@pytest.mark.parametrize(
    ("name", "fields"), [(name, fields) for name in PRETRAINING for fields in ({}, *VARIANTS.get(name, ()))], ids=str
)
def test_flops_of_pretraining(name, fields):
    """A quota of masked words is rounded for each text; Spider's longest window, a quarter of a row, is drawn."""
    own, objective, batch = pretraining_step(name, fields)
    within = 0.05 if name == "spider" else 0.01
    assert own.flops(16) == pytest.approx(count_flops(learn(objective, batch)), rel=within)
    assert own.parameters == sum(parameter.numel() for parameter in objective.parameters()) and own.is_whole


@pytest.mark.parametrize("name", FINETUNING)
@pytest.mark.parametrize("scored", REPRESENTATIONS)
def test_flops_of_finetuning(scored, name):
    own, objective, batch = finetuning_step(name, REPRESENTATIONS[scored])
    assert own.flops(8) == pytest.approx(count_flops(learn(objective, batch)), rel=0.01)


@pytest.mark.parametrize("scored", REPRESENTATIONS)
def test_flops_of_encoding(scored):
    encoder, rows = backbone().eval(), full_rows(8, LENGTH, WORDS, seed=1)
    encoder.represent_as(REPRESENTATIONS[scored], seed=0)

    def encode() -> None:
        with torch.no_grad():
            encoder.pooling(encoder, rows.ids_BL, rows.lengths_B, WORDS.special_V, "passage")

    assert 8 * count_encoding(REPRESENTATIONS[scored], TINY, V, LENGTH) == pytest.approx(count_flops(encode))


@pytest.mark.parametrize(
    ("name", "size", "dropout", "bf16"),
    [*product(PRETRAINING, ["tiny"], [0.1], [False]), *product(["mlm"], ["tiny", "mini"], [0.0, 0.1], [False, True]),
     *product(["dupmae", "cotmote"], ["tiny"], [0.1], [True])],
)  # fmt: skip
def test_memory_of_a_step(name, size, dropout, bf16):
    """Inverse cloze and Spider draw the lengths of their pieces, and of a larger batch the longest is longer."""
    within = 0.1 if name in ("ict", "laprador", "spider") else 0.01
    assert kept_by_step(name, size, dropout, bf16=bf16) == pytest.approx(1, abs=within)
