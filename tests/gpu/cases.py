"""What is computed on a GPU and on the CPU: encoders of every family, the loss of every objective by part with the norm
of each weight's gradient, the masks and all else that objectives draw, and encoding.

Texts have different lengths, so that padding is met, and pairs of spans have a phrase in common. Dropout is off. What
is drawn is compared by itself, and the losses are those of the reference's draw: a generator's guess that falls on the
other side of a rounding error would change a text.
"""

import atexit
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from midmask.core.batch import Batch
from midmask.core.config import override
from midmask.core.randomness import numpy_stream
from midmask.core.torch_randomness import torch_stream
from midmask.encoders.backbone import Backbone, BackboneConfig, build_backbone
from midmask.encoders.cross_encoder import build_cross_encoder
from midmask.encoders.folder import save_bi_encoder
from midmask.encoders.seq2seq import build_seq2seq
from midmask.masking.randomness import row_keys
from midmask.objectives import FINETUNING, PRETRAINING, Objective, build_objective
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.retrieve.text_encoder import open_encoder
from midmask.text.vocabulary import Vocabulary
from tests.support.encoders.models import VARIANTS, random_model, write_tokenizer
from tests.support.objectives import ranked
from tests.support.objectives.texts import random_texts, small_vocabulary, teacher_vectors, token_rows, weighted

Numbers = Mapping[str, Tensor]
"""What is compared: name -> a tensor, on whatever device."""

LEAST = 0.1
"""Numbers below this share of the largest of their tensor are compared with this share instead: a rounding error of
what is nearly 0 says nothing."""


@dataclass(frozen=True)
class Where:
    """A device, and the type of its numbers: fp64 is of weights, bf16 of the products under autocast."""

    device: torch.device
    precision: Literal["fp64", "fp32", "bf16"] = "fp32"

    def put(self, value: Any) -> Any:
        """A module or a tensor there, of that type; of a dataclass, a tuple or a dict all that it holds."""
        dtype = torch.float64 if self.precision == "fp64" else torch.float32
        if isinstance(value, nn.Module):
            return value.to(self.device, dtype)
        if isinstance(value, Tensor):
            return value.to(self.device, dtype if value.is_floating_point() else value.dtype)
        if isinstance(value, tuple):
            parts = [self.put(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, dict):
            return {key: self.put(part) for key, part in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            return type(value)(**self.put(vars(value)))
        return value

    @contextmanager
    def autocast(self) -> Iterator[None]:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            yield


CPU = Where(torch.device("cpu"))


@dataclass(frozen=True)
class Case:
    """compute: the numbers of something. fp32, bf16: the largest relative difference that is allowed between the
    reference and a device; bf16 none: whole numbers, which have no such type.
    """

    name: str
    compute: Callable[[Where], Numbers]
    fp32: float
    bf16: float | None
    reference: Where = Where(torch.device("cpu"), "fp64")

    def differences(self, device: torch.device) -> dict[str, tuple[float, float]]:
        """Precision -> the largest relative difference on the device, and what is allowed."""
        right, allowed = self.compute(self.reference), {"fp32": self.fp32, "bf16": self.bf16}
        return {
            precision: (difference(right, self.compute(Where(device, precision))), most)  # type: ignore[arg-type]
            for precision, most in allowed.items()
            if most is not None
        }


def difference(right: Numbers, found: Numbers) -> float:
    """The largest relative difference of any number; infinite for names or shapes that differ, and for NaN.

    Of two infinities or two NaNs in the same place nothing is different.
    """
    if right.keys() != found.keys():
        return math.inf
    return max((_difference(right[name], found[name]) for name in right), default=0.0)


def _difference(right: Tensor, found: Tensor) -> float:
    right, found = (tensor.detach().cpu() for tensor in (right, found))
    if right.shape != found.shape:
        return math.inf
    if not right.numel():
        return 0.0
    if not right.is_floating_point():
        return float((right != found).double().mean())
    right, found = right.double(), found.double()
    size = right.abs()
    floor = LEAST * float(size[size.isfinite()].max()) if bool(size.isfinite().any()) else 0.0
    apart = (right - found).abs() / size.clamp(min=floor or 1.0)
    same = (right == found) | (right.isnan() & found.isnan())
    return float(apart.masked_fill(same, 0.0).nan_to_num(nan=math.inf, posinf=math.inf).max())


SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {
    "retromae": ({"decoding": "basic"}, {"query_stream": "embedding", "decoder_masks": "independent"}),
    "dupmae": ({"bow_head": "projection", "pool_masked": True},),
    "lexmae": ({"bottleneck": "saturated"}, {"bottleneck": "cls"}),
    "simcse": ({"mlm_weight": 0.1},),
    "diffcse": ({"guesses": "likeliest"},),
}
"""Settings of an objective whose code differs from that of its defaults."""

EXPERTS = {"cotmote": "ffn", "laprador": "all"}
"""Objectives that are also tried with an encoder whose two sides have weights of their own."""

GENERATORS = ("simlm", "diffcse")
GUESSES = 0.02
"""Share of a generator's guesses that a rounding error may change; no other draw may differ at all."""

STATES, LOSSES, RANKINGS = (1e-4, 0.3), (1e-4, 0.05), (1e-4, 0.2)
"""Tolerances in fp32 and bf16."""

LENGTHS = [3, 24, 9, 17, 30, 12]
PASSAGES, CONTEXTS = [30, 3, 12, 21, 26, 9, 17, 24], [19, 22, 16, 28, 11, 25, 14, 20]
PHRASE = slice(1, 8)
Build = Callable[[], tuple[Objective, Batch]]
"""An objective on the CPU in float32, always with the same weights, and a batch for it."""


def all_cases() -> Iterator[Case]:
    for variant in VARIANTS:
        yield Case(f"encoder {variant}", partial(encoder_numbers, variant), *STATES)
    yield from objective_cases()
    for name, experts in [*((name, "none") for name in ranked.REPRESENTATIONS), ("both", "ffn")]:
        yield Case(f"encoding {name}, experts {experts}", partial(encoding_numbers, name, experts), *STATES, CPU)


def objective_cases() -> Iterator[Case]:
    """Losses and draws of every objective of the tables, and of the models that are trained beside encoders."""
    for name in PRETRAINING:
        for fields in ({}, *SETTINGS.get(name, ())):
            guesses = GUESSES if name in GENERATORS else 0.0
            yield from _cases(_named(name, fields), partial(pretraining, name, fields), LOSSES, guesses)
        if name in EXPERTS:
            yield from _cases(f"{name}, experts", partial(pretraining, name, {}, experts=EXPERTS[name]), LOSSES)
    flops = {"regularisers": {"query": "flops", "passage": "l1", "lambda_query": 0.1, "lambda_passage": 0.1}}
    for representation in ranked.REPRESENTATIONS:
        yield from _cases(f"contrastive, {representation}", partial(finetuning, "contrastive", representation, {}))
    yield from _cases("contrastive, splade, flops and l1", partial(finetuning, "contrastive", "splade", flops))
    for fields in ({"loss": "soft_ce"}, {"loss": "margin_mse"}, {"ce_weight": 0.1}):
        yield from _cases(_named("distillation", fields), partial(finetuning, "distillation", "both", fields))
    yield from _cases("cross_encoder", cross_encoder)
    yield from _cases("generation", generation)


def _named(name: str, fields: dict[str, Any]) -> str:
    return ", ".join([name, *(f"{field} {value}" for field, value in fields.items())])


def _cases(name: str, build: Build, tolerances: tuple[float, float] = RANKINGS, guesses: float = 0.0) -> Iterator[Case]:
    yield Case(f"draw {name}", partial(draw_numbers, build), guesses, None, CPU)
    yield Case(f"objective {name}", partial(loss_numbers, build), *tolerances)


@torch.no_grad()
def encoder_numbers(variant: str, where: Where) -> Numbers:
    """Hidden states, the first token's by itself, embeddings and logits."""
    backbone = where.put(Backbone(random_model(variant), dropout=0.0).eval())
    text = where.put(token_rows(random_texts(LENGTHS, 40)))
    with where.autocast():
        hidden_BLD = backbone.hidden(text.ids_BL, text.lengths_B)
        first_BD = backbone.first(text.ids_BL, text.lengths_B)
        logits_BLV = backbone.transform(hidden_BLD) @ backbone.output_weight_VD.t()
        embedded_BLD = backbone.embed(text.ids_BL)
    real_BL = torch.arange(text.ids_BL.shape[1], device=where.device) < text.lengths_B[:, None]
    states = {"hidden": hidden_BLD, "logits": logits_BLV, "embedded": embedded_BLD}
    return {"first": first_BD, **{name: state[real_BL] for name, state in states.items()}}


def draw_numbers(build: Build, where: Where) -> Numbers:
    """All tensors of what an objective draws, those of floating point among them."""
    objective, batch = build()
    return dict(_tensors("", where.put(objective).draw(where.put(batch))))


def _tensors(path: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors within a value of dataclasses and tuples, by their paths."""
    if isinstance(value, Tensor):
        yield path, value
        return
    parts = dict(enumerate(value)) if isinstance(value, tuple) else getattr(value, "__dict__", {})
    for name, part in parts.items():
        yield from _tensors(f"{path}.{name}", part)


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


def pretraining(name: str, fields: dict[str, Any], **encoder: Any) -> tuple[Objective, Batch]:
    """A middle training on two layers, and passages of 3 to 30 tokens; beside them, where it reads them, a teacher's
    vectors, or spans or pseudo-queries that share seven tokens with their passages.
    """
    config, words = override(PRETRAINING[name].Config(), fields), small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", **encoder), words, seed=3)
    objective, form = _with_noise(build_objective(config, backbone, words, seed=5)), config.row_form()
    passages, contexts = random_texts(PASSAGES, seed=1), random_texts(CONTEXTS, seed=2)
    for passage, context in zip(passages, contexts, strict=True):
        context[PHRASE] = (passage * 3)[PHRASE]
    keys = row_keys(7, 0, np.arange(len(PASSAGES)))
    texts = {"passage": token_rows(passages, keys=keys)}
    if form.rows in ("spans", "pseudo_queries"):
        texts["context"] = token_rows(contexts, keys=keys)
    teacher = None if form.teacher is None else teacher_vectors(form.teacher, len(PASSAGES))
    texts = {key: weighted(one) if form.term_weights else one for key, one in texts.items()}
    return objective, Batch(0, texts, teacher=teacher)


def _with_noise(module: Any) -> Any:
    """Noise on the weights tells texts apart, as training does: fresh encoders give all texts nearly one vector, whose
    differences are rounding errors. Dropout is off.
    """
    generator = torch_stream(11)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def finetuning(name: str, representation: str, fields: dict[str, Any]) -> tuple[Objective, Batch]:
    """A loss of fine-tuning with one of the representations of the tests, and four queries of three passages each."""
    built = ranked.build(FINETUNING[name].Config.model_validate(fields), ranked.REPRESENTATIONS[representation])
    return built.float().eval(), ranked.batch(progress=0.5)


def cross_encoder() -> tuple[Objective, Batch]:
    """A cross-encoder with a fresh head, and lists of three passages. The longest pair is cut, since a GPU doesn't look
    how long the longest is and pads all rows to the limit.
    """
    config = ListwiseRanking.Config(max_length=20, r_drop=0.5)
    encoder = build_cross_encoder(BackboneConfig(name="tiny"), tokenizer(), max_length=config.max_length, seed=3)
    queries, passages = random_texts([4, 3, 5, 2], 40, seed=1), random_texts([8, 16, 9, 5] * 3, 40, seed=2)
    texts = {"query": token_rows(queries), "passage": token_rows(passages)}
    return _with_noise(ListwiseRanking(config, encoder, Vocabulary.of(tokenizer()))), Batch(0, texts, 3)


def generation() -> tuple[Objective, Batch]:
    """An encoder-decoder, and a passage for each query."""
    config, words = QueryGeneration.Config(decoder_layers=2), small_vocabulary()
    model = build_seq2seq(BackboneConfig(name="tiny"), words, decoder_layers=config.decoder_layers, seed=3)
    texts = {"query": token_rows(ranked.QUERIES), "passage": token_rows(ranked.PASSAGES[:4])}
    return _with_noise(QueryGeneration(config, model, words)), Batch(0, texts)


@cache
def tokenizer() -> Path:
    """A folder with a tokenizer of forty tokens, for as long as the process lasts."""
    folder = tempfile.mkdtemp(prefix="midmask-gpu-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_tokenizer(Path(folder), "bert")


@cache
def saved(name: str, experts: str) -> Path:
    """The folder of an encoder with this representation."""
    place = tokenizer() / "models" / f"{name} {experts}".replace(" ", "-")
    config = BackboneConfig.model_validate({"name": "tiny", "dropout": 0.0, "experts": experts})
    backbone = build_backbone(config, Vocabulary.of(tokenizer()), seed=3)
    backbone.represent_as(ranked.REPRESENTATIONS[name], seed=4)
    place.mkdir(parents=True)
    save_bi_encoder(_with_noise(backbone), place, tokenizer(), max_length=32)
    return place


def encoding_numbers(name: str, experts: str, where: Where) -> Numbers:
    """The views of queries and passages."""
    words, draw, found = Vocabulary.of(tokenizer()), numpy_stream(8), dict[str, Tensor]()
    precision: Any = "bf16" if where.precision == "bf16" else "fp32"
    for side in ("query", "passage"):
        lengths = draw.integers(3, 24, 12)
        rows = [np.array([words.cls_id, *draw.integers(5, words.size, length), words.sep_id]) for length in lengths]
        encoder = open_encoder(saved(name, experts), words, side, str(where.device))  # type: ignore[arg-type]
        views = replace(encoder, batch_tokens=128, precision=precision).encode(rows)
        if views.dense_ND is not None:
            found[f"{side}, dense"] = torch.from_numpy(views.dense_ND)
        if views.lexical is not None:
            found[f"{side}, lexical"] = torch.from_numpy(views.lexical.toarray())
        if views.late is not None:
            records = views.late.records_T
            decoded = records["scale"][:, None] * records["codes"].astype(np.float32)
            found[f"{side}, late"] = torch.from_numpy(np.ascontiguousarray(decoded))
    return found
