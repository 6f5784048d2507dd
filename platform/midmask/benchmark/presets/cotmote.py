"""Tables 1, 3, 4 and 5 of CoT-MoTE (Ma et al. 2023)."""

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given, conditions, sizes

EXPERTS = ("cotmote", "cotmote_siamese", "cotmote_separate", "cotmote_switched")


def cotmote(given: Given = TOY_GIVEN) -> Benchmark:
    """CoT-MoTE and its controls in two stages and after the first (Tables 3 to 5), and CoT-MAE with one encoder or two
    (Table 1). Dense and sparse rows are the hybrid's own views: one training, searched three ways.
    """
    views = Setting(protocols={"dense": "cotmote", "splade": "cotmote", "hybrid": "cotmote"}, by_view=True)
    pilot = ("cotmae", "cotmae[experts=all]")
    return Benchmark(
        name="cotmote",
        title="CoT-MoTE: the tables of Ma et al. (2023)",
        corpus=given.corpus,
        systems=("bm25", *pilot, *EXPERTS),
        collections={"corpus": (), **given.elsewhere("wiki")},
        only={"cotmote": EXPERTS, "cotmote_stage1": ("cotmote",), "cotmae": pilot},
        representations=("dense", "splade", "hybrid"),
        settings={
            "cotmote": views,
            "cotmote_stage1": views.model_copy(update={"stages": 1}),
            "cotmae": Setting(protocols={"dense": "cotmae"}),
        },
        measures=("cotmote",),
        baseline="cotmote_siamese",
        maps=pilot,
        notes=conditions(given, "Ma et al. 2023"),
        **sizes(given),
    )
