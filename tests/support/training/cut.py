"""A batch of seven rows, cut into micro-batches, objectives whose rows meet, and the gradients that a step leaves."""

from typing import Any

import torch
from torch import Tensor

from midmask.core.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import FINETUNING, PRETRAINING, CoupledObjective, build_objective
from midmask.training.loop import accumulate, prepare_model
from midmask.training.optimiser import TrainConfig
from tests.support.objectives.texts import random_texts, small_vocabulary, teacher_vectors, token_rows

ROWS = 7
LENGTHS = [9, 14, 5, 11, 7, 12, 8]
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: {"temperature": 20.0} for name in ("cocondenser", "contrastive", "ict")},
    "simcse": {"mlm_weight": 0.1},
    "diffcse": {"replaced_weight": 0.5},
    "laprador": {"temperature": 20.0, "cache": 9},
    "distil_vectors": {},
    "spider": {"temperature": 20.0, "shortest_phrase": 1, "longest_window": 9},
}


def coupled_objective(name: str) -> CoupledObjective:
    vocabulary = small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=0.2), vocabulary, seed=3)
    config = {**PRETRAINING, **FINETUNING}[name].Config(**SETTINGS[name])
    built = build_objective(config, backbone, vocabulary, seed=5).double()
    assert isinstance(built, CoupledObjective)
    return built


def batch(name: str) -> Batch:
    """Seven rows, with a teacher's vectors where they are read; in fine-tuning each query has two passages."""
    passages = token_rows(random_texts(LENGTHS, seed=1))
    others = token_rows(random_texts([6, 8, 4, 13, 5, 7, 10], seed=2))
    if name == "contrastive":
        return Batch(0, {"query": others, "passage": token_rows(random_texts(LENGTHS * 2, seed=1))}, 2)
    teacher = teacher_vectors("minilm", ROWS) if name == "distil_vectors" else None
    return Batch(0, {"passage": passages, "context": others}, teacher=teacher)


def rows_of(whole: Batch, first: int, last: int) -> Batch:
    """Rows first … last - 1, padded no further than they must be."""

    def part(rows: TokenRows, each: int) -> TokenRows:
        some = slice(first * each, last * each)
        return TokenRows(rows.ids_BL[some, : int(rows.lengths_B[some].max())], rows.lengths_B[some], rows.keys_B[some])

    each = {name: whole.group if name == "passage" else 1 for name in whole.texts}
    texts = {name: part(rows, each[name]) for name, rows in whole.texts.items()}
    return Batch(0, texts, whole.group, teacher=None if whole.teacher is None else whole.teacher[first:last])


def cut(whole: Batch, size: int, first: int = 0, last: int = ROWS) -> list[Batch]:
    return [rows_of(whole, at, min(at + size, last)) for at in range(first, last, size)]


def config(micro_batch: int | None = None, batch_size: int = ROWS, **fields: Any) -> TrainConfig:
    return TrainConfig(steps=1, batch_size=batch_size, learning_rate=1e-3, micro_batch=micro_batch, **fields)


def gradients(module: torch.nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad(set_to_none=True)
    return found


def trained(coupled: CoupledObjective, batches: list[Batch], **fields: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The sums and gradients of a step on these micro-batches."""
    torch.manual_seed(11)
    size = max(len(b.texts["passage"].lengths_B) // b.group for b in batches)
    sums, _ = accumulate(prepare_model(coupled), coupled, config(size, **fields), batches, ())
    return sums, gradients(coupled)


def assert_same_gradients(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float) -> None:
    assert one.keys() == other.keys() and len(one) > 30
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, other[name], rtol=tolerance, atol=tolerance, msg=name)
