"""The trials of a finished sweep, read back from what their steps have left behind, and how they stand to the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from midmask.artifact import Artifact, Place, load
from midmask.evaluation.pareto import on_front
from midmask.evaluation.statistics.seeds import SeedSpread
from midmask.evaluation.statistics.significance import Comparison, compare
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.plan import Step, plan
from midmask.experiment.report import per_query
from midmask.experiment.schema import Recipe
from midmask.experiment.survey import Survey
from midmask.sweep.measurement import Measured, final_evaluations, probe, summarise
from midmask.sweep.points import describe_point
from midmask.sweep.search import best
from midmask.sweep.space import Space
from midmask.sweep.study import Outcome


@dataclass(frozen=True)
class Trial:
    """A point that was tried. evaluations: of the last measurement, one per fine-tuning seed; empty if pruned."""

    outcome: Outcome
    label: str
    steps: tuple[Step, ...]
    evaluations: tuple[Artifact, ...]
    measured: Measured | None

    @property
    def is_complete(self) -> bool:
        return self.outcome.complete


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
        return [trial for trial in self.all if trial.is_complete]

    @cached_property
    def best(self) -> Trial:
        """The best by the first objective."""
        label = describe_point(self.space, best(list(self.found), self.space).parameters)
        return next(trial for trial in self.complete if trial.label == label)

    @cached_property
    def front(self) -> set[str]:
        """Labels of the complete trials that no other beats in all objectives."""
        values = [trial.outcome.values for trial in self.complete]
        kept = on_front(values, [objective.mode for objective in self.space.targets])
        return {trial.label for trial, keep in zip(self.complete, kept, strict=True) if keep}

    def seed_means(self) -> list[list[float]]:
        """For each complete trial, the first objective's mean for every fine-tuning seed."""
        name = self.space.targets[0].measure
        return [[one.result["measures"][name] for one in trial.evaluations] for trial in self.complete]

    def standings(self, seeds: SeedSpread) -> dict[str, Comparison]:
        """Label -> every other complete trial against the best, by the first objective on the dev queries,
        Holm-corrected; with what seeds alone do to a mean.
        """
        tables = {trial.label: [per_query(one) for one in trial.evaluations] for trial in self.complete}
        found = compare(tables, baseline=self.best.label, measure=self.space.targets[0].measure, seeds=seeds)
        return {row.system: row for row in found}

    def rung_share(self) -> float:
        """Share of the trials' time that probing at rungs took."""
        shares = self.space.shares
        probes = rest = 0.0
        for trial in self.all:
            recipe = apply_changes(self.recipe, trial.outcome.parameters)
            reached = shares[: len(trial.outcome.measures)]
            probes += sum(
                self._measuring(probe(recipe, share, self.space, self.survey)) for share in reached if share < 1
            )
            rest += sum(self._measuring(step) for step in trial.steps)
            pretrained = plan(recipe, self.survey, share=reached[-1]).pretrained
            rest += self._seconds(pretrained) if pretrained else 0.0
        return probes / (probes + rest) if self.all else 0.0

    def _trial(self, label: str, outcome: Outcome) -> Trial:
        if not outcome.complete:
            return Trial(outcome, label, (), (), None)
        recipe = apply_changes(self.recipe, outcome.parameters)
        steps = tuple(final_evaluations(recipe, self.space, self.survey))
        evaluations = tuple(load(step.place(self.storage)) for step in steps)
        results: list[dict[str, Any]] = [one.result for one in evaluations]
        return Trial(outcome, label, steps, evaluations, summarise(steps, results, self.storage))

    def _measuring(self, evaluation: Step) -> float:
        """Seconds of an evaluation, of its search and encodings, and of the fine-tuning before it. Encodings that have
        been deleted since are left out.
        """
        search = evaluation.inputs["ranked"]
        encodings = [search.inputs[name] for name in ("passages", "queries")]
        there = [step for step in encodings if step.is_finished(self.storage)]
        return sum(self._seconds(step) for step in (evaluation, search, *there, encodings[0].inputs["model"]))

    def _seconds(self, step: Step) -> float:
        return float(load(step.place(self.storage)).result["seconds"])
