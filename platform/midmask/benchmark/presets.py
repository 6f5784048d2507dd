"""Benchmarks by name, from `presets.yaml`: a preset makes one of what the command line gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import files
from typing import Any, Literal

import yaml

from midmask.benchmark.design import Benchmark
from midmask.core.registry import Registry
from midmask.corpora.config import CorpusConfig
from midmask.errors import UserError
from midmask.recipes.build import MIDDLE_TRAININGS, SHARED

PRECISIONS = (
    "pretrain",
    "evaluation",
    "stages.*.train",
    "stages.*.mine",
    "stages.*.teacher.train",
    "stages.*.teacher.mine",
)
"""Sections that train or encode."""

TOY: Mapping[str, Any] = {
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


@dataclass(frozen=True)
class Given:
    """The choices on the command line that a preset builds its benchmark from."""

    scale: Literal["demo", "published"] = "demo"  # demo: minutes on two cores; published: the paper's sizes
    corpus: str = "pydocs"  # that is fine-tuned and evaluated on
    pretrain_on: tuple[str, ...] = ()  # further collections for the middle training, as FORMAT:PLACE

    @cached_property
    def lists(self) -> dict[str, tuple[str, ...]]:
        """What the names in capitals stand for."""
        msmarco = tuple(name for name in self.pretrain_on if name.startswith("msmarco:"))
        other = tuple(name for name in self.pretrain_on if name not in msmarco)
        return {"CORPUS": (self.corpus,), "PRETRAIN_ON": self.pretrain_on, "MSMARCO": msmarco, "OTHER": other}

    @property
    def conditions(self) -> set[str]:
        """Those that are met."""
        present = {name.lower() if listed else f"no {name.lower()}" for name, listed in self.lists.items()}
        return {self.scale, *present}

    def fill(self, value: Any) -> Any:
        """A part of a preset with the collections of the command line in it."""
        if isinstance(value, str) and "{" in value:
            corpus, *others = (CorpusConfig(name=name).short_name for name in (self.corpus, *self.pretrain_on))
            return value.format(corpus=corpus, pretrain_on="+".join(others))
        if isinstance(value, dict):
            return {self.fill(name): self.fill(part) for name, part in value.items()}
        if isinstance(value, list):
            return [name for part in value for name in self.lists.get(part, (self.fill(part),))]
        return value


ROWS: Mapping[str, dict[str, Any]] = yaml.safe_load(
    (files("midmask.benchmark") / "presets.yaml").read_text(encoding="utf-8")
)


def preset(name: str, choices: Given) -> Benchmark:
    """The benchmark of a preset's name.

    Raises:
        UserError: without another collection, for a preset that compares with one.
    """
    row = ROWS.get(f"{name} on {choices.corpus.partition(':')[0]}", ROWS[name])
    if "{pretrain_on}" in row["title"] and not choices.pretrain_on:
        raise UserError(f"--preset {name}: add --pretrain-on FORMAT:PLACE, such as beir:/data/wiki, to compare with")
    fields = {key: value for key, value in row.items() if not key.startswith("if ")}
    for key, part in row.items():
        if key.startswith("if ") and key[3:] in choices.conditions:
            fields = _joined(fields, part)
    fields = choices.fill(fields)
    paper, has_sizes = fields.pop("paper", None), fields.pop("sizes", None) == "own"
    if paper:
        fields["notes"] = [*fields.get("notes", ()), _difference(choices, paper)]
    if not has_sizes and choices.scale == "published":
        fields |= {"changes": SHARED, "own": MIDDLE_TRAININGS}
    elif not has_sizes:
        fields["changes"] = {**TOY, **fields.get("changes", {})}
    return Benchmark.model_validate({"name": name, "scale": choices.scale, "corpus": choices.corpus, **fields})


def _joined(fields: Any, more: Any) -> Any:
    """Mappings joined, lists continued."""
    if isinstance(fields, dict):
        return {**fields, **{name: _joined(fields.get(name), value) for name, value in more.items()}}
    return [*fields, *more] if isinstance(fields, list) else more


def _difference(choices: Given, paper: str) -> str:
    """How a run differs from the paper, for its captions."""
    if choices.scale == "published":
        corpus = "" if choices.corpus.startswith("msmarco:") else f", and the corpus is {choices.corpus}"
        sizes = "bert-base-uncased, its batches, rates and steps, as far as they are published"
        return f"Sizes of {paper}: {sizes}; steps as epochs over MS MARCO{corpus}."
    return (
        f"A toy beside {paper}: backbone tiny (2 layers of 128, random weights) for BERT-base, {choices.corpus} for MS "
        "MARCO, an own vocabulary of 2,048, 600 steps of middle training, 60 steps a stage, one teacher for all."
    )


PRESETS: Registry[Callable[[Given], Benchmark]] = Registry(
    "preset", {name: partial(preset, name) for name in ROWS if " on " not in name}
)
