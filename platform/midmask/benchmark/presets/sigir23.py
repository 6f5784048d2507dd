"""Tables 1 to 7 of "Benchmarking Middle-Trained Language Models for Neural Search" (Lassance et al., SIGIR 2023)."""

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given, conditions, sizes

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
