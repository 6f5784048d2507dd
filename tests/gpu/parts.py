"""Cases of the parts that objectives are made of: masks, vocabulary heads, encoders of every family; and of what
follows a training: encoding and search.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from midmask.batch import TokenRows
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.folder import save_bi_encoder
from midmask.heads import linear_column_max, linear_cross_entropy
from midmask.masking import corrupt, only, select_highest, select_tokens, select_words, visibility, word_runs
from midmask.masking.phrases import recurring
from midmask.objectives.pretraining.bag_of_words import bag_of_words
from midmask.randomness.masks import Purpose, fingerprints, rekey
from midmask.randomness.streams import numpy_stream
from midmask.randomness.torch_seeds import torch_stream
from midmask.retrieve.models import open_encoder
from midmask.retrieve.vectors import Encoding, encode_rows
from midmask.retrieve.views import Views
from midmask.vocabulary import Vocabulary
from tests.gpu.compared import Case, Numbers, Where
from tests.gpu.search import dense_rows, search
from tests.support.encoders.models import VARIANTS, random_model
from tests.support.objectives import ranked
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows

CPU = Where(torch.device("cpu"))
HEAD_FP32, HEAD_BF16 = 1e-4, 0.05
STATE_FP32, STATE_BF16 = 1e-4, 0.3
LENGTHS = [3, 24, 9, 17, 30, 12]
FOUND = 5
"""Passages that a search looks for."""

Mask = Callable[[TokenRows, TokenRows, Vocabulary], Tensor]

MASKS: Mapping[str, Mask] = {
    "whole words": lambda text, _, words: select_words(text, words, ratio=0.3, purpose=Purpose.SELECT),
    "whole words without [UNK]": lambda text, _, words: select_words(
        text, words, ratio=0.15, purpose=Purpose.SELECT, count_specials=False, unknown="skipped"
    ),
    "tokens": lambda text, _, words: select_tokens(text, words, ratio=0.15, purpose=Purpose.SELECT),
    "exactly by weight": lambda text, _, words: select_highest(text, words, ratio=0.3, purpose=Purpose.SELECT),
    "corruption": lambda text, _, words: corrupt(text, text.ids_BL > 0, words),
    "visibility": lambda text, _, words: visibility(text, words, ratio=0.5, independent=False),
    "visibility, independent": lambda text, _, words: visibility(text, words, ratio=0.5, independent=True),
    "runs of words": lambda text, _, words: word_runs(text, words, shortest=0.1, longest=0.5),
    "texts without tokens": lambda text, _, words: only(text, text.ids_BL % 2 == 0, words).ids_BL,
    "recurring phrases": lambda text, other, words: recurring(text, other, words, 2, 10),
    "bags of words": lambda text, _, words: torch.stack(
        [bag_of_words(text, words).ids_BL, bag_of_words(text, words).counts_BL]
    ),
    "hashes of texts": lambda text, _, words: fingerprints(text),
    "keys drawn anew": lambda text, _, words: rekey(text).keys_B,
}
"""Every mask and every other draw, of a text, another one with some of its tokens, and their vocabulary."""


def mask_cases() -> Iterator[Case]:
    for name, draw in MASKS.items():
        yield Case("mask", name, partial(mask_numbers, draw), 0.0, None, CPU)


def mask_numbers(draw: Mask, where: Where) -> Numbers:
    text, words = token_rows(random_texts(LENGTHS)), small_vocabulary()
    text = replace(text, weights_BL=torch.rand(text.ids_BL.shape, generator=torch_stream(4)))
    other = replace(text, ids_BL=text.ids_BL.roll(1, 1))
    return {"drawn": draw(*where.put((text, other, words)))}


def head_cases() -> Iterator[Case]:
    yield Case("head", "cross-entropy", cross_entropy_numbers, HEAD_FP32, HEAD_BF16)
    yield Case("head", "column maximum", column_max_numbers, HEAD_FP32, HEAD_BF16)


def _head_inputs(where: Where, *sizes: int) -> tuple[Tensor, Tensor, Tensor]:
    """States, and the matrix and bias of a head of 1,000 entries, all with gradients."""
    generator = torch_stream(5)
    shapes = (sizes, (1000, sizes[-1]), (1000,))
    hidden, weight_VD, bias_V = (
        where.put(torch.randn(shape, generator=generator)).requires_grad_() for shape in shapes
    )
    return hidden, weight_VD, bias_V


def cross_entropy_numbers(where: Where) -> Numbers:
    inputs = _head_inputs(where, 50, 32)
    labels_R = where.put(torch.randint(1000, (50,), generator=torch_stream(6)))
    with where.autocast():
        total = linear_cross_entropy(*inputs, labels_R)
    return _with_gradients(total, total, inputs)


def column_max_numbers(where: Where) -> Numbers:
    """Rows of 20 positions, of which some are not pooled, and one row that pools nothing."""
    inputs = _head_inputs(where, 4, 20, 32)
    pooled_BL = torch.rand(4, 20, generator=torch_stream(6)) < 0.7
    pooled_BL[2] = False
    with where.autocast():
        highest_BV = linear_column_max(*inputs, where.put(pooled_BL))
    return _with_gradients(highest_BV, highest_BV.square().sum(), inputs)


def _with_gradients(result: Tensor, total: Tensor, inputs: tuple[Tensor, ...]) -> Numbers:
    total.backward()
    gradients = [tensor.grad.norm() for tensor in inputs if tensor.grad is not None]
    return {"result": result, "gradients": torch.stack(gradients)}


def encoder_cases() -> Iterator[Case]:
    """Hidden states, the first token's by itself, embeddings and logits of every family of encoders."""
    for variant in VARIANTS:
        yield Case("encoder", variant, partial(encoder_numbers, variant), STATE_FP32, STATE_BF16)


@torch.no_grad()
def encoder_numbers(variant: str, where: Where) -> Numbers:
    backbone = where.put(Backbone(random_model(variant), dropout=0.0).eval())
    text = where.put(token_rows(random_texts(LENGTHS, 40)))
    with where.autocast():
        hidden_BLD = backbone.hidden(text.ids_BL, text.lengths_B)
        first_BD = backbone.first(text.ids_BL, text.lengths_B)
        logits_BLV = backbone.transform(hidden_BLD) @ backbone.output_weight_VD.t()
        embedded_BLD = backbone.embed(text.ids_BL)
    real_BL = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device) < text.lengths_B[:, None]
    states = {"hidden": hidden_BLD, "logits": logits_BLV, "embedded": embedded_BLD}
    return {"first": first_BD, **{name: state[real_BL] for name, state in states.items()}}


def retrieval_cases(folder: Path) -> Iterator[Case]:
    """Encoding and search with every kind of representation, an encoder with experts among them.

    Args:
        folder: where a tokenizer is; encoders are saved beside it.
    """
    for name in ranked.REPRESENTATIONS:
        compute = partial(encoding_numbers, folder, name, "none")
        yield Case("encoding", name, compute, STATE_FP32, STATE_BF16, CPU)
    compute = partial(encoding_numbers, folder, "both", "ffn")
    yield Case("encoding", "both, experts ffn", compute, STATE_FP32, STATE_BF16, CPU)
    for name in ("cls", "splade", "both"):
        compute = partial(search_numbers, folder, name)
        yield Case("search", name, compute, STATE_FP32, STATE_BF16, CPU)


def encoding_numbers(folder: Path, name: str, experts: str, where: Where) -> Numbers:
    """The views of queries and passages."""
    found = (
        ("query", _views(folder, name, experts, "query", where)),
        ("passage", _views(folder, name, experts, "passage", where)),
    )
    return {f"{side}, {key}": value for side, views in found for key, value in _numbers(views).items()}


def search_numbers(folder: Path, name: str, where: Where) -> Numbers:
    """The best scores of queries that are encoded and searched there; on the CPU the products are in float64."""
    dtype = torch.float64 if where == CPU else torch.float32
    sides = (_views(folder, name, "none", side, where) for side in ("query", "passage"))
    return {"scores": search(*sides, FOUND, where.device, dtype)[0].double()}


def _views(folder: Path, name: str, experts: str, side: str, where: Where) -> Views:
    model = _saved(folder, name, experts)
    words = Vocabulary.of(folder)
    encoder = open_encoder(model, words, "query" if side == "query" else "passage", str(where.device))
    draw = numpy_stream(8 if side == "query" else 9)
    lengths = draw.integers(3, 24, 12)
    rows = [np.array([words.cls_id, *draw.integers(5, words.size, length), words.sep_id]) for length in lengths]
    precision = "bf16" if where.precision == "bf16" else "fp32"
    return encode_rows(
        encoder, rows, Encoding(words.pad_id, batch_tokens=128, device=str(where.device), precision=precision)
    )


def _saved(folder: Path, name: str, experts: str) -> Path:
    """The folder of an encoder with this representation, written once."""
    place = folder / "models" / f"{name} {experts}".replace(" ", "-")
    if not place.exists():
        config = BackboneConfig.model_validate({"name": "tiny", "dropout": 0.0, "experts": experts})
        backbone = build_backbone(config, Vocabulary.of(folder), seed=3)
        backbone.represent_as(ranked.REPRESENTATIONS[name], seed=4)
        generator = torch_stream(11)
        with torch.no_grad():
            for parameter in backbone.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
        place.mkdir(parents=True)
        save_bi_encoder(backbone, place, folder, max_length=32)
    return place


def _numbers(views: Views) -> Numbers:
    found = {} if views.dense_ND is None else {"dense": torch.from_numpy(views.dense_ND)}
    if views.lexical is not None:
        found["lexical"] = dense_rows(views.lexical)
    if views.late is not None:
        records = views.late.records_T
        decoded = records["scale"][:, None] * records["codes"].astype(np.float32)
        found["late"] = torch.from_numpy(np.ascontiguousarray(decoded))
    return found
