"""The report of a finished sweep, from its result: its trials as a table, and sentences on what was measured.

Sentences do not claim more than was measured, and each names the split that it is about: trials are chosen on dev, and
the chosen ones reported on test.
"""

from collections.abc import Iterator, Mapping, Sequence

from midmask.core.words import MISSING, number_cell
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.significance import ComparisonOutcome
from midmask.experiment.notes import notes
from midmask.experiment.report import System, comparison_table
from midmask.sweep.sweep_file import DifferenceToFloor, SweepPoint, SweepResult, value_text

OUTCOMES: Mapping[ComparisonOutcome, str] = {
    "better": "is better than",
    "worse": "is worse than",
    "equal": "is within the noise of",
    "undecided": "was measured on too few queries to be told from",
}
"""Outcome of a comparison -> its words in a sentence."""


def full_report(sweep: SweepResult, compared: Sequence[System]) -> str:
    """The verdict in a sentence, the trials, the comparison, and what else follows from them, a sentence each."""
    first, *others = sweep.sentences
    measures = [name for name in compared[-1].evaluations["test"][0].result["measures"] if name != sweep.measure]
    parts = [
        first,
        f"Trials on {sweep.corpus} dev ({len(sweep.points)}):",
        trials_table(sweep),
        f"Comparison on {sweep.corpus} (chosen on dev; test is reported once, for these systems alone):",
        comparison_table(compared, sweep.floor, sweep.measure, measures),
        notes({f"{one.label}, {split}": done[0] for one in compared for split, done in one.evaluations.items()}),
        *others,
    ]
    return "\n\n".join(parts)


def summary(sweep: SweepResult, compared: Sequence[System]) -> str:
    """The verdict on test in a sentence, and the comparison by the measure alone."""
    table = comparison_table(compared, sweep.floor, sweep.measure)
    return f"{winner_sentence(sweep, ['test'])}\n\n{table}"


def trials_table(sweep: SweepResult) -> str:
    """A Markdown table with a row per trial in the order of asking: its parameters, measurements, comparison with the
    best, and end.
    """
    parameters = [one for one in sweep.parameters if not one.constant]
    objectives = [one.measure for one in sweep.objectives]
    probes = range(max((len(point.probes) for point in sweep.points), default=0))
    headers = [*(one.label for one in parameters), *(f"probe {number + 1}" for number in probes), *objectives]
    rows = []
    for point in sweep.points:
        tried, row = point.parameters, point.to_best
        cells = [value_text(tried[one.path]) if one.path in tried else MISSING for one in parameters]
        cells += [f"{point.probes[number]:.4f}" if number < len(point.probes) else MISSING for number in probes]
        cells += [number_cell(point.values.get(sweep.measure), ".4f")]
        cells += [number_cell(point.values.get(sweep.cost), ".5g")] if sweep.cost else []
        cells += [_signed(row.difference), number_cell(row.p_corrected, ".2g")] if row else [MISSING, MISSING]
        rows.append([*cells, _end(sweep, point)])
    return markdown([*headers, "to the best", "p (Holm)", "end"], rows)


def _end(sweep: SweepResult, point: SweepPoint) -> str:
    """How a trial ended, whether it is on the front, and the name that the space gives to it."""
    front = "on the front" if sweep.cost and point.front else None
    return ", ".join(filter(None, ("complete" if point.complete else "pruned", front, point.mark)))


def sentences(sweep: SweepResult) -> Iterator[str]:
    """The conclusions of the sweep, the most important first."""
    yield winner_sentence(sweep)
    if sweep.cost:
        front = sum(point.front for point in sweep.complete)
        yield f"{front} of {len(sweep.complete)} points are on the front of {sweep.measure} and {sweep.cost} on dev."
    if sweep.noise_floor:
        yield noise_sentence(sweep)


def winner_sentence(sweep: SweepResult, splits: Sequence[str] = ("test", "dev")) -> str:
    """Whether the winner is better than the floor on test, where it is reported, and on dev, where it was chosen; with
    the estimate, interval and p on these splits.
    """
    winner, floor = sweep.systems[0], sweep.floor
    on_test, on_dev = (OUTCOMES[winner.to_floor[split].outcome] for split in ("test", "dev"))
    if on_test == on_dev:
        headline = f"{winner.label} {on_test} {floor}, on test and on dev."
    else:
        headline = (
            f"On test, {winner.label} {on_test} {floor}; on dev, where it was chosen, it {on_dev} it. "
            "The result on test is the unbiased one."
        )
    figures = "; ".join(f"{split} {_figures(winner.means[split], winner.to_floor[split])}" for split in splits)
    seeds = f"{len(winner.test)} fine-tuning seed{'s' if len(winner.test) > 1 else ''}"
    tests = f"paired t-tests over queries, {seeds}, {_family(len(sweep.systems))}"  # with BM25, without the floor
    return f"{headline} {sweep.measure} and difference to {floor}: {figures} ({tests})."


def _figures(mean: float, row: DifferenceToFloor) -> str:
    interval = f"[95% interval {_signed(row.low)}, {_signed(row.high)}]"
    return f"{mean:.4f}, {_signed(row.difference)} {interval}, p = {row.p:.2g}, {row.queries} queries"


def _signed(value: float | None) -> str:
    return number_cell(value, "+.4f")


def _family(count: int) -> str:
    return f"Holm over {count} comparisons" if count > 1 else "one comparison"


def noise_sentence(sweep: SweepResult) -> str:
    """The noise floor, its sources, and how many trials are within it."""
    noise = sweep.noise_floor
    assert noise is not None
    others = [point.to_best for point in sweep.complete if point.to_best]
    alike = sum(not row.distinguishable for row in others)
    spread = "no repeated fine-tuning, so that what the seed does is not in it"
    if noise.seed_degrees:
        degrees = f"{noise.seed_degrees} degrees of freedom"
        spread = f"a standard deviation of {noise.seed_spread:.4f} over fine-tuning seeds ({degrees})"
    which = f"{alike} of the other {len(others)} complete trials" if len(others) > 1 else "The other trial"
    swallowed = f"{which} cannot be told from the best" if alike else "Every other trial is significantly worse"
    return (
        f"Noise floor: a difference of {noise.value:.4f} between two trials is found with a probability of 0.8 "
        f"(queries paired, {spread}; {_family(len(others))}). {swallowed} on dev."
    )
