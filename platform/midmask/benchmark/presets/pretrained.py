"""Middle training from a real backbone, against labelled queries: does it pay, and when?"""

from collections.abc import Mapping
from typing import Any

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given

BACKBONE = "minilm"

AXIS = ("none", "mlm", "retromae", "dupmae")
"""The main question: these, with 0, 1,000 and 10,000 labelled queries."""

LABELLED = {"1k labels": (1_000, 200), "10k labels": (10_000, 625)}
"""Setting -> labelled queries, and optimiser steps of 32 queries: about six epochs, and two."""

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
    """{nothing, MLM, RetroMAE, DupMAE} × {no, 1,000, 10,000 labelled queries} from all-MiniLM-L6-v2, at equal tokens.
    No paper has such a table: `published` stands for the sizes of a GPU.
    """
    settings = {
        label: Setting(
            protocols={"dense": "in_batch"}, changes={"stages.*.queries": queries, "stages.*.train.steps": steps}
        )
        for label, (queries, steps) in LABELLED.items()
    }
    return Benchmark(
        name="pretrained",
        scale=given.scale,
        title="Middle training of all-MiniLM-L6-v2, against labelled queries",
        corpus=given.corpus,
        systems=("bm25", *AXIS),
        collections={"corpus": given.pretrain_on},
        settings={"no labels": Setting(protocols={"dense": "in_batch"}, stages=0), **settings},
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
