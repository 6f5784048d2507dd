"""The request for a choice, the systems in its contest (contenders), and the conditions that they are trained under.

A contender is a system with a representation, fine-tuned on the made queries or left as it is, searched alone or
together with BM25.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from midmask.benchmark.design import BM25_SHARE, IN_BATCH, NONE, Benchmark, RepresentationKind, Setting, variant
from midmask.benchmark.layout import HEADLESS, recipe_of
from midmask.benchmark.results import SystemKey
from midmask.choice.verdict import SystemName, TrainingKind, label
from midmask.core.config import as_user_error, fingerprint, override
from midmask.corpora.config import CorpusConfig
from midmask.encoders.reading import SIZES
from midmask.errors import UserError, unknown
from midmask.experiment.schema import Recipe
from midmask.queries.config import QueriesConfig
from midmask.recipes import RECIPES
from midmask.retrieve.bm25 import BM25
from midmask.retrieve.ranked import Fusion
from midmask.store.pretrained import installed_folder

AS_IS, TUNED, MINED = "as it is", "fine-tuned", "mined negatives"
"""Tunings: how a system is fine-tuned on the made queries, or that its encoder is left as it is."""

SYSTEMS = ("none", "mlm", "retromae", "dupmae", "dupmae[decode=ot]", "cocondenser", "simcse")
"""In the order in which they are tried: no middle training, then from the plainest; the bag of words alone, and two
contrastive ones.
"""

BATCH = 32
"""Rows of a training step."""

MEASURES = ("nDCG@10", "RR@10", "R@100")
MEASURE = MEASURES[0]

SCORED: dict[RepresentationKind, str] = {kind: name for kind, name in IN_BATCH.items() if kind != "late"}
"""Representation -> protocol, of those that take part. Late interaction scores what another search has found, so its
bytes and seconds are not those of a system by itself."""

FUSION: Fusion = "convex"
"""How the contest joins an encoder's list with BM25's. By scores rather than by ranks: on people's queries that is
three points better on SQuAD, where ranks are below BM25 alone, two on pydocs, and as good on Cranfield
(docs/decisions.md, 115).
"""

JOINED = {"evaluation.bm25_share": BM25_SHARE, "evaluation.fusion": FUSION}
"""Changes of a setting whose systems are searched together with BM25."""

TUNINGS = {
    AS_IS: Setting(protocols={"dense": "in_batch"}, stages=0),
    TUNED: Setting(protocols=SCORED),
    MINED: Setting(protocols={"dense": "ance"}),
}


WITH_BM25 = " with BM25"
"""End of the name of a setting, and of a representation, whose systems are searched together with BM25."""

SETTINGS = TUNINGS | {
    tuning + WITH_BM25: setting.model_copy(update={"changes": {**setting.changes, **JOINED}})
    for tuning, setting in TUNINGS.items()
}
"""Settings of the benchmark by name, which is part of what its cells are called."""


@dataclass(frozen=True)
class Size:
    """Optimiser steps of each training in a round."""

    pretrain: int
    finetune: int

    def __str__(self) -> str:
        return f"{self.pretrain:,} steps of middle training and {self.finetune:,} of fine-tuning"


@dataclass(frozen=True)
class System:
    """A system of the contest. One that is not joined stands also for what is trained once: its contender."""

    recipe: str
    representation: str
    tuning: str
    joined: bool = False  # whether its list is joined with BM25's

    @classmethod
    def of(cls, key: SystemKey) -> "System":
        """The system of a cell of the benchmark."""
        tuning = key.setting.removesuffix(WITH_BM25)
        return cls(key.system, key.representation, tuning, joined=key.setting != tuning)

    @property
    def key(self) -> SystemKey:
        read = "corpus" if self.training == "middle training" else NONE
        return SystemKey(self.recipe, read, self.representation, self._if_joined(self.tuning))

    def _if_joined(self, name: str) -> str:
        return name + WITH_BM25 if self.joined else name

    @property
    def searched(self) -> tuple["System", ...]:
        """The systems that a contender is searched as: alone, and joined with BM25, which costs one more search."""
        if self.recipe == BM25 or self.representation == "hybrid":
            return (self,)
        return (self, replace(self, joined=True))

    @property
    def training(self) -> TrainingKind:
        """How it is trained in the contest."""
        if self.recipe == BM25 or self.tuning == AS_IS:
            return "none"
        return "fine-tuning" if RECIPES[variant(self.recipe)[0]]().objective is None else "middle training"

    @property
    def name(self) -> SystemName:
        """Its names in a verdict: `("as it is", "dense")`, `("retromae", "dense with BM25")`."""
        recipe = self.recipe
        if recipe == NONE:
            recipe = "as it is" if self.tuning == AS_IS else "fine-tuned only"
        how = f", {self.tuning}" if self.tuning == MINED else ""
        return recipe + how, self._if_joined(self.representation)

    def __str__(self) -> str:
        return label(*self.name)


LEXICAL = System(BM25, BM25, NONE)
UNTRAINED = System(NONE, "dense", AS_IS)


def first_contenders(systems: Sequence[str], backbone: str) -> tuple[System, ...]:
    """The contenders of the first round, by priority: BM25, the encoder as it is if it was trained before, then all
    systems by their dense vectors.
    """
    untuned = () if backbone in SIZES else (UNTRAINED,)
    return (LEXICAL, *untuned, *(System(system, "dense", TUNED) for system in systems))


def untrained_of(contenders: Sequence[System]) -> tuple[System, ...]:
    """The contenders that are not trained and cost nothing after the first round: BM25, and the encoder as it is."""
    return tuple(contender for contender in contenders if contender == LEXICAL or contender.tuning == AS_IS)


def trained_of(contenders: Sequence[System]) -> tuple[System, ...]:
    """The contenders that are trained."""
    untrained = untrained_of(contenders)
    return tuple(contender for contender in contenders if contender not in untrained)


def relatives(contender: System, representations: Sequence[str]) -> tuple[System, ...]:
    """Variants of a good contender to try next: with mined negatives, and by other representations. Those by words come
    last, because they need a longer training.
    """
    if contender.tuning != TUNED or contender.representation != "dense":
        return ()
    headless = variant(contender.recipe)[0] in HEADLESS
    others = () if headless else tuple(kind for kind in representations if kind != "dense")
    return (System(contender.recipe, "dense", MINED), *(System(contender.recipe, kind, TUNED) for kind in others))


def contest(
    corpus: str,
    systems: Sequence[str],
    size: Size,
    splits: Sequence[str],
    changes: Mapping[str, Any],
    seed: int,
) -> Benchmark:
    """The conditions of one round, as a benchmark, whose cells are chosen by `System.key`.

    Args:
        corpus: the made collection, as corpus.name.
        changes: dotted path -> value, for all systems.
    """
    sizes = {
        "corpus.splits": "official",
        "tokens.titles": True,
        "pretrain.steps": size.pretrain,
        "pretrain.batch_size": BATCH,
        "pretrain.checkpoint_every": 100,
        "stages.*.train.steps": size.finetune,
        "stages.*.train.batch_size": BATCH,
        "stages.*.train.checkpoint_every": 100,
    }
    return Benchmark(
        name="choose",
        title="Middle training of an encoder for these documents",
        corpus=corpus,
        systems=(BM25, *systems),
        representations=tuple(SCORED),
        settings=SETTINGS,
        splits=tuple(splits),
        seeds=(seed,),
        measures=MEASURES,
        measure=MEASURE,
        changes={**sizes, **changes},
    )


LEAST = 60.0
"""Seconds below which nothing can be trained."""


def budget_seconds(text: str) -> float:
    """The seconds of a budget.

    Raises:
        UserError: for a text of another form, or less than a minute.
    """
    import pandas

    try:
        seconds = float(pandas.Timedelta(text).total_seconds())
    except ValueError:
        seconds = 0.0
    if not seconds >= LEAST:
        raise UserError(f"--budget {text}: write a time of at least a minute, such as 30m, 8h or 1h30m")
    return seconds


def queries_config(fields: Mapping[str, object], changes: Mapping[str, Any], seed: int) -> QueriesConfig:
    """The config of made queries: some of its fields, then the changes whose paths begin with `queries.`.

    Raises:
        UserError: for a field or a source that there is not.
    """
    overrides = {path.removeprefix("queries."): value for path, value in changes.items() if path.startswith("queries.")}
    try:
        return override(QueriesConfig.model_validate({**fields, "seed": seed}), overrides)
    except ValidationError as error:
        raise as_user_error(error, "queries") from None


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a verdict: documents, a budget, and the systems to compare.

    Raises:
        UserError: for a system or a representation that there is not.
    """

    corpus: CorpusConfig  # the documents
    budget: float  # in seconds
    out: Path  # the verdict's folder, absolute
    queries: QueriesConfig
    systems: tuple[str, ...] = SYSTEMS
    representations: tuple[str, ...] = tuple(SCORED)
    changes: Mapping[str, Any] = field(default_factory=dict)  # dotted path -> value
    seed: int = 0
    reveal: bool = False  # whether the collection's judgements are read
    command: str = ""  # makes the verdict again; shown on its pages

    def __post_init__(self) -> None:
        for kind in self.representations:
            if kind not in SCORED:
                raise unknown("representation", kind, SCORED)
        for system in self.systems:
            RECIPES[variant(system)[0]]

    @property
    def backbone(self) -> str:
        """As asked for; none: `minilm` where its package is installed, else `wiki-mini`."""
        installed = "minilm" if installed_folder("minilm") else "wiki-mini"
        return str(self.changes.get("backbone.name") or installed)

    @property
    def shared_changes(self) -> dict[str, Any]:
        """The changes that apply to all systems of the contest."""
        others = ("corpus.", "queries.")
        shared = {path: value for path, value in self.changes.items() if not path.startswith(others)}
        return {"backbone.name": self.backbone, **shared}

    @cached_property
    def documents(self) -> Recipe:
        """A recipe on the documents themselves, in the splits of their files."""
        reading = {path: value for path, value in self.changes.items() if path.startswith("corpus.")}
        corpus = {**self.corpus.model_dump(), "splits": "official"}
        return override(override(RECIPES["none"](), {"corpus": corpus}), reading)

    @cached_property
    def as_read(self) -> Recipe:
        """The recipe on the documents, with the text settings of the encoder that all systems start from."""
        made = contest(self.corpus.name, (NONE,), Size(1, 1), ("dev",), self.shared_changes, self.seed)
        return override(recipe_of(made, UNTRAINED.key), {"corpus": self.documents.corpus.model_dump()})

    @property
    def short_name(self) -> str:
        """The documents' name in tables and folders."""
        return self.documents.corpus.short_name

    @cached_property
    def identity(self) -> str:
        """Fingerprint of everything that the contest's decisions depend on."""
        made = contest("made", self.systems, Size(1, 1), ("dev",), self.shared_changes, self.seed)
        parts = [self.documents.corpus.model_dump(), self.queries.model_dump(), made.model_dump(), self.budget]
        return fingerprint({"choose": parts, "representations": self.representations})
