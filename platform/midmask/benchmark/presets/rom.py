"""Retrieval-oriented masking against random masks (ROM, Long et al. 2022). Its tables are not in the text at hand
(methods.md 14.5): what is compared is what its abstract says.
"""

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given, conditions, sizes


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
