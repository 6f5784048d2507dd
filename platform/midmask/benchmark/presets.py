"""Benchmarks by name: a preset makes one of what the command line gives, on one collection or on several.

    collections  what the middle training reads as an axis: the main finding of Lassance et al. (SIGIR 2023)
    pretrained   middle training from a real backbone, against labelled queries: does it pay, and when?
    demo         middle trainings side by side on the built-in corpus, in three representations

The demo's sum for `--systems all` from cached tokens, in seconds of one core (2 cores of an AMD EPYC, a thread a task):

    middle training     20 × 600 steps of 16 rows: 0.05 (MLM) to 0.3 (CoT-MoTE) a step         1,800
    fine-tuning         60 steps: 21 dense at 0.09, 19 SPLADE at 0.18, 7 hybrid at 0.25            435
    encoding, search    47 encoders: 3 s dense, 8 s with words                                     310
                                                                                     together    2,550

which two cores do in 22 minutes; measured, with Ray, the driver and MLflow: 19 (docs/results/every_method_demo.md).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from midmask.benchmark.design import IN_BATCH, TOY_GIVEN, WITH_BM25, Benchmark, Given, Setting, conditions, sizes
from midmask.benchmark.paper_presets import cotmote, dupmae, retromae, rom, sigir23
from midmask.core.registry import Registry
from midmask.corpora import CorpusConfig
from midmask.errors import UserError

LENGTH = 64
"""Tokens of a row. Nearly every passage is longer, so that equal steps are equal tokens."""

STEPS = 1500

QUERY_TERMS, PASSAGE_TERMS = 64, 256
"""Heaviest words of a text that SPLADE is searched with. Its regularisers are made for 150,000 steps; 300 leave 3,200
to 7,200 of 8,192 words in a passage, which is not sparse, and no inverted index searches it faster than a matrix.
"""

ON_EVERY_COLLECTION = ("mlm", "retromae", "dupmae")
"""Methods that are trained on every collection; what `--systems` adds reads the corpus alone."""


def collections(given: Given = TOY_GIVEN) -> Benchmark:
    """{none, the other collection, the corpus, both} × {MLM, RetroMAE, DupMAE} at equal tokens: 1,500 steps of 32 rows
    of 64 tokens, about 3 million. Dense and SPLADE, three fine-tuning seeds; `--zero-shot beir:FOLDER` adds a
    collection that is only searched. `--systems all` adds every other method, once, on the corpus.

    Raises:
        UserError: without another collection.
    """
    if not given.pretrain_on:
        raise UserError(
            "--preset collections: add --pretrain-on FORMAT:PLACE, such as beir:/data/wiki, to compare with"
        )
    other = "+".join(CorpusConfig(name=name).short_name for name in given.pretrain_on)
    own = CorpusConfig(name=given.corpus).short_name
    toy = {
        "pretrain.steps": STEPS,
        "pretrain.batch_size": 32,
        "pretrain.checkpoint_every": 250,
        "tokens.vocabulary_size": 8192,
        "tokens.max_length": LENGTH,
        "spans.span_length": LENGTH,
        "stages.*.train.steps": 300,
    }
    pruned = {"evaluation.query_terms": QUERY_TERMS, "evaluation.passage_terms": PASSAGE_TERMS}
    equal = (
        f"Equal tokens of middle training on every collection: {STEPS:,} steps of 32 rows of at most {LENGTH} tokens; "
        "one middle training each, which all fine-tuning seeds share. SPLADE, where it is run, is searched with the "
        f"{QUERY_TERMS} heaviest words of a query and {PASSAGE_TERMS} of a passage."
    )
    return Benchmark(
        name="collections",
        title=f"What the middle training reads: {other}, {own}, both, or nothing",
        corpus=given.corpus,
        systems=("bm25", "none", *ON_EVERY_COLLECTION),
        collections={other: given.pretrain_on, own: (), "both": (given.corpus, *given.pretrain_on)},
        only={other: ON_EVERY_COLLECTION, "both": ON_EVERY_COLLECTION},
        representations=("dense", "splade"),
        settings={"in_batch": Setting(protocols=IN_BATCH)},
        seeds=(0, 1, 2),
        measures=("RR@10", "nDCG@10", "R@100"),
        baseline="none",
        notes=(equal,) if given.scale == "demo" else conditions(given, "Lassance et al. 2023"),
        **sizes(given, toy, own={"splade": pruned}),
    )


BACKBONE = "minilm"

MAIN_SYSTEMS = ("none", "mlm", "retromae", "dupmae")
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
    allowed: dict[str, tuple[str, ...]] = {name: MAIN_SYSTEMS for name in settings if name != WIDE}
    allowed |= {name: LEXICAL for name in ("splade", "hybrid", "all labels", f"{WIDE} mined")}
    allowed["late"] = MAIN_SYSTEMS
    return Benchmark(
        name="pretrained",
        scale=given.scale,
        title="Middle training of all-MiniLM-L6-v2, against labelled queries",
        corpus=given.corpus,
        systems=("bm25", *MAIN_SYSTEMS, *BESIDE),
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


BOTH = ("none", "mlm", "retromae", "dupmae", "lexmae", "cotmae_v2", "cotmote")
"""Systems with a hybrid row."""


def demo(given: Given = TOY_GIVEN) -> Benchmark:
    """One stage with in-batch negatives for all: dense, SPLADE, and DupMAE's "384+384" in the first of its stages.

    Hybrid rows are for the methods that train [CLS] and the words of ordinary tokens together (DupMAE, LexMAE, CoT-MAE
    v2, CoT-MoTE), RetroMAE, whose vector DupMAE extends, and the two floors.
    """
    protocols = {"dense": "in_batch", "splade": "in_batch_splade", "hybrid": "dupmae"}
    return Benchmark(
        name="demo",
        title="Middle trainings side by side, at demo size",
        corpus=given.corpus,
        systems=("bm25", "none", "mlm", "retromae", "dupmae", "lexmae"),
        collections={"corpus": (), **given.elsewhere("elsewhere")},
        representations=("dense", "splade", "hybrid"),
        only={"hybrid": BOTH},
        settings={"in_batch": Setting(protocols=protocols, stages=1)},
        seeds=(0,),
        measures=("RR@10", "nDCG@10", "R@100"),
        baseline="none",
        notes=(
            "Backbone tiny (2 layers of 128, random weights), an own vocabulary of 2,048, passages of 48 tokens; "
            "600 steps of 16 rows of middle training, 60 steps of 32 queries of fine-tuning.",
        )
        if given.scale == "demo"
        else (),
        **sizes(given),
    )


PRESETS: Registry[Callable[[Given], Benchmark]] = Registry(
    "preset",
    {
        "demo": demo,
        "sigir23": sigir23,
        "dupmae": dupmae,
        "retromae": retromae,
        "cotmote": cotmote,
        "rom": rom,
        "collections": collections,
        "pretrained": pretrained,
    },
)


OWN = {"corpus", "measures", "notes"}
"""Fields that may differ between the collections of one run."""


def on_several(name: str, given: Given, further: Sequence[str]) -> Benchmark:
    """The benchmark of a preset on the given corpus and on further ones.

    Raises:
        UserError: for a preset that compares something else on a further corpus, or a corpus that is given twice.
    """
    first, given_so_far, beside = PRESETS[name](given), [given.corpus], []
    for corpus in further:
        if corpus in given_so_far:
            raise UserError(f"--corpus {corpus} is given twice; give each collection once")
        given_so_far.append(corpus)
        there = PRESETS[name](replace(given, corpus=corpus))
        if first.model_dump(exclude=OWN) != there.model_dump(exclude=OWN):
            raise UserError(
                f"--corpus {corpus}: --preset {name} compares something else there than on {given.corpus}; give each "
                "of the two a command with one --corpus"
            )
        beside.append({"corpus": corpus, "measures": there.measures})
    return Benchmark.model_validate({**first.model_dump(), "further": beside})
