"""Tables 1 to 5 of CoT-MoTE (Ma et al. 2023)."""

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given, conditions, sizes

EXPERTS = ("cotmote", "cotmote_siamese", "cotmote_separate", "cotmote_switched")

MAPPED = ("cotmote", "cotmote_siamese", "cotmote_separate")
"""Whose embeddings Figure 4 draws."""

UNTOLD = ("simlm", "seed", "retromae")
"""Systems of Table 2 and of BEIR's whose fine-tuning the paper does not tell: they get CoT-MAE's."""


def cotmote(given: Given = TOY_GIVEN) -> Benchmark:
    """CoT-MoTE and its controls in two stages and after the first (Tables 3 to 5), and CoT-MAE with one encoder or two
    (Table 1), the embeddings of both kinds mapped. Dense and sparse rows are the hybrid's own views: one training,
    searched three ways. Beside them, the systems of Table 2 that are implemented, each fine-tuned as its authors did;
    BEIR is `--zero-shot beir14:FOLDER`.
    """
    views = Setting(protocols={"dense": "cotmote", "splade": "cotmote", "hybrid": "cotmote"}, by_view=True)
    pilot = ("cotmae", "cotmae[experts=all]")
    own = {"cocondenser": "cocondenser", "lexmae": "lexmae_stage2"}
    target = (*pilot, *EXPERTS, "cotmae_v2", "simlm", *own)
    return Benchmark(
        name="cotmote",
        title="CoT-MoTE: the tables of Ma et al. (2023)",
        corpus=given.corpus,
        systems=("bm25", *target, "seed", "retromae"),
        collections={"corpus": (), **given.elsewhere("wiki")},
        only={
            **given.general("wiki", target, ("seed", "retromae", "cotmote")),
            "cotmote": (*EXPERTS, "cotmae_v2"),
            "cotmote_stage1": ("cotmote",),
            "cotmae": (*pilot, *UNTOLD),
            **{setting: (system,) for system, setting in own.items()},
        },
        representations=("dense", "splade", "hybrid"),
        settings={
            "cotmote": views,
            "cotmote_stage1": views.model_copy(update={"stages": 1}),
            "cotmae": Setting(protocols={"dense": "cotmae"}),
            "cocondenser": Setting(protocols={"dense": "cocondenser"}),
            "lexmae_stage2": Setting(protocols={"splade": "lexmae"}, stages=2),
        },
        measures=("cotmote",),
        baseline="cotmote_siamese",
        maps=(*pilot, *MAPPED),
        notes=conditions(given, "Ma et al. 2023"),
        **sizes(given),
    )
