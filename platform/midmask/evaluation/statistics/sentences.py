"""What a test of two systems found, in words."""

import math

from midmask.evaluation.statistics.significance import Comparison


def sentence(row: Comparison, place: str, tests: int = 1) -> str:
    """What a test says of a system and the first: which is better and by how much, or what could have been found.

    Args:
        tests: how many its p is corrected for.
    """
    both = f"{row.system} and {row.baseline}"
    if row.difference == 0 and row.detectable == 0:
        return f"{both} have the same {row.measure} on each of the {row.queries:,} queries of {place}: {row.mean:.4f}."
    if not row.significant:
        power = f" A true difference of {row.detectable:.4f} would be found with a probability of 0.8."
        return (
            f"{both} are not distinguishable on {place}: {row.measure} {row.mean:.4f} and "
            f"{row.baseline_mean:.4f}, a difference of {row.difference:+.4f} ({_tested(row, 1, tests)})."
            f"{power if math.isfinite(row.detectable) else ''}"
        )
    sign = 1 if row.difference > 0 else -1
    better, worse = [(row.system, row.mean), (row.baseline, row.baseline_mean)][::sign]
    return (
        f"{better[0]} is better than {worse[0]} on {place}: {row.measure} {better[1]:.4f} against {worse[1]:.4f}, a "
        f"difference of {abs(row.difference):.4f} ({_tested(row, sign, tests)})."
    )


def _tested(row: Comparison, sign: int, tests: int) -> str:
    low, high = sorted((sign * row.low, sign * row.high))
    corrected = " after Holm's correction" if tests > 1 else ""
    return f"95% interval {low:+.4f} to {high:+.4f}, {p_text(row, 'p = ', 'p ')}{corrected}, {row.queries:,} queries"


def p_text(row: Comparison, equal: str = "", below: str = "") -> str:
    """The corrected p; `equal` and `below` go before a value and before "< 0.0001"."""
    return f"{below}< 0.0001" if row.p_corrected < 1e-4 else f"{equal}{row.p_corrected:.2g}"
