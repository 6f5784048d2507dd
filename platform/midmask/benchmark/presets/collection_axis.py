"""What the middle training reads as an axis: the main finding of Lassance et al. (SIGIR 2023)."""

from midmask.benchmark.design import IN_BATCH, Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given, conditions, sizes
from midmask.corpora import CorpusConfig
from midmask.errors import UserError

LENGTH = 64
"""Tokens of a row. Nearly every passage is longer, so that equal steps are equal tokens."""

STEPS = 1500

QUERY_TERMS, PASSAGE_TERMS = 64, 256
"""Heaviest words of a text that SPLADE is searched with. Its regularisers are made for 150,000 steps; 300 leave 3,200
to 7,200 of 8,192 words in a passage, which is not sparse, and no inverted index searches it faster than a matrix.
"""

AXIS = ("mlm", "retromae", "dupmae")
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
        systems=("bm25", "none", *AXIS),
        collections={other: given.pretrain_on, own: (), "both": (given.corpus, *given.pretrain_on)},
        only={other: AXIS, "both": AXIS},
        representations=("dense", "splade"),
        settings={"in_batch": Setting(protocols=IN_BATCH)},
        seeds=(0, 1, 2),
        measures=("RR@10", "nDCG@10", "R@100"),
        baseline="none",
        notes=(equal,) if given.scale == "demo" else conditions(given, "Lassance et al. 2023"),
        **sizes(given, toy, own={"splade": pruned}),
    )
