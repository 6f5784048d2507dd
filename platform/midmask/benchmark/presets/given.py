"""What a command line says that presets are made of, and the sizes that they share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MSMARCO = 8_841_823
"""Passages of MS MARCO: what published epochs of middle training are counted in."""


@dataclass(frozen=True)
class Given:
    """scale: `demo` runs on two cores in minutes, `published` has the paper's sizes. corpus: fine-tuned and evaluated
    on. pretrain_on: further collections for the middle training, as FORMAT:PLACE.
    """

    scale: Literal["demo", "published"] = "demo"
    corpus: str = "pydocs"
    pretrain_on: tuple[str, ...] = ()

    def elsewhere(self, label: str) -> dict[str, tuple[str, ...]]:
        """The further collections under one label, if there are any."""
        return {label: self.pretrain_on} if self.pretrain_on else {}


TOY_GIVEN = Given()
"""A command line without flags."""

TOY: dict[str, Any] = {
    "corpus.packages": ["numpy", "pandas"],
    "pretrain.steps": 600,
    "pretrain.batch_size": 16,
    "stages.*.train.steps": 60,
    "stages.*.teacher.train.steps": 100,
    "stages.*.teacher.backbone": {"name": "tiny", "dropout": 0.0},
}
"""3,799 docstrings of two packages, 400,000 tokens of middle training, stages of 60 batches, one teacher for all. Steps
of half the usual batch: 600 of 16 rows train as long as 300 of 32, which leave RetroMAE below no middle training.
"""

FULL: dict[str, Any] = {
    "backbone.name": "bert-base-uncased",
    "backbone.dropout": 0.1,
    "tokens.tokenizer": "bert-base-uncased",
    "evaluation.depth": 1000,
}
"""BERT-base and its vocabulary, and ranked lists of 1,000. The teacher, one for all, is trained from BERT-base too."""


def _trained(steps: float, batch: int, rate: float, *, warmup: float = 0.1) -> dict[str, Any]:
    return {
        "pretrain.steps": round(steps),
        "pretrain.batch_size": batch,
        "pretrain.learning_rate": rate,
        "pretrain.warmup": warmup,
        "pretrain.decay": 1 - warmup,
    }


_MLM = _trained(8 * MSMARCO / 256, 256, 5e-5, warmup=0.0)
_RETROMAE = _trained(20 * MSMARCO / 1024, 1024, 1e-4)
_CONDENSER = _trained(120_000, 2048, 1e-4)
_COTMOTE = _trained(80_000, 2048, 3e-4)

PUBLISHED: dict[str, dict[str, Any]] = {
    "mlm": _MLM,
    "mlm_cls_tf": _MLM,
    "rom": _MLM,
    "retromae": _RETROMAE,
    "dupmae": _RETROMAE,
    "condenser": _CONDENSER,
    "cocondenser": _CONDENSER,
    "seed": _CONDENSER,
    "lexmae": _trained(20 * MSMARCO / 2048, 2048, 3e-4, warmup=0.05),
    "cotmae": _trained(1_200_000, 512, 1e-4),
    "cotmae_v2": _trained(50_000, 16_384, 4e-4),
    "simlm": _trained(80_000, 2048, 3e-4),
    "cotmote": _COTMOTE,
    "cotmote_siamese": _COTMOTE,
    "cotmote_separate": _COTMOTE,
    "cotmote_switched": _COTMOTE,
}
"""Middle training on MS MARCO as published (methods.md 1 to 9); where batches are not said (MLM, ROM, SEED, SimLM,
CoT-MAE v2), those of the nearest relative."""


def sizes(
    given: Given, toy: Mapping[str, Any] | None = None, own: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The fields of a benchmark that the scale decides.

    Args:
        toy: changes of a demo, by dotted path, beside those of all.
        own: changes of a demo for one recipe or representation.
    """
    if given.scale == "published":
        return {"scale": "published", "changes": FULL, "own": PUBLISHED}
    return {"scale": "demo", "changes": {**TOY, **(toy or {})}, "own": own or {}}


def conditions(given: Given, paper: str) -> tuple[str, ...]:
    """How a run differs from the paper, for its captions."""
    if given.scale == "published":
        return (f"Sizes of {paper}: bert-base-uncased, its batches, rates and steps, as far as they are published.",)
    return (
        f"A toy beside {paper}: backbone tiny (2 layers of 128, random weights) for BERT-base, {given.corpus} for MS "
        "MARCO, an own vocabulary of 2,048, 600 steps of middle training, 60 steps a stage, one teacher for all.",
    )
