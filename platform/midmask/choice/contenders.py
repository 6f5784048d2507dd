"""Who takes part in the contest, and under which conditions: each system with a representation, fine-tuned on the made
queries or left as it is, searched alone and together with BM25.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from midmask.benchmark.design import BM25, BM25_SHARE, IN_BATCH, NONE, Benchmark, RepresentationKind, Setting, variant
from midmask.benchmark.layout import HEADLESS
from midmask.benchmark.results import SystemKey
from midmask.choice.verdict import WITH_BM25, SystemName, TrainingKind
from midmask.encoders.backbone import SIZES
from midmask.recipes import RECIPES
from midmask.retrieve.fusion import Fusion

AS_IS, TUNED, MINED, GPL = "as it is", "fine-tuned", "mined negatives", "GPL"

SYSTEMS = ("none", "mlm", "retromae", "dupmae", "dupmae[decode=ot]", "cocondenser", "simcse")
"""In the order in which they are tried: no middle training, then from the plainest; the bag of words alone, and two
contrastive ones.
"""

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

UNTUNED = Setting(protocols={"dense": "in_batch"}, stages=0)
SETTINGS: Mapping[str, Setting] = {
    AS_IS: UNTUNED,
    AS_IS + WITH_BM25: UNTUNED.model_copy(update={"changes": JOINED}),
    TUNED: Setting(protocols=SCORED),
    TUNED + WITH_BM25: Setting(protocols=SCORED, changes=JOINED),
    MINED: Setting(protocols={"dense": "ance"}),
    MINED + WITH_BM25: Setting(protocols={"dense": "ance"}, changes=JOINED),
}


def settings_for(teacher: str | None) -> dict[str, Setting]:
    """Fine-tunings by label; with a cross-encoder's folder also GPL, which learns its margins."""
    if teacher is None:
        return dict(SETTINGS)
    taught = {"stages.*.teacher.folder": teacher, "stages.*.teacher.train": None}
    gpl = Setting(protocols={"dense": "gpl"}, changes=taught)
    return {**SETTINGS, GPL: gpl, GPL + WITH_BM25: gpl.model_copy(update={"changes": {**taught, **JOINED}})}


@dataclass(frozen=True)
class Size:
    """Of all trainings of a round. pretrain, finetune: optimiser steps."""

    pretrain: int
    finetune: int

    def __str__(self) -> str:
        return f"{self.pretrain:,} steps of middle training and {self.finetune:,} of fine-tuning"


@dataclass(frozen=True)
class Contender:
    """What is trained once: a system, what of it is scored, and how it is fine-tuned."""

    system: str
    representation: str
    setting: str

    @property
    def keys(self) -> tuple[SystemKey, ...]:
        """It alone, and together with BM25, which costs one search more."""
        if self.system == BM25:
            return (SystemKey(BM25, NONE, BM25, NONE),)
        trains = self.setting != AS_IS and RECIPES[variant(self.system)[0]]().objective is not None
        read = "corpus" if trains else NONE
        settings = [self.setting] if self.representation == "hybrid" else [self.setting, self.setting + WITH_BM25]
        return tuple(SystemKey(self.system, read, self.representation, setting) for setting in settings)

    @property
    def label(self) -> str:
        return " · ".join(name_of(self.keys[0]))

    @property
    def has_middle_training(self) -> bool:
        return training_of(self.keys[0]) == "middle training"


def name_of(key: SystemKey) -> SystemName:
    """(system, representation) as a verdict names them: `("as it is", "dense")`, `("retromae", "dense with BM25")`."""
    if key.system == BM25:
        return BM25, BM25
    fused = key.setting.endswith(WITH_BM25)
    setting = key.setting.removesuffix(WITH_BM25)
    untrained = AS_IS if setting == AS_IS else "fine-tuned only"
    system = untrained if key.system == NONE else key.system
    how = f", {setting}" if setting in (MINED, GPL) else ""
    return system + how, key.representation + (WITH_BM25 if fused else "")


def training_of(key: SystemKey) -> TrainingKind:
    """How a system was trained in the contest."""
    if key.system == BM25 or key.setting.removesuffix(WITH_BM25) == AS_IS:
        return "none"
    return "fine-tuning" if key.collection == NONE else "middle training"


LEXICAL = Contender(BM25, BM25, NONE)
UNTRAINED = Contender(NONE, "dense", AS_IS)


def is_joined(key: SystemKey) -> bool:
    """Whether it is a dense encoder whose list is joined with BM25's."""
    return key.representation == "dense" and key.setting.endswith(WITH_BM25)


def first_contenders(systems: Sequence[str], backbone: str) -> tuple[Contender, ...]:
    """Those of the first round, by priority: BM25, the encoder as it is if it was trained before, then all systems by
    their dense vectors.
    """
    untuned = () if backbone in SIZES else (UNTRAINED,)
    return (LEXICAL, *untuned, *(Contender(system, "dense", TUNED) for system in systems))


def untrained_of(contenders: Sequence[Contender]) -> tuple[Contender, ...]:
    """What is not trained and so costs nothing after the first round: BM25, and the encoder as it is."""
    return tuple(one for one in contenders if one == LEXICAL or one.setting == AS_IS)


def trained_of(contenders: Sequence[Contender]) -> tuple[Contender, ...]:
    """The others."""
    untrained = untrained_of(contenders)
    return tuple(one for one in contenders if one not in untrained)


def relatives(contender: Contender, representations: Sequence[str], *, taught: bool) -> tuple[Contender, ...]:
    """The same system with mined negatives, where there is a teacher with its margins, and by other representations:
    tried once it is known to be good. Those by words come last, since a short training does not teach them.
    """
    if contender.setting != TUNED or contender.representation != "dense":
        return ()
    headless = variant(contender.system)[0] in HEADLESS
    others = () if headless else tuple(kind for kind in representations if kind != "dense")
    dense = tuple(Contender(contender.system, "dense", how) for how in ((MINED, GPL) if taught else (MINED,)))
    return (*dense, *(Contender(contender.system, kind, TUNED) for kind in others))


def contest(
    corpus: str,
    systems: Sequence[str],
    size: Size,
    splits: Sequence[str],
    changes: Mapping[str, Any],
    seed: int,
    teacher: str | None = None,
) -> Benchmark:
    """The conditions of one round, as a benchmark, whose cells are chosen by `Contender.keys`.

    Args:
        corpus: the made collection, as corpus.name. changes: dotted path -> value, for all systems. teacher: a
            cross-encoder's folder.
    """
    sizes = {
        "corpus.splits": "official",
        "tokens.titles": True,
        "pretrain.steps": size.pretrain,
        "pretrain.batch_size": 32,
        "pretrain.checkpoint_every": 100,
        "stages.*.train.steps": size.finetune,
        "stages.*.train.batch_size": 32,
        "stages.*.train.checkpoint_every": 100,
    }
    return Benchmark(
        name="choose",
        title="Middle training of an encoder for these documents",
        corpus=corpus,
        systems=(BM25, *systems),
        representations=tuple(SCORED),
        settings=settings_for(teacher),
        splits=tuple(splits),
        seeds=(seed,),
        measures=MEASURES,
        measure=MEASURE,
        changes={**sizes, **changes},
    )
