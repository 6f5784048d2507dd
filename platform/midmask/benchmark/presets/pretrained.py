"""Middle training from a real backbone, against labelled queries: does it pay, and when?"""

from collections.abc import Mapping
from typing import Any

from midmask.benchmark.design import IN_BATCH, WITH_BM25, Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given

BACKBONE = "minilm"

AXIS = ("none", "mlm", "retromae", "dupmae")
"""The main question: these, with 0, 1,000 and 10,000 labelled queries."""

BESIDE = ("dupmae[decode=ot]", "cocondenser", "simcse")
"""Once each, under one setting: the bag of words alone, and two contrastive middle trainings."""

LABELLED = {"1k labels": (1_000, 100), "10k labels": (10_000, 312), "all labels": (None, 2_500)}
"""Setting -> labelled queries (none: all), and optimiser steps of 32 queries: three epochs, one, and on SQuAD one."""

WIDE = "10k labels"
"""The setting under which representations, negatives and the systems beside the axis are compared."""

LEXICAL = ("none", "mlm", "dupmae")
"""Systems whose words are scored too, which mine negatives and see all labels: the methods that train the MLM head on
the texts' own words, and none."""

SHARED: Mapping[str, Any] = {
    "backbone.name": BACKBONE,
    "tokens.titles": True,
    "tokens.query_length": 32,
    "pretrain.checkpoint_every": 100,
    "stages.*.train.batch_size": 32,
    "stages.*.train.learning_rate": 2e-5,
    "stages.*.train.checkpoint_every": 100,
}

SMALL: Mapping[str, Any] = {
    "tokens.max_length": 128,
    "spans.span_length": 128,
    "pretrain.steps": 1000,
    "pretrain.batch_size": 32,
}
"""Two cores: at most 4 million tokens of middle training, and half of the 256 tokens that MiniLM reads."""

FULL: Mapping[str, Any] = {
    "tokens.max_length": 256,
    "spans.span_length": 256,
    "pretrain.steps": 10_000,
    "pretrain.batch_size": 256,
}
"""A GPU: at most 650 million tokens, and passages as long as MiniLM reads them."""


def pretrained(given: Given = TOY_GIVEN) -> Benchmark:
    """{nothing, MLM, RetroMAE, DupMAE} × {no, 1,000, 10,000 labelled queries} from all-MiniLM-L6-v2, at equal tokens;
    and more that `--settings` and `--representations` choose. No paper has such a table: `published` stands for the
    sizes of a GPU.
    """
    settings = _settings()
    allowed: dict[str, tuple[str, ...]] = {name: AXIS for name in settings if name != WIDE}
    allowed |= {name: LEXICAL for name in ("splade", "hybrid", "all labels", f"{WIDE} mined")}
    allowed["late"] = AXIS
    return Benchmark(
        name="pretrained",
        scale=given.scale,
        title="Middle training of all-MiniLM-L6-v2, against labelled queries",
        corpus=given.corpus,
        systems=("bm25", *AXIS, *BESIDE),
        collections={"corpus": given.pretrain_on},
        representations=tuple(IN_BATCH),
        settings=settings,
        only=allowed,
        seeds=(0, 1, 2),
        measures=("RR@10", "nDCG@10", "R@100"),
        measure="nDCG@10",
        baseline="none",
        changes={**SHARED, **(FULL if given.scale == "published" else SMALL)},
        notes=(
            "From all-MiniLM-L6-v2, which its authors fine-tuned on a billion pairs, among them SQuAD's training "
            "questions: read the rows on other collections too. Equal tokens for all middle trainings.",
        ),
    )


def _settings() -> dict[str, Setting]:
    """The axis first; then what is asked of the best: BM25 beside them, mined negatives, all labels."""
    untuned = Setting(protocols={"dense": "in_batch"}, stages=0)
    tuned = {label: _labelled(label) for label in LABELLED}
    return {
        "no labels": untuned,
        **tuned,
        WIDE: tuned[WIDE].model_copy(update={"protocols": IN_BATCH}),
        "no labels with BM25": untuned.model_copy(update={"changes": WITH_BM25}),
        f"{WIDE} with BM25": _labelled(WIDE, **WITH_BM25),
        f"{WIDE} mined": _labelled(WIDE, **{"stages.*.mine.max_queries": None}).model_copy(
            update={"protocols": {"dense": "ance"}}
        ),
    }


def _labelled(label: str, **changes: Any) -> Setting:
    queries, steps = LABELLED[label]
    sizes = {"stages.*.queries": queries, "stages.*.train.steps": steps}
    return Setting(protocols={"dense": "in_batch"}, changes={**sizes, **changes})
