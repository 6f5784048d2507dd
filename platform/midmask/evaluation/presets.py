"""Sets of measures by name, as the papers report them; a preset can be given wherever ir-measures names can.

Papers write MRR@10 for RR@10, and Recall@k or R@k on NQ for Success@k by answer strings.
"""

from collections.abc import Sequence

from midmask.errors import UserError
from midmask.evaluation import measures
from midmask.registry import Registry

PRESETS: Registry[tuple[str, ...]] = Registry(
    "preset of measures",
    {
        # MS MARCO dev as most papers print it (DupMAE's table 1, CoT-MoTE's table 2).
        "msmarco": ("RR@10", "R@50", "R@1000"),
        # Lassance et al. 2023: tables 1 to 4, R@100 in table 6, nDCG@10 on TREC DL and BEIR.
        "sigir23": ("RR@10", "R@100", "R@1000", "nDCG@10"),
        # Xiao et al. 2022, MS MARCO and BEIR.
        "retromae": ("RR@10", "RR@100", "R@10", "R@100", "R@1000", "nDCG@10"),
        # Xiao et al. 2023, tables 1 and 3.
        "dupmae": ("RR@10", "RR@100", "R@10", "R@50", "R@100", "R@1000", "nDCG@10"),
        # Ma et al. 2023, tables 2 to 5.
        "cotmote": ("RR@10", "R@1", "R@50", "R@1000", "nDCG@10"),
        # Graded gain from all grades; relevant, where only that counts, is grade 2 or 3 (Craswell et al. 2020).
        "trec-dl": ("nDCG@10", "RR(rel=2)@10", "AP(rel=2)@1000", "R(rel=2)@100", "R(rel=2)@1000"),
        # Thakur et al. 2021.
        "beir": ("nDCG@10", "R@100"),
        # Karpukhin et al. 2020 (5, 20, 100) and RetroMAE's table (10, 30, 50, 100).
        "nq": ("Success@5", "Success@10", "Success@20", "Success@30", "Success@50", "Success@100"),
        # Rekabsaz et al. 2021; Hofstätter et al. 2022.
        "tripclick": ("nDCG@10", "RR@10", "R@100"),
        # Every cut that one of these papers prints.
        "papers": (
            "RR@10",
            "RR@100",
            "nDCG@10",
            *(f"R@{cut}" for cut in (1, 10, 20, 30, 50, 100, 1000)),
        ),
    },
)


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """The ir-measures names for these names, with presets expanded: each once, in order of first mention.

    Raises:
        UserError: for a name that is neither a measure nor a preset, naming the nearest, or one that is given twice.
    """
    presets = set(PRESETS)
    own = [name for name in names if name not in presets]
    try:
        written = dict(zip(own, map(str, measures.parse(own)), strict=True))
    except UserError as error:
        raise UserError(f"{error} Or a preset: {', '.join(sorted(presets))}.") from None
    found: dict[str, None] = {}
    for name in names:
        found.update(dict.fromkeys(PRESETS[name] if name in presets else (written[name],)))
    return tuple(found)
