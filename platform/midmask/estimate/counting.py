"""The cost of models: FLOPs and memory, counted by torch while the real classes run on tensors without numbers.

An objective is built on the `meta` device and its weights become torch's fake tensors: they have a shape, a type and a
device, and no values. The texts are real, so that masks, targets and lengths are drawn as in training. All that follows
from a weight is fake, forward and backward, and costs no arithmetic and no memory whatever the model's size. So nothing
here knows an objective by its name. FLOPs are those of matrix products, two for a multiplication with an addition:

    a linear layer                       6 x weights x rows in training (2 forward, 4 backward)
    attention, of a layer                12 x length x width x tokens; that a fused backward pass computes its scores
                                         again does not count
    column maximum (`encoders.heads`)    2 x V x width x positions forward, 4 x V x width x texts backward: one position
                                         wins an entry
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from midmask.core.batch import Batch, Loss, Part, TokenRows
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.layers import recompute_layers
from midmask.encoders.representation import Representation
from midmask.estimate.sizes import outline_backbone, outline_cross_encoder, outline_seq2seq, remembered
from midmask.objectives import CoupledObjective, Objective, ObjectiveConfig, build_objective
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.objectives.sample import finetuning_batch, full_rows, pretraining_batch
from midmask.training.rehearsal import kept_tensors

FUSED_ATTENTION = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")


def flop_counter() -> FlopCounterMode:
    """Torch's counter, a context manager; `get_total_flops()` may be asked at any time."""
    return FlopCounterMode(display=False, custom_mapping=_formulas())


def _formulas() -> dict[Any, Callable[..., int]]:
    """FLOP formulas that torch's counter lacks or counts otherwise; arguments are shapes."""

    def forward(q: Any, k: Any, v: Any, *rest: Any, **named: Any) -> int:
        rows, heads, length, width = q
        return int(4 * rows * heads * length * k[2] * width)

    def backward(grad: Any, q: Any, k: Any, v: Any, *rest: Any, **named: Any) -> int:
        return 2 * forward(q, k, v)

    def weighted_sums(table: Any, rows: Any, *rest: Any, **named: Any) -> int:
        return int(2 * torch.Size(rows).numel() * table[1])

    def product_added(total: Any, a: Any, b: Any, *rest: Any, **named: Any) -> int:
        return int(2 * a[0] * a[1] * b[1])

    aten = torch.ops.aten
    formulas: dict[Any, Callable[..., int]] = {
        aten.addmm_: product_added,
        aten._embedding_bag: weighted_sums,
        aten._embedding_bag_forward_only: weighted_sums,
    }
    for name in FUSED_ATTENTION:
        formulas[getattr(aten, f"_scaled_dot_product_{name}")] = forward
        formulas[getattr(aten, f"_scaled_dot_product_{_backward_of(name)}")] = backward
    return formulas


def _backward_of(name: str) -> str:
    head, separator, tail = name.partition("_for_cpu")
    return f"{head}{separator}{tail}_backward"


TEXTS = 16
"""Texts of a counted batch, or one row if that holds more: enough that the roundings of masks even out."""
SHORTEST = 5
"""Tokens of a counted text at least: two specials and three words, of which a mask can choose."""


@dataclass(frozen=True)
class Row:
    """Tokens of the texts of one row, specials included: a passage, and with it a second span or pseudo-query (0: there
    is none); or, if `group` is not 0, a query (`context`) with `group` passages."""

    passage: int
    context: int = 0
    group: int = 0

    @staticmethod
    def of(passage: float, context: float, group: int = 0) -> "Row":
        """The row of texts with these mean lengths."""
        return Row(max(SHORTEST, round(passage)), max(SHORTEST, round(context)) if context else 0, group)

    @property
    def texts(self) -> int:
        return self.group + 1 if self.group else 1 + (self.context > 0)


@dataclass(frozen=True)
class Counted:
    """The counted cost of one step of training."""

    row: float  # FLOPs of a row, forward and backward
    pair: float  # FLOPs of each row with each, where rows meet in the loss
    first_pass: float  # FLOPs of a row's vectors without a gradient, where rows meet
    kept: float  # bytes of a row that autograd keeps for the backward pass
    kept_once: float  # bytes that it keeps for any number of rows, such as the gradient of an output matrix
    targets: float  # of a row, in the term of the loss that has most
    parameters: int  # all that are trained
    is_whole: bool = True  # false: the loss cannot be computed without numbers, so only the encoder was counted

    def flops(self, rows: int) -> float:
        """FLOPs of a step on a batch of so many rows."""
        return rows * self.row + rows**2 * self.pair


@remembered(Counted)
def count_training(
    config: ObjectiveConfig,
    encoder: BackboneConfig,
    vocabulary: int,
    representation: Representation,
    row: Row,
    *,
    kind: str,
    bf16: bool,
    recompute: bool = False,
) -> Counted:
    """Counts the cost of a step of an objective on an encoder.

    Args:
        vocabulary: entries of the tokenizer.
        representation: what is scored, in fine-tuning.
        kind: of the device, cpu or cuda. Dropout keeps pairs of tokens on a CPU only; on a GPU it is left out.
        bf16: whether autocast is on. recompute: whether layers are computed again in the backward pass; all but the one
            that is kept whole count twice forward.

    Raises:
        UserError: if there is no such model, or the objective cannot be carried out on it.
    """
    objective, words = _outline(config, encoder, vocabulary, representation)
    if recompute:
        recompute_layers(objective.backbone)
    parameters = sum(parameter.numel() for parameter in objective.parameters())
    rows = max(1, TEXTS // row.texts)
    if row.group:
        batch = finetuning_batch(words, queries=rows, group=row.group, query=row.context, passage=row.passage)
    else:
        batch = pretraining_batch(config, words, rows=rows, length=row.passage, context=row.context or None)
    _forget_numbers(objective)
    objective.train(kind == "cpu")
    try:
        return _count(objective, batch, rows, bf16=bf16, parameters=parameters)
    except (DataDependentOutputException, DynamicOutputShapeException):
        alone = EncoderAlone(config, objective.backbone, words).train(kind == "cpu")
        return replace(_count(alone, batch, rows, bf16=bf16, parameters=parameters), is_whole=False)


@remembered(float)
def count_encoding(representation: Representation, encoder: BackboneConfig, vocabulary: int, tokens: int) -> float:
    """FLOPs of the vectors of one text of so many tokens."""
    backbone, words = outline_backbone(encoder, vocabulary)
    with torch.device("meta"):
        backbone.represent_as(representation, seed=0)
    text = full_rows(1, tokens, words, seed=1)
    _forget_numbers(backbone.eval())
    with torch.no_grad(), flop_counter() as counter:
        backbone.pooling(backbone, text.ids_BL, text.lengths_B, words.special_V, "passage")
    return float(counter.get_total_flops())


@remembered(float)
def count_scoring(encoder: BackboneConfig, vocabulary: int, query: int, passage: int) -> float:
    """FLOPs of a cross-encoder's score of one query and passage of so many tokens."""
    model, words = outline_cross_encoder(encoder, vocabulary)
    texts = finetuning_batch(words, queries=1, group=1, query=query, passage=passage).texts
    pairs = model.join(texts["query"], texts["passage"])
    _forget_numbers(model.eval())
    with torch.no_grad(), flop_counter() as counter:
        model(pairs)
    return float(counter.get_total_flops())


class EncoderAlone(Objective):
    """Replaces an objective whose loss depends on values, which fake tensors lack: all texts of a batch go through the
    encoder.
    """

    parts: ClassVar[tuple[str, ...]] = ("encoder",)

    def draw(self, batch: Batch) -> Batch:
        return batch

    def counts(self, drawn: Batch) -> dict[str, Tensor]:
        return {"encoder": torch.tensor(0)}

    def forward(self, drawn: Batch) -> Loss:
        hidden = [self.backbone.hidden(text.ids_BL, text.lengths_B).sum() for text in drawn.texts.values()]
        return Loss({"encoder": Part(torch.stack(hidden).sum(), torch.tensor(1))})


def _outline(
    config: ObjectiveConfig, encoder: BackboneConfig, vocabulary: int, representation: Representation
) -> tuple[Objective, Any]:
    if isinstance(config, ListwiseRanking.Config):
        model, words = outline_cross_encoder(encoder, vocabulary)
        return ListwiseRanking(config, model, words), words
    if isinstance(config, QueryGeneration.Config):
        writer, words = outline_seq2seq(encoder, vocabulary, config.decoder_layers)
        return QueryGeneration(config, writer, words), words
    backbone, words = outline_backbone(encoder, vocabulary)
    with torch.device("meta"):
        backbone.represent_as(representation, seed=0)
        return build_objective(config, backbone, words), words


def _forget_numbers(model: nn.Module) -> None:
    """Makes fake tensors on a CPU of what is on the `meta` device, which lacks much that a CPU has (autocast)."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")


def _count(objective: Objective, batch: Batch, rows: int, *, bf16: bool, parameters: int) -> Counted:
    """The cost of `rows` rows. Counting them twice, with the same masks, shows how much of the memory grows."""
    once, twice = _forward(objective, batch, bf16=bf16), _forward(objective, _repeat(batch), bf16=bf16)
    first_pass, pair = _cost_of_pairs(objective, batch, rows) if isinstance(objective, CoupledObjective) else (0.0, 0.0)
    with flop_counter() as counter:
        torch.autograd.backward(once.total)
    return Counted(
        row=(once.flops + counter.get_total_flops()) / rows - rows * pair,
        pair=pair,
        first_pass=first_pass,
        kept=(twice.kept - once.kept) / rows,
        kept_once=2 * once.kept - twice.kept,
        targets=once.targets / rows,
        parameters=parameters,
    )


def _cost_of_pairs(objective: CoupledObjective, batch: Batch, rows: int) -> tuple[float, float]:
    """FLOPs of a row's vectors, forward, and of each two rows that meet in the loss: what twice the rows cost there
    beyond twice the FLOPs is 2 x rows^2 times that."""
    with torch.no_grad(), flop_counter() as counter:
        made = objective.represent(objective.draw(batch))
    met = []
    for times in (1, 2):
        vectors, facts = ([torch.cat(times * [x.detach()]) for x in side] for side in (made.vectors, made.facts))
        with flop_counter() as coupled:
            parts = objective.couple(tuple(vector.requires_grad_() for vector in vectors), tuple(facts))
            torch.autograd.backward(Loss(parts).total({name: part.count for name, part in parts.items()}))
        met.append(coupled.get_total_flops())
    return counter.get_total_flops() / rows, (met[1] - 2 * met[0]) / (2 * rows**2)


def _repeat(batch: Batch) -> Batch:
    def again(x: Tensor) -> Tensor:
        return torch.cat([x, x])

    def both(text: TokenRows) -> TokenRows:
        weights_BL = None if text.weights_BL is None else again(text.weights_BL)
        return TokenRows(again(text.ids_BL), again(text.lengths_B), again(text.keys_B), weights_BL)

    teacher_QG = None if batch.teacher_QG is None else again(batch.teacher_QG)
    return replace(batch, texts={name: both(text) for name, text in batch.texts.items()}, teacher_QG=teacher_QG)


@dataclass(frozen=True)
class _Forward:
    """A loss with its graph, and the cost of its forward pass."""

    total: Tensor
    flops: float  # of the forward pass
    kept: int  # bytes that autograd keeps
    targets: int  # of the term that has most


def _forward(objective: Objective, batch: Batch, *, bf16: bool) -> _Forward:
    """Masks and loss. Each tensor's storage is kept once; weights are not counted."""
    with (
        flop_counter() as counter,
        kept_tensors(objective) as kept,
        torch.autocast("cpu", torch.bfloat16, enabled=bf16),
    ):
        drawn = objective.draw(batch)
        targets = max(int(count) for count in objective.counts(drawn).values())
        total = objective(drawn).total(objective.counts(drawn))
    return _Forward(total, float(counter.get_total_flops()), kept.bytes, targets)
