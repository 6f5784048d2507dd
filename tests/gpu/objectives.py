"""Cases of all objectives: the loss by part and the norm of each weight's gradient, and what is drawn for them.

Texts have different lengths, so that padding is met, and pairs of spans have a phrase in common. Dropout is off. What
is drawn is compared by itself, and the losses are those of the reference's draw: a generator's guess that falls on the
other side of a rounding error would change a text.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.cross_encoder import build_cross_encoder
from midmask.encoders.seq2seq import build_seq2seq
from midmask.identity import override
from midmask.layers import recompute_layers
from midmask.objectives import FINETUNING, PRETRAINING, Objective, build_objective
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.randomness.masks import row_keys
from midmask.randomness.torch_seeds import torch_stream
from midmask.vocabulary import Vocabulary
from tests.gpu.compared import Case, Numbers, Where
from tests.support.objectives import ranked
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows

VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "retromae": ({"decoding": "basic"}, {"query_stream": "embedding", "decoder_masks": "independent"}),
    "dupmae": ({"bow_head": "projection", "pool_masked": True},),
    "lexmae": ({"bottleneck": "saturated"}, {"bottleneck": "cls"}),
    "mlm_cls_tf": ({"tf_head": "linear"},),
    "cotmote": ({"decoding": "together"},),
    "simcse": ({"mlm_weight": 0.1},),
    "diffcse": ({"guesses": "likeliest"},),
}
"""Settings of an objective whose code differs from that of its defaults."""

EXPERTS = {"cotmote": "ffn", "laprador": "all"}
"""Objectives that are also tried with an encoder whose two sides have weights of their own."""

GENERATORS = ("simlm", "diffcse")
LOSS_FP32, PRETRAINING_BF16, RANKING_BF16 = 1e-4, 0.05, 0.2
GUESSES = 0.02
"""Share of a generator's guesses that a rounding error may change; no other draw may differ at all."""

PASSAGES, CONTEXTS = [30, 3, 12, 21, 26, 9, 17, 24], [19, 22, 16, 28, 11, 25, 14, 20]
PHRASE = slice(1, 8)
TEACHER_GROUP = 3

CPU = Where(torch.device("cpu"))

Build = Callable[[], tuple[Objective, Batch]]
"""An objective on the CPU in float32, always with the same weights, and a batch for it."""


def objective_cases(folder: Path) -> Iterator[Case]:
    """Losses and draws of every objective of the tables, and of the models that are trained beside encoders.

    Args:
        folder: where a tokenizer is, as `write_tokenizer` leaves it.
    """
    for name in PRETRAINING:
        for fields in ({}, *VARIANTS.get(name, ())):
            build = partial(pretraining, name, fields)
            yield from _cases(_named(name, fields), build, PRETRAINING_BF16, guesses=name in GENERATORS)
        if name in EXPERTS:
            build = partial(pretraining, name, {}, experts=EXPERTS[name])
            yield from _cases(f"{name}, experts {EXPERTS[name]}", build, PRETRAINING_BF16)
    yield from _cases("retromae, layers computed again", computed_again, PRETRAINING_BF16)
    for representation in ranked.REPRESENTATIONS:
        yield from _cases(f"contrastive, {representation}", partial(finetuning, "contrastive", representation, {}))
    for fields in ({"loss": "soft_ce"}, {"loss": "margin_mse"}, {"ce_weight": 0.1}):
        yield from _cases(_named("distillation", fields), partial(finetuning, "distillation", "both", fields))
    flops = {"regularisers": {"query": "flops", "passage": "l1", "lambda_query": 0.1, "lambda_passage": 0.1}}
    yield from _cases("contrastive, splade, flops and l1", partial(finetuning, "contrastive", "splade", flops))
    yield from _cases("cross_encoder", partial(cross_encoder, folder))
    yield from _cases("generation", generation)


def _named(name: str, fields: dict[str, Any]) -> str:
    return ", ".join([name, *(f"{field} {value}" for field, value in fields.items())])


def _cases(name: str, build: Build, bf16: float = RANKING_BF16, *, guesses: bool = False) -> Iterator[Case]:
    yield Case("draw", name, partial(draw_numbers, build), GUESSES if guesses else 0.0, None, CPU)
    yield Case("objective", name, partial(loss_numbers, build), LOSS_FP32, bf16)


def draw_numbers(build: Build, where: Where) -> Numbers:
    """All tensors of what an objective draws, those of floating point among them."""
    objective, batch = build()
    return dict(_tensors("", where.put(objective).draw(where.put(batch))))


def loss_numbers(build: Build, where: Where) -> Numbers:
    """The mean of each part with its weight, their sum, the gradient's norm of each weight and of all."""
    objective, batch = build()
    drawn = objective.draw(batch)
    objective, drawn = where.put(objective), where.put(drawn)
    counts = objective.counts(drawn)
    with where.autocast():
        loss = objective(drawn)
    parts = (part.weight * part.total / counts[name].clamp(min=1) for name, part in loss.parts.items())
    total = loss.total(counts)
    total.backward()
    norms = [parameter.grad.norm() for parameter in objective.parameters() if parameter.grad is not None]
    if not norms or not float(total.detach()):
        raise ValueError("a loss of 0, or one without gradient, compares nothing")
    gradient = torch.stack(norms)
    return {"parts": torch.stack(list(parts)), "total": total, "gradients": gradient, "gradient": gradient.norm()}


def _tensors(path: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors within a value of dataclasses and tuples, by their paths."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            yield from _tensors(f"{path}.{number}", part)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors(f"{path}.{name}", getattr(value, name))


def pretraining(name: str, fields: dict[str, Any], **encoder: Any) -> tuple[Objective, Batch]:
    """A middle training on two layers, and a batch of the rows that it reads."""
    config, words = override(PRETRAINING[name].Config(), fields), small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", **encoder), words, seed=3)
    objective = _with_noise(build_objective(config, backbone, words, seed=5))
    return objective, Batch(0, pretraining_texts(config.reads()))


def computed_again() -> tuple[Objective, Batch]:
    """Layers are computed again while the model trains alone; here without dropout."""
    objective, batch = pretraining("retromae", {}, dropout=0.0)
    recompute_layers(objective.backbone)
    return objective.train(), batch


def _with_noise(objective: Objective) -> Objective:
    """Noise on the weights tells texts apart, as training does: fresh encoders give all texts nearly one vector, whose
    differences are rounding errors. Dropout is off.
    """
    generator = torch_stream(11)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return objective.eval()


def pretraining_texts(reads: Any) -> dict[str, TokenRows]:
    """Passages of 3 to 30 tokens; beside them spans or pseudo-queries that share seven tokens with their passages."""
    passages, contexts = random_texts(PASSAGES, seed=1), random_texts(CONTEXTS, seed=2)
    for passage, context in zip(passages, contexts, strict=True):
        context[PHRASE] = (passage * 3)[PHRASE]
    keys = row_keys(7, 0, np.arange(len(PASSAGES)))
    texts = {"passage": token_rows(passages, keys=keys)}
    if reads.rows in ("spans", "pseudo_queries"):
        texts["context"] = token_rows(contexts, keys=keys)
    if reads.term_weights:
        texts = {name: _weighted(text) for name, text in texts.items()}
    return texts


def _weighted(text: TokenRows) -> TokenRows:
    return replace(text, weights_BL=torch.rand(text.ids_BL.shape, generator=torch_stream(4)))


def finetuning(name: str, representation: str, fields: dict[str, Any]) -> tuple[Objective, Batch]:
    """A loss of fine-tuning with one of the representations of the tests, and four queries of three passages each."""
    built = ranked.build(FINETUNING[name].Config.model_validate(fields), ranked.REPRESENTATIONS[representation])
    return built.float().eval(), ranked.batch(progress=0.5)


def cross_encoder(folder: Path) -> tuple[Objective, Batch]:
    """A cross-encoder with a fresh head, and lists of three passages; texts are of the tokenizer's forty tokens. The
    longest pair is cut, since a GPU doesn't look how long the longest is and pads all rows to the limit.
    """
    config = ListwiseRanking.Config(max_length=20, r_drop=0.5)
    encoder = build_cross_encoder(BackboneConfig(name="tiny"), folder, max_length=config.max_length, seed=3)
    queries, passages = random_texts([4, 3, 5, 2], 40, seed=1), random_texts([8, 16, 9, 5] * TEACHER_GROUP, 40, seed=2)
    texts = {"query": token_rows(queries), "passage": token_rows(passages)}
    return _with_noise(ListwiseRanking(config, encoder, Vocabulary.of(folder))), Batch(0, texts, TEACHER_GROUP)


def generation() -> tuple[Objective, Batch]:
    """An encoder-decoder, and a passage for each query."""
    config, words = QueryGeneration.Config(decoder_layers=2), small_vocabulary()
    model = build_seq2seq(BackboneConfig(name="tiny"), words, decoder_layers=config.decoder_layers, seed=3)
    texts = {"query": token_rows(ranked.QUERIES), "passage": token_rows(ranked.PASSAGES[:4])}
    return _with_noise(QueryGeneration(config, model, words)), Batch(0, texts)
