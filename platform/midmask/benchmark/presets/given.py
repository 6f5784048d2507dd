"""What a command line says that presets are made of, and the sizes that they share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from midmask.recipes.published import MIDDLE_TRAININGS, SHARED


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

    def general(self, label: str, systems: Sequence[str], beside: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """For a benchmark's `only`: which systems read the further collections under one label, if there are any, and
        which the corpus.

        Args:
            systems: of the benchmark that read the corpus. beside: those that read the further collections.
        """
        return {label: tuple(beside), "corpus": tuple(systems)} if self.pretrain_on else {}


TOY_GIVEN = Given()
"""A command line without flags."""

PRECISIONS = (
    "pretrain",
    "evaluation",
    "stages.*.train",
    "stages.*.mine",
    "stages.*.teacher.train",
    "stages.*.teacher.mine",
)
"""Sections that train or encode."""

TOY: dict[str, Any] = {
    **{f"{section}.precision": "fp32" for section in PRECISIONS},
    "corpus.packages": ["numpy", "pandas"],
    "pretrain.steps": 600,
    "pretrain.batch_size": 16,
    "stages.*.train.steps": 60,
    "stages.*.teacher.train.steps": 100,
    "stages.*.teacher.backbone": {"name": "tiny", "dropout": 0.0},
}
"""3,799 docstrings of two packages, 400,000 tokens of middle training, stages of 60 batches, one teacher for all. Steps
of half the usual batch: 600 of 16 rows train as long as 300 of 32, which leave RetroMAE below no middle training. In
fp32 everywhere, so that the figures of the reproduction pages do not depend on what the processor is faster in.
"""


def sizes(
    given: Given, toy: Mapping[str, Any] | None = None, own: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The fields of a benchmark that the scale decides.

    Args:
        toy: changes of a demo, by dotted path, beside those of all.
        own: changes of a demo for one recipe or representation.
    """
    if given.scale == "published":
        return {"scale": "published", "changes": SHARED, "own": MIDDLE_TRAININGS}
    return {"scale": "demo", "changes": {**TOY, **(toy or {})}, "own": own or {}}


def conditions(given: Given, paper: str) -> tuple[str, ...]:
    """How a run differs from the paper, for its captions."""
    if given.scale == "published":
        corpus = "" if given.corpus.startswith("msmarco:") else f", and the corpus is {given.corpus}"
        sizes = "bert-base-uncased, its batches, rates and steps, as far as they are published"
        return (f"Sizes of {paper}: {sizes}; steps as epochs over MS MARCO{corpus}.",)
    return (
        f"A toy beside {paper}: backbone tiny (2 layers of 128, random weights) for BERT-base, {given.corpus} for MS "
        "MARCO, an own vocabulary of 2,048, 600 steps of middle training, 60 steps a stage, one teacher for all.",
    )
