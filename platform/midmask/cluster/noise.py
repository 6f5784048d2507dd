"""How trials of a sweep stand to the best one, and the noise floor: how small a difference may be and still be found.

Two trials differ by chance in two ways: the queries are a sample (paired, so that only differences count), and so are
the fine-tuning seeds, which shift all queries of a trial together and which no test over queries sees. The standard
error of a difference therefore has two parts,

    e² = var(d) / n + 2 s² / k

d: differences per query, n of them; s: standard deviation of the measure over seeds, pooled over systems that were
fine-tuned more than once; k: seeds that a trial is the mean of. Part of a trial's own seed is in d too, so e is rather
too large than too small. The degrees of freedom are Welch and Satterthwaite's (Satterthwaite 1946, eq. 17).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy import stats

from midmask.evaluate.inference import POWER, Values, correct, strictest_level
from midmask.evaluate.measures import by_query
from midmask.evaluate.significance import tables_of

ALPHA = 0.05

Tables = Mapping[str, pa.Table | Sequence[pa.Table]]


@dataclass(frozen=True)
class SeedSpread:
    """How much the fine-tuning seed alone moves a measure's mean.

    spread: standard deviation, pooled; degrees: its degrees of freedom, 0 where nothing was repeated.
    """

    spread: float
    degrees: int


@dataclass(frozen=True)
class Standing:
    """A trial against the best one: its mean less the best's. p: for this difference alone; p_corrected: Holm's, for
    all trials of the sweep. detectable: the smallest true difference that such a comparison finds with a probability of
    0.8, at the strictest level of the family.
    """

    difference: float
    p: float
    p_corrected: float
    detectable: float

    @property
    def is_distinguishable(self) -> bool:
        return self.p_corrected < ALPHA


def seed_spread(groups: Sequence[Sequence[float]]) -> SeedSpread:
    """From means of systems, one list per system with a mean per seed."""
    repeated = [np.asarray(group, dtype=np.float64) for group in groups if len(group) > 1]
    degrees = sum(len(group) - 1 for group in repeated)
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in repeated)
    return SeedSpread(math.sqrt(squares / degrees) if degrees else 0.0, degrees)


def standings(tables: Tables, best: str, measure: str, seeds: SeedSpread) -> dict[str, Standing]:
    """Every other trial against the best.

    Args:
        tables: trial -> its values per query (query_id, measure, value), one table per seed, all of the same queries.
    """
    values = {name: _per_query(own, measure) for name, own in tables.items()}
    others = [name for name in values if name != best]
    level = strictest_level(ALPHA, len(others), "holm")
    rows = []
    for name in others:
        difference = values[name] - values[best]
        error, degrees = standard_error(difference, seeds, repeats=len(tables_of(tables[name])))
        mean = float(difference.mean())
        rows.append((mean, _p(mean, error, degrees), detectable(error, degrees, level)))
    corrected = correct([p for _, p, _ in rows], "holm")
    return {
        name: Standing(mean, p, adjusted, found)
        for name, (mean, p, found), adjusted in zip(others, rows, corrected, strict=True)
    }


def standard_error(difference: Values, seeds: SeedSpread, *, repeats: int) -> tuple[float, float]:
    """Of the mean of paired differences, and its degrees of freedom; 0 and 1 where nothing varies."""
    count = len(difference)
    parts = [(float(difference.var(ddof=1)) / count, count - 1)] if count > 1 else []
    if seeds.degrees:
        parts.append((2 * seeds.spread**2 / repeats, seeds.degrees))
    total = sum(part for part, _ in parts)
    if not total:
        return 0.0, 1.0
    return math.sqrt(total), total**2 / sum(part**2 / degrees for part, degrees in parts)


def detectable(error: float, degrees: float, level: float) -> float:
    """The smallest true difference that a two-sided t-test at this level finds with probability `POWER`."""
    return float(stats.t.ppf(1 - level / 2, degrees) + stats.t.ppf(POWER, degrees)) * error


def noise_floor(found: Mapping[str, Standing]) -> float | None:
    """The middle of the smallest detectable differences; none for a single trial."""
    return float(np.median([one.detectable for one in found.values()])) if found else None


def _p(mean: float, error: float, degrees: float) -> float:
    if not error:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stats.t.sf(abs(mean) / error, degrees))


def _per_query(tables: pa.Table | Sequence[pa.Table], measure: str) -> Values:
    """Means over seeds, in the order of the query ids."""
    runs = [by_query(table, measure) for table in tables_of(tables)]
    values: Values = np.mean([[run[query] for query in sorted(runs[0])] for run in runs], axis=0)
    return values
