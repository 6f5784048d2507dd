"""Tables 1 to 7 of "Benchmarking Middle-Trained Language Models for Neural Search" (Lassance et al., SIGIR 2023)."""

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given, conditions, sizes

SUBSETS = {"demo": {"50k": 500, "100k": 1000}, "published": {"50k": 50_000, "100k": 100_000}}
"""Train queries of its Tables 5 and 6; a demo has 2,738 in all."""


def sigir23(given: Given = TOY_GIVEN) -> Benchmark:
    """Seven systems, dense and SPLADE, in four settings (Tables 1 to 4), and with few queries (5, 6). RetroMAE on
    Wikipedia is run where --pretrain-on names it. Table 7 is `--corpus tripclick:FOLDER --settings sigir23_1neg`;
    BEIR's columns are `--zero-shot beir13:FOLDER`.
    """
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
