"""Benchmarks of papers, with the systems and settings of their tables.

sigir23   Tables 1 to 7 of "Benchmarking Middle-Trained Language Models for Neural Search" (Lassance et al., 2023)
dupmae    Tables 1 to 3 of DupMAE (Xiao et al., ACL 2023)
retromae  RetroMAE's main results and its table of factors (Xiao et al., EMNLP 2022)
cotmote   Tables 1 to 5 of CoT-MoTE (Ma et al. 2023)
rom       Retrieval-oriented masking against random masks (ROM, Long et al. 2022); its tables are not in the text at
          hand (methods.md 14.5), so what is compared is what its abstract says
"""

from midmask.benchmark.design import TOY_GIVEN, Benchmark, Given, Setting, conditions, sizes

SUBSETS = {"demo": {"50k": 500, "100k": 1000}, "published": {"50k": 50_000, "100k": 100_000}}
"""Train queries of its Tables 5 and 6; a demo has 2,738 in all."""

FROM_SCRATCH = "mlm[fresh=true]"
"""MLM from random weights of BERT's size."""


def sigir23(given: Given = TOY_GIVEN) -> Benchmark:
    """Seven systems, dense and SPLADE, in four settings (Tables 1 to 4), and with few queries (5, 6). RetroMAE on
    Wikipedia is run where --pretrain-on names it. BEIR's columns are `--zero-shot beir13:FOLDER`. Table 7 is
    `--corpus tripclick:FOLDER`.
    """
    if given.corpus.startswith("tripclick:"):
        return _table7(given)
    settings = {name: _setting(name) for name in ("sigir23_1neg", "sigir23_32neg")}
    settings |= {name: _setting(name) for name in ("sigir23_1neg_distil", "sigir23_32neg_distil")}
    for label, queries in SUBSETS[given.scale].items():
        few = _setting("sigir23_32neg_distil")
        changes = {"stages.*.queries": queries, "stages.*.mine.max_queries": None}
        settings[f"sigir23_32neg_distil_{label}"] = few.model_copy(update={"changes": changes})
    return Benchmark(
        name="sigir23",
        title="Middle training for neural search: the tables of Lassance et al. (SIGIR 2023)",
        corpus=given.corpus,
        systems=("bm25", "none", "mlm", "mlm_cls_tf", "cocondenser", "retromae", "lexmae"),
        collections={"corpus": (), **given.elsewhere("wiki")},
        only={"wiki": ("retromae",)} if given.pretrain_on else {},
        representations=("dense", "splade"),
        settings=settings,
        measures=("sigir23",),
        baseline="none",
        notes=conditions(given, "Lassance et al. 2023"),
        **sizes(given),
    )


def _setting(name: str) -> Setting:
    return Setting(protocols={"dense": name, "splade": f"{name}_splade"})


def _table7(given: Given) -> Benchmark:
    """Middle trainings on MS MARCO (`--pretrain-on msmarco:FOLDER`) and on Wikipedia (any other `--pretrain-on`),
    fine-tuned and evaluated on TripClick, beside MLM from scratch on TripClick itself. What --pretrain-on does not name
    is trained on the corpus instead.
    """
    read = {
        "msmarco": tuple(name for name in given.pretrain_on if name.startswith("msmarco:")),
        "wiki": tuple(name for name in given.pretrain_on if not name.startswith("msmarco:")),
    }
    elsewhere = {"msmarco": ("mlm", "mlm_cls_tf", "cocondenser", "lexmae"), "wiki": ("retromae",)}
    known = {label: names for label, names in read.items() if names}
    here = [name for label, names in elsewhere.items() if label not in known for name in names]
    return Benchmark(
        name="sigir23",
        title="Middle training elsewhere, fine-tuned on TripClick: Table 7 of Lassance et al. (SIGIR 2023)",
        corpus=given.corpus,
        systems=("bm25", "none", FROM_SCRATCH, *elsewhere["msmarco"], *elsewhere["wiki"]),
        collections={"corpus": (), **known},
        only={"corpus": (FROM_SCRATCH, *here), **{label: elsewhere[label] for label in known}},
        settings={"sigir23_1neg": _setting("sigir23_1neg")},
        measures=("tripclick",),
        measure="nDCG@10",
        baseline="none",
        notes=conditions(given, "Lassance et al. 2023"),
        **sizes(given),
    )


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


FACTORS = (
    "decoding=basic",
    "decoding=basic,decoder_layers=2",
    "decoding=basic,decoder_layers=3",
    "decoder_mask_ratio=0.15",
    "decoder_mask_ratio=0.9",
    "decoding=basic,decoder_mask_ratio=0.15",
    "decoding=basic,decoder_mask_ratio=0.7",
    "decoding=basic,decoder_mask_ratio=0.9",
    "encoder_mask_ratio=0.15",
    "encoder_mask_ratio=0.9",
)
"""What its Table 6 changes, one row each; the defaults are RetroMAE itself."""


def retromae(given: Given = TOY_GIVEN) -> Benchmark:
    """BERT, SEED, Condenser, coCondenser and RetroMAE as DPR and ANCE are fine-tuned, RetroMAE distilled too; and each
    factor under DPR's protocol. NQ is `--corpus nq:FOLDER`, alone or after MS MARCO's --corpus, by its answers'
    strings; BEIR's sets are `--zero-shot beir18:FOLDER`.
    """
    variants = tuple(f"retromae[{fields}]" for fields in FACTORS)
    systems = ("none", "seed", "condenser", "cocondenser", "retromae")
    settings = {name: Setting(protocols={"dense": name}) for name in ("dpr", "ance", "retromae_distil")}
    return Benchmark(
        name="retromae",
        title="RetroMAE: main results and factors of Xiao et al. (EMNLP 2022)",
        corpus=given.corpus,
        systems=("bm25", *systems, *variants),
        collections={"corpus": (), **given.elsewhere("wiki")},
        only={"ance": systems, "retromae_distil": ("retromae",)},
        settings=settings,
        measures=("nq",) if given.corpus.startswith("nq:") else ("retromae",),
        baseline="none",
        notes=conditions(given, "Xiao et al. 2022"),
        **sizes(given),
    )


EXPERTS = ("cotmote", "cotmote_siamese", "cotmote_separate", "cotmote_switched")

UNTOLD = ("simlm", "seed", "retromae")
"""Systems of Table 2 and of BEIR's whose fine-tuning the paper does not tell: they get CoT-MAE's."""


def cotmote(given: Given = TOY_GIVEN) -> Benchmark:
    """CoT-MoTE and its controls in two stages and after the first (Tables 3 to 5), and CoT-MAE with one encoder or two
    (Table 1). Dense and sparse rows are the hybrid's own views: one training,
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
        notes=conditions(given, "Ma et al. 2023"),
        **sizes(given),
    )


def rom(given: Given = TOY_GIVEN) -> Benchmark:
    """No middle training, random masks, and ROM's, dense with one BM25 negative."""
    return Benchmark(
        name="rom",
        title="Retrieval-oriented masking (Long et al. 2022) against random masks",
        corpus=given.corpus,
        systems=("bm25", "none", "mlm", "rom"),
        collections={"corpus": (), **given.elsewhere("wiki")},
        settings={name: Setting(protocols={"dense": name}) for name in ("in_batch", "dpr")},
        measures=("RR@10", "nDCG@10", "R@100"),
        baseline="mlm",
        notes=conditions(given, "Long et al. 2022"),
        **sizes(given),
    )
