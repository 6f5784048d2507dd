"""The report of a finished sweep, as text and as `sweep.json`: the winner, its gain, and which gains exceed the noise.

A part of `sweep.json` keeps those fields of a comparison, `vars(row)`, that it has.
"""

from dataclasses import dataclass
from functools import cached_property

from midmask.core.config import fingerprint
from midmask.evaluation.statistics.intervals import SeedSpread, seed_spread
from midmask.evaluation.statistics.significance import Comparison, noise_floor
from midmask.experiment import report
from midmask.experiment.notes import left_out_notes
from midmask.experiment.report import System
from midmask.store.artifact import Artifact, load
from midmask.sweep import results as verdict
from midmask.sweep.plan import SPLITS, Entrant
from midmask.sweep.results import Trial, Trials, outcome
from midmask.sweep.space import briefly, labels, mark_of
from midmask.sweep.sweep_file import (
    ComparedSystem,
    DifferenceToBest,
    DifferenceToFloor,
    NoiseFloor,
    SweepImportance,
    SweepMeasure,
    SweepParameter,
    SweepPoint,
    SweepResult,
)


@dataclass(frozen=True)
class Conclusion:
    """A finished sweep: its trials and the evaluations of the final comparison."""

    trials: Trials
    entrants: list[Entrant]  # systems x seeds of the final comparison, the winner first
    bm25: dict[str, Artifact]  # split -> evaluation of BM25
    importance: SweepImportance | None  # None if there were too few trials

    @property
    def measure(self) -> str:
        """The first objective."""
        return self.trials.space.optimised[0].measure

    @cached_property
    def seeds(self) -> SeedSpread:
        """The spread over seeds: of the trials if they were repeated, else of the systems of the final comparison."""
        repeated = seed_spread(self.trials.seed_means())
        if repeated.degrees:
            return repeated
        on_dev = [system.evaluations["dev"] for system in self.systems]
        return seed_spread([[one.result["measures"][self.measure] for one in artifacts] for artifacts in on_dev])

    @cached_property
    def standings(self) -> dict[str, Comparison]:
        return self.trials.standings(self.seeds)

    @cached_property
    def systems(self) -> list[report.System]:
        """The compared systems, in the order of their first mention."""
        groups: dict[str, list[Entrant]] = {}
        for entrant in self.entrants:
            groups.setdefault(entrant.label, []).append(entrant)
        return [self._system(label, rows) for label, rows in groups.items()]

    @cached_property
    def compared(self) -> list[report.System]:
        """The rows of the comparison: the systems, and BM25."""
        return [*self.systems, report.System("bm25", {split: [artifact] for split, artifact in self.bm25.items()})]

    def text(self) -> str:
        """The verdict in a sentence, the trials, the comparison, and what else follows from them, a sentence each."""
        space, corpus = self.trials.space, self.trials.recipe.corpus.short_name
        counts = {split: self.bm25[split].result["queries"] for split in SPLITS}
        others = [name for name in self.bm25["test"].result["measures"] if name != self.measure]
        made = [split for split, done in self.bm25.items() if done.result["split_made_here"]]
        note = f"; made here: {' and '.join(made)}, {self.bm25[made[0]].result['split_rule']}" if made else ""
        compared = "the winner" if not space.has_several_objectives else "the systems below"
        by_split = [{system.label: system.evaluations[split][0] for system in self.compared} for split in SPLITS]
        first, *others_told = self.sentences
        parts = [
            first,
            f"Trials on {corpus} dev ({len(self.trials.all)}, over {counts['dev']:,} queries):",
            verdict.trials_table(self.trials, self.standings),
            f"Comparison on {corpus} (chosen on {counts['dev']:,} dev queries; test reported once, for {compared} "
            f"alone, on {counts['test']:,} queries{note}):",
            report.comparison_table(self.compared, self.floor.label, self.measure, others),
            *dict.fromkeys(line for evaluations in by_split for line in left_out_notes(evaluations)),
            *others_told,
        ]
        return "\n\n".join(parts)

    def summary(self) -> str:
        """The verdict on test in a sentence, and the comparison without its basis."""
        told = verdict.sentence(
            self.systems[0].label, self.floor.label, self.measure, self.against_floor, figures_of=["test"]
        )
        return f"{told}\n\n{report.comparison_table(self.compared, self.floor.label, self.measure, brief=True)}"

    @cached_property
    def sentences(self) -> list[str]:
        """The conclusions of the sweep as sentences, the most important first."""
        space = self.trials.space
        lines = [
            verdict.sentence(self.systems[0].label, self.floor.label, self.measure, self.against_floor),
            verdict.runner_up_sentence(self.trials, self.standings),
            verdict.floor_sentence(self.standings, self.seeds, len(space.trial_seeds) or 1),
        ]
        if space.has_several_objectives:
            lines.insert(1, verdict.front_sentence(self.trials, self.systems))
        lines.append(verdict.importance_sentence(self.importance, labels(space), len(self.trials.complete)))
        return [sentence for sentence in lines if sentence]

    @property
    def floor(self) -> report.System:
        """The system without middle training, or the last of the baselines; BM25 if there is no baseline."""
        last = [*self.compared[-1:], *self.systems[1:]][-1]
        return next((system for system in self.systems if system.label == "none"), last)

    @cached_property
    def against_floor(self) -> dict[str, dict[str, Comparison]]:
        """Split -> system -> its comparison with the floor on that split, by the first objective."""
        return {split: report.against(self.compared, self.floor.label, split, self.measure) for split in SPLITS}

    def _system(self, label: str, rows: list[Entrant]) -> report.System:
        """A row of the comparison, with the seconds that its trainings took when they were computed."""
        steps, storage = rows[0].plan, self.trials.storage
        pretrain = self.trials.seconds(steps.pretrained) if steps.pretrained else None
        finetune = sum(map(self.trials.seconds, steps.stages))
        evaluations = {split: [load(entrant.evaluations[split].place(storage)) for entrant in rows] for split in SPLITS}
        return report.System(label, evaluations, pretrain, finetune)


def build_result(end: Conclusion, *, study: str, sweep: str) -> SweepResult:
    """The sweep as data.

    Args:
        study: name of its Optuna study.
        sweep: the sweep's fingerprint.
    """
    trials, space = end.trials, end.trials.space
    names = labels(space)
    return SweepResult(
        name=space.name,
        study=study,
        fingerprint=sweep,
        recipe=trials.recipe.name,
        corpus=trials.recipe.corpus.short_name,
        split="dev",
        search=space.search,
        objectives=tuple(SweepMeasure(measure=one.measure, mode=one.mode) for one in space.optimised),
        parameters=tuple(
            SweepParameter(**{**one.model_dump(), "label": names[path]}, path=path, constant=one.is_constant)
            for path, one in space.parameters.items()
        ),
        points=tuple(_point(end, trial, sweep) for trial in trials.all),
        best=trials.best.label,
        noise_floor=_noise_floor(end),
        importance=end.importance,
        systems=tuple(_system(system, end) for system in end.systems),
        floor=end.floor.label,
        sentences=tuple(end.sentences),
    )


def _point(end: Conclusion, trial: Trial, sweep: str) -> SweepPoint:
    space, row, tried = end.trials.space, end.standings.get(trial.label), trial.outcome
    names = [objective.measure for objective in space.optimised]
    return SweepPoint(
        label=trial.label,
        brief=briefly(space, tried.parameters),
        mark=mark_of(space, tried.parameters),
        parameters=tried.parameters,
        run=fingerprint({"sweep": sweep, "trial": fingerprint(tried.parameters)}),
        complete=trial.outcome.complete,
        probes=tuple(tried.measures[number] for number in sorted(tried.measures) if number < len(space.shares)),
        values=dict(zip(names, tried.values, strict=False)),
        measures=trial.measured.measures if trial.measured else {},
        costs=trial.measured.costs if trial.measured else {},
        seeds=tuple(artifact.result["measures"][names[0]] for artifact in trial.evaluations),
        front=trial.label in end.trials.front,
        to_best=DifferenceToBest(**vars(row), distinguishable=row.significant) if row else None,
    )


def _noise_floor(end: Conclusion) -> NoiseFloor | None:
    value = noise_floor(end.standings.values())
    if value is None:
        return None
    seeds, repeats = end.seeds, len(end.trials.space.trial_seeds) or 1
    return NoiseFloor(value=value, seed_spread=seeds.spread, seed_degrees=seeds.degrees, repeats=repeats)


def _system(system: System, end: Conclusion) -> ComparedSystem:
    values = {
        split: tuple(artifact.result["measures"][end.measure] for artifact in artifacts)
        for split, artifacts in system.evaluations.items()
    }
    to_floor = {
        split: DifferenceToFloor(**{**vars(row), "p": row.p_corrected}, outcome=outcome(row))
        for split, rows in end.against_floor.items()
        if (row := rows.get(system.label))
    }
    return ComparedSystem(label=system.label, dev=values["dev"], test=values["test"], to_floor=to_floor)
