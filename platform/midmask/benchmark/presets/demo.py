"""The demo: middle trainings side by side on the built-in corpus, in three representations.

The sum for `--systems all` from cached tokens, in seconds of one core (2 cores of an AMD EPYC, one thread a task):

    middle training     20 × 600 steps of 16 rows: 0.05 (MLM) to 0.3 (CoT-MoTE) a step         1,800
    fine-tuning         60 steps: 21 dense at 0.09, 19 SPLADE at 0.18, 7 hybrid at 0.25            435
    encoding, search    47 encoders: 3 s dense, 8 s with words                                     310
                                                                                     together    2,550

which two cores do in 22 minutes; measured, with Ray, the driver and MLflow: 19 (docs/results/every_method_demo.md).
"""

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given, sizes

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
