"""Tables 1 to 3 of DupMAE (Xiao et al., ACL 2023)."""

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given, conditions, sizes

GENERAL = ("seed", "condenser")
"""Systems whose authors pre-trained them on Wikipedia and books."""


def dupmae(given: Given = TOY_GIVEN) -> Benchmark:
    """RetroMAE and DupMAE with hard negatives (stage 2) and distilled (stage 3), what either decoder and either half of
    the representation brings (Table 3), and SEED, Condenser, coCondenser and SimLM beside them (Table 1). Table 2 is
    `--zero-shot beir18:FOLDER`.
    """
    both = Setting(protocols={"dense": "dupmae_cls", "hybrid": "dupmae"})
    parts = {
        "dupmae_cls_stage2": Setting(protocols={"dense": "dupmae_cls"}, stages=2),
        "dupmae_ot_stage2": Setting(protocols={"lexical": "dupmae_ot"}, stages=2),
    }
    others = {name: Setting(protocols={"dense": name}) for name in ("cocondenser", "retromae_distil")}
    ours = ("dupmae", "dupmae[decode=cls]", "dupmae[decode=ot]", "dupmae[representation.passage_terms=260]")
    target = ("cocondenser", "simlm", "retromae", *ours)
    return Benchmark(
        name="dupmae",
        title="DupMAE: the tables of Xiao et al. (ACL 2023)",
        corpus=given.corpus,
        systems=("bm25", "none", *GENERAL, *target),
        collections={"corpus": (), **given.elsewhere("wiki")},
        only={
            **given.general("wiki", target, (*GENERAL, "retromae")),
            "hybrid": ours,
            "dense": ("none", *GENERAL, "cocondenser", "simlm", "retromae", "dupmae"),
            "lexical": ("dupmae",),
            "dupmae_cls_stage2": ("dupmae",),
            "cocondenser": ("cocondenser",),
            "retromae_distil": ("retromae",),
        },
        representations=("dense", "lexical", "hybrid"),
        settings={"dupmae_stage2": both.model_copy(update={"stages": 2}), "dupmae": both, **parts, **others},
        measures=("dupmae",),
        baseline="retromae",
        notes=conditions(given, "Xiao et al. 2023"),
        **sizes(given),
    )
