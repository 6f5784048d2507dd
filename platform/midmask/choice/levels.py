"""How high a system scores on queries that people ask, given its score on made ones: known far less well than gains.

Made queries are as hard as their source makes them, people's as hard as people do, so the two levels differ by an
offset that varies from collection to collection. Collections with judgements say how much.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from midmask.evaluation.statistics.intervals import Variance

FILE = Path(__file__).with_name("levels.jsonl")

PRIOR_SPREAD, PRIOR_FREEDOM = 0.15, 4
"""Standard deviation of offsets of nDCG@10 that is assumed until two collections have been measured, and how many
degrees of freedom it counts as afterwards.
"""


@dataclass(frozen=True)
class LevelRecord:
    """The baseline's measure on made and on judged queries of a collection; source: of the made queries."""

    collection: str
    source: str
    made: float
    judged: float


def load_levels(path: Path = FILE) -> list[LevelRecord]:
    return [LevelRecord(**json.loads(line)) for line in path.read_text("utf-8").splitlines() if line.strip()]


def write_levels(records: Iterable[LevelRecord], path: Path) -> None:
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in records), "utf-8")


def level_interval(made: float, records: Sequence[LevelRecord], coverage: float) -> tuple[float, float, float]:
    """(estimate, low, high) of the measure on queries that people ask.

    A prediction interval of a new collection's offset: mean ± t · s · sqrt(1 + 1/n) over n collections, each the mean
    of its records. In s² the prior's variance counts as its degrees of freedom beside n - 1, as in
    `agreement.with_prior`.
    """
    names = dict.fromkeys(one.collection for one in records)
    offsets = [np.mean([one.judged - one.made for one in records if one.collection == name]) for name in names]
    if len(offsets) < 2:
        middle, margin = made, float(stats.norm.ppf((1 + coverage) / 2)) * PRIOR_SPREAD
    else:
        own = Variance(float(np.var(offsets, ddof=1)), len(offsets) - 1)
        found = Variance(PRIOR_SPREAD**2, PRIOR_FREEDOM).pooled(own)
        spread, wide = math.sqrt(found.value), float(stats.t.ppf((1 + coverage) / 2, found.freedom))
        middle, margin = made + float(np.mean(offsets)), wide * spread * math.sqrt(1 + 1 / len(offsets))
    return middle, middle - margin, middle + margin
