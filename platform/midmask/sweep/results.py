"""The trials of a finished sweep, read back from their steps: their table, and sentences on what was measured.

Sentences do not claim more than was measured, and each names the split that it is about: trials are chosen on dev, and
the chosen ones reported on test.

Importance is PED-ANOVA (Watanabe et al., IJCAI 2023), as Optuna has it: how far the values of a parameter among the
good trials differ from those among all. In Optuna 5 it takes conditional parameters and several objectives (then good
is near the front), and needs no further package; fANOVA takes neither, and needs scikit-learn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState

from midmask.core.words import MISSING, number_cell
from midmask.errors import UserError
from midmask.evaluation.rendering import markdown
from midmask.evaluation.statistics.intervals import SeedSpread
from midmask.evaluation.statistics.ranks import on_front
from midmask.evaluation.statistics.significance import Comparison, ComparisonOutcome, compare, noise_floor
from midmask.experiment.changes import apply_changes
from midmask.experiment.graph import Step
from midmask.experiment.report import System, against, per_query
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.sweep.plan import Measured, final_evaluations, summarise
from midmask.sweep.space import COSTS, Space, briefly, describe_point, labels, mark_of
from midmask.sweep.study import Outcome
from midmask.sweep.sweep_file import SweepImportance, value_text

FEWEST = 10
"""Least number of trials for a parameter importance: five should be good ones (Optuna's documentation)."""

GOOD = 5


def importance(study: optuna.Study, space: Space) -> SweepImportance | None:
    """The importance of the parameters that vary; None for too few trials, or if all trials are equal."""
    last = len(space.shares)
    ended = [
        trial
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if last == 1 or len(trial.intermediate_values) >= last - 1
    ]
    if len(ended) < FEWEST or len({tuple(trial.values) for trial in ended}) == 1:
        return None
    whole = optuna.create_study(directions=study.directions)
    whole.add_trials(ended)
    quantile = max(0.1, GOOD / len(ended))
    paths = [path for path, distribution in space.parameters.items() if not distribution.is_constant]
    met = [path for path in paths if any(path in trial.params for trial in ended)]
    importances = get_param_importances(
        whole, evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile), params=met
    )
    shares = {path: float(share) for path, share in importances.items()}
    return SweepImportance(shares=shares, trials=len(ended), quantile=quantile)


@dataclass(frozen=True)
class Trial:
    """A point that was tried."""

    outcome: Outcome
    label: str
    steps: tuple[Step, ...]
    evaluations: tuple[Artifact, ...]  # of the last measurement, one per fine-tuning seed; empty if pruned
    measured: Measured | None


@dataclass(frozen=True)
class Trials:
    """All trials of a sweep, each point once, in the order of asking."""

    space: Space
    recipe: Recipe
    survey: Survey
    storage: Place
    found: Sequence[Outcome]

    @cached_property
    def all(self) -> list[Trial]:
        points: dict[str, Outcome] = {}
        for outcome in self.found:
            label = describe_point(self.space, outcome.parameters)
            if label not in points or outcome.complete:  # a sampler may ask for a point twice
                points[label] = outcome
        return [self._trial(label, outcome) for label, outcome in points.items()]

    @cached_property
    def complete(self) -> list[Trial]:
        return [trial for trial in self.all if trial.outcome.complete]

    @cached_property
    def best(self) -> Trial:
        """The best by the first objective of those that ran to the end.

        Raises:
            UserError: if none did.
        """
        if not self.complete:
            raise UserError(f"sweep {self.space.name}: no trial ran to the end; the log above says why each one failed")
        sign = 1 if self.space.optimised[0].mode == "max" else -1
        return max(self.complete, key=lambda trial: sign * trial.outcome.last)

    @cached_property
    def front(self) -> set[str]:
        """Labels of the complete trials that no other beats in all objectives."""
        values = [trial.outcome.values for trial in self.complete]
        on_it = on_front(values, [objective.mode for objective in self.space.optimised])
        return {trial.label for trial, keep in zip(self.complete, on_it, strict=True) if keep}

    def seed_means(self) -> list[list[float]]:
        """For each complete trial, the first objective's mean for every fine-tuning seed."""
        name = self.space.optimised[0].measure
        return [[artifact.result["measures"][name] for artifact in trial.evaluations] for trial in self.complete]

    def standings(self, seeds: SeedSpread) -> dict[str, Comparison]:
        """Compares every other complete trial with the best one: label -> comparison by the first objective on the dev
        queries, Holm-corrected, with the variance of means over seeds.
        """
        tables = {trial.label: [per_query(artifact) for artifact in trial.evaluations] for trial in self.complete}
        comparisons = compare(tables, baseline=self.best.label, measure=self.space.optimised[0].measure, seeds=seeds)
        return {row.system: row for row in comparisons}

    def _trial(self, label: str, outcome: Outcome) -> Trial:
        if not outcome.complete:
            return Trial(outcome, label, (), (), None)
        recipe = apply_changes(self.recipe, outcome.parameters)
        steps = tuple(final_evaluations(recipe, self.space, self.survey))
        evaluations = tuple(load(step.place(self.storage)) for step in steps)
        results: list[dict[str, Any]] = [artifact.result for artifact in evaluations]
        return Trial(outcome, label, steps, evaluations, summarise(steps, results, self.storage))

    def seconds(self, step: Step) -> float:
        """What a step took when it was computed."""
        return float(load(step.place(self.storage)).result["seconds"])


FEW_QUERIES = 50
"""Queries below which no conclusion is drawn."""

OUTCOMES: Mapping[ComparisonOutcome, str] = {
    "better": "is better than",
    "worse": "is worse than",
    "equal": "is within the noise of",
    "undecided": f"was measured on too few queries (fewer than {FEW_QUERIES}) to be told from",
}
"""Outcome of a comparison -> its words in a sentence."""

LATENCY = "search_ms_per_query"


def trials_table(trials: Trials, standings: Mapping[str, Comparison]) -> str:
    """A Markdown table with a row per trial in the order of asking: its parameters, measurements, comparison with the
    best, and end; with several objectives, also the query latency, and whether it is on the front.
    """
    space, several = trials.space, trials.space.has_several_objectives
    paths = [path for path, distribution in space.parameters.items() if not distribution.is_constant]
    names = [objective.measure for objective in space.optimised]
    names += [LATENCY] if several and LATENCY not in names else []
    probes = range(1, len(space.shares))
    headers = [labels(space)[path] for path in paths]
    headers += [f"probe at {share:g}" for share in space.shares[:-1]] + names + ["to the best", "p (Holm)"]
    headers += ["front", "known as"] if several else ["end"]
    rows = []
    for trial in trials.all:
        point, standing = trial.outcome.parameters, standings.get(trial.label)
        row = [value_text(point[path]) if path in point else MISSING for path in paths]
        row += [number_cell(trial.outcome.measures.get(at), ".4f") for at in probes]
        row += [_of(trial, name) for name in names]
        row += [f"{standing.difference:+.4f}", f"{standing.p_corrected:.2g}"] if standing else [MISSING, MISSING]
        if several:
            row += ["yes" if trial.label in trials.front else "", mark_of(space, point) or ""]
        else:
            row.append("complete" if trial.outcome.complete else "pruned")
        rows.append(row)
    return markdown(headers, rows)


def sentence(
    winner: str,
    floor: str,
    measure: str,
    compared: Mapping[str, Mapping[str, Comparison]],
    figures_of: Sequence[str] = ("test", "dev"),
) -> str:
    """Whether the winner is better than the floor on test, where it is reported, and on dev, where it was chosen; with
    the estimate, interval and p on the splits of `figures_of`.

    Args:
        compared: split -> system -> its comparison with the floor, as `experiment.report.comparison_table` shows it.
    """
    rows = {split: compared[split][winner] for split in ("test", "dev")}
    said = {split: OUTCOMES[outcome(row)] for split, row in rows.items()}
    if said["test"] == said["dev"]:
        headline = f"{winner} {said['test']} {floor}, on test and on dev."
    else:
        headline = (
            f"On test, {winner} {said['test']} {floor}; on dev, where it was chosen, it {said['dev']} it. "
            "The result on test is the unbiased one."
        )
    figures = "; ".join(f"{split} {_figures(rows[split])}" for split in figures_of)
    family = _family(len(compared["test"]))
    return f"{headline} {measure} and difference to {floor}: {figures} (paired t-tests over queries, {family})."


def _family(count: int) -> str:
    return f"Holm over {count} comparisons" if count > 1 else "one comparison"


def outcome(row: Comparison) -> ComparisonOutcome:
    """The outcome of a comparison with the floor."""
    return "undecided" if row.queries < FEW_QUERIES else row.outcome


def _figures(row: Comparison) -> str:
    seeds = f"{row.seeds} fine-tuning seed{'s' if row.seeds > 1 else ''}"
    return (
        f"{row.mean:.4f}, {row.difference:+.4f} [95% interval {row.low:+.4f}, {row.high:+.4f}], p = "
        f"{row.p_corrected:.2g}, {row.queries} queries, {seeds}"
    )


def runner_up_sentence(trials: Trials, standings: Mapping[str, Comparison]) -> str:
    """Whether the best can be told from the next best; empty for one trial."""
    if not standings:
        return ""
    sign = 1 if trials.space.optimised[0].mode == "max" else -1
    label, row = max(standings.items(), key=lambda item: sign * item[1].difference)
    points = {trial.label: trial.outcome.parameters for trial in trials.complete}
    best, other = (briefly(trials.space, points[name]) for name in (trials.best.label, label))
    return (
        f"{best} is {'' if row.significant else 'not '}distinguishable from {other}, the next best, on dev (difference "
        f"{-row.difference:+.4f}, p = {row.p_corrected:.2g}, smallest detectable difference {row.detectable:.4f})."
    )


def floor_sentence(standings: Mapping[str, Comparison], seeds: SeedSpread, repeats: int) -> str:
    """A sentence on the noise floor, its sources, and how many trials are within it."""
    value = noise_floor(standings.values())
    if value is None:
        return ""
    others, alike = len(standings), sum(not row.significant for row in standings.values())
    spread = (
        f"a standard deviation of {seeds.spread:.4f} over fine-tuning seeds ({seeds.degrees} degrees of freedom; "
        f"{repeats} a trial)"
        if seeds.degrees
        else "no repeated fine-tuning, so that what the seed does is not in it"
    )
    which = f"{alike} of the other {others} complete trials" if others > 1 else "The other trial"
    swallowed = f"{which} cannot be told from the best" if alike else "Every other trial is significantly worse"
    return (
        f"Noise floor: a difference of {value:.4f} between two trials is found with a probability of 0.8 (queries "
        f"paired, {spread}; {_family(others)}). {swallowed} on dev."
    )


def front_sentence(trials: Trials, systems: Sequence[System]) -> str:
    """How large the front is, and how the marked points compare to the first of them over the seeds of the end."""
    space = trials.space
    names = " and ".join(objective.measure for objective in space.optimised)
    text = f"{len(trials.front)} of {len(trials.complete)} points are on the front of {names} on dev."
    marked = [system for system in systems if system.label in space.marks]
    if len(marked) < 2:
        return text
    measure, first = space.optimised[0].measure, marked[0].label
    comparisons = against(marked, first, "dev", measure)
    by_mark = {mark_of(space, trial.outcome.parameters): trial for trial in trials.complete}
    clauses = [
        f"{label} {'differs' if row.significant else 'is not distinguishable'} from {first} (difference "
        f"{row.difference:+.4f}, p = {row.p_corrected:.2g}, smallest detectable difference {row.detectable:.4f}"
        f"{_sizes(by_mark[label], by_mark[first])})"
        for label, row in comparisons.items()
    ]
    return f"{text} On dev, {'; '.join(clauses)}."


def importance_sentence(found: SweepImportance | None, names: Mapping[str, str], trials: int) -> str:
    """A sentence on the importance of each parameter."""
    if found is None:
        return (
            f"Importance of parameters: not told from {trials} complete trials (at least {FEWEST}, and not all equal)."
        )
    shares = ", ".join(f"{names[path]} {share:.0%}" for path, share in found.shares.items())
    basis = f"PED-ANOVA, the best {found.quantile:.0%} of {found.trials} complete trials"
    return f"Importance of parameters for the result on dev ({basis}): {shares}. It does not know the noise floor."


def _sizes(own: Trial, other: Trial) -> str:
    """The costs of two trials, where these are known."""
    name = COSTS[0]
    pair = [trial.measured.costs.get(name) for trial in (own, other) if trial.measured]
    return f"; {pair[0]:.0f} against {pair[1]:.0f} bytes a passage" if None not in pair else ""


def _of(trial: Trial, name: str) -> str:
    """A cost or a measure of a trial, as a table cell."""
    if trial.measured is None:
        return MISSING
    if name in trial.measured.costs:
        return f"{trial.measured.costs[name]:.5g}"
    return number_cell(trial.measured.measures.get(name), ".4f")
