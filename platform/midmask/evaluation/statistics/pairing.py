"""Two systems on the queries that both have: how often either wins, and where they differ most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from midmask.core.arrays import Doubles
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.intervals import tables_of

EQUAL = 1e-9
"""Values that differ by less are a tie: measures are sums in float64."""

Sided = Literal["either", "wins", "losses"]


@dataclass(frozen=True)
class Pairing:
    """Values of a measure on the queries that two systems share, means over their seeds."""

    queries: tuple[str, ...]  # ids, ascending
    own_N: Doubles
    base_N: Doubles  # of the system that it is held against
    left_out: int = 0  # queries that only one of the two has

    @property
    def difference_N(self) -> Doubles:
        return self.own_N - self.base_N

    @property
    def values(self) -> dict[str, tuple[float, float]]:
        """Maps each query to the values of both systems."""
        return dict(zip(self.queries, zip(self.own_N.tolist(), self.base_N.tolist(), strict=True), strict=True))

    @property
    def wins(self) -> int:
        return int((self.difference_N > EQUAL).sum())

    @property
    def losses(self) -> int:
        return int((self.difference_N < -EQUAL).sum())

    @property
    def ties(self) -> int:
        return len(self.queries) - self.wins - self.losses


def pair_systems(system: pa.Table | Sequence[pa.Table], base: pa.Table | Sequence[pa.Table], measure: str) -> Pairing:
    """A system against another, by their tables (query_id, measure, value), one or one per seed."""
    values, others = _seed_means(system, measure), _seed_means(base, measure)
    shared = sorted(values.keys() & others.keys())
    return Pairing(
        tuple(shared),
        np.array([values[query] for query in shared]),
        np.array([others[query] for query in shared]),
        len(values.keys() ^ others.keys()),
    )


def _seed_means(tables: pa.Table | Sequence[pa.Table], measure: str) -> dict[str, float]:
    """Query -> its mean value over the seeds, for the queries that all seeds have."""
    seeds = [by_query(table, measure) for table in tables_of(tables)]
    shared = set.intersection(*(set(values) for values in seeds))
    return {query: float(np.mean([values[query] for values in seeds])) for query in shared}


def widest(pairing: Pairing, count: int, side: Sided = "either") -> list[str]:
    """The queries that differ most, those of equal difference by their ids; ties are none."""
    difference_N = pairing.difference_N
    sizes_N = {"either": np.abs(difference_N), "wins": difference_N, "losses": -difference_N}[side]
    order = sorted(range(len(sizes_N)), key=lambda at: (-sizes_N[at], pairing.queries[at]))
    return [pairing.queries[at] for at in order[:count] if sizes_N[at] > EQUAL]
