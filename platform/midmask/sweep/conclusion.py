"""The end of a sweep, told from what its steps have left behind: who won, by how much, what mattered, and what of it is
above the noise.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from midmask.artifact import Artifact, Place, load
from midmask.evaluation.statistics.intervals import RankCorrelation
from midmask.evaluation.statistics.seeds import SeedSpread, seed_spread
from midmask.evaluation.statistics.significance import Comparison, noise_floor
from midmask.experiment import report
from midmask.experiment.plan import Step
from midmask.experiment.reading_notes import left_out_notes
from midmask.leaderboard.sweep_result import SweepImportance
from midmask.sweep import verdict
from midmask.sweep.entrants import SPLITS, Entrant
from midmask.sweep.points import labels
from midmask.sweep.study import proxies
from midmask.sweep.trials import Trials


@dataclass(frozen=True)
class Conclusion:
    """A finished sweep. entrants: systems x seeds of the final comparison, the winner first; bm25: its evaluations by
    split; importance: none where there were too few trials.
    """

    trials: Trials
    entrants: list[Entrant]
    bm25: dict[str, Artifact]
    importance: SweepImportance | None

    @property
    def measure(self) -> str:
        """The first objective."""
        return self.trials.space.targets[0].measure

    @cached_property
    def seeds(self) -> SeedSpread:
        """From the trials, where they were repeated, else from the systems of the final comparison."""
        own = seed_spread(self.trials.seed_means())
        if own.degrees:
            return own
        return seed_spread(
            [[one.result["measures"][self.measure] for one in system.evaluations["dev"]] for system in self.systems]
        )

    @cached_property
    def standings(self) -> dict[str, Comparison]:
        return self.trials.standings(self.seeds)

    @cached_property
    def noise_floor(self) -> float | None:
        return noise_floor(self.standings.values())

    @cached_property
    def proxies(self) -> dict[float, RankCorrelation]:
        """Share of a rung -> how its probes rank trials as the end does."""
        return proxies([trial.outcome for trial in self.trials.all], self.trials.space.shares)

    @cached_property
    def systems(self) -> list[report.System]:
        """The compared systems, in the order of their first mention."""
        groups: dict[str, list[Entrant]] = {}
        for one in self.entrants:
            groups.setdefault(one.label, []).append(one)
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
        first, *others_told = self.sentences
        parts = [
            first,
            f"Trials on {corpus} dev ({len(self.trials.all)}, over {counts['dev']:,} queries{self._probing()}):",
            verdict.trials_table(self.trials, self.standings),
            f"Comparison on {corpus} (chosen on {counts['dev']:,} dev queries; test reported once, for {compared} "
            f"alone, on {counts['test']:,} queries{note}):",
            report.comparison_table(self.compared, self.floor.label, self.measure, others),
            *self._left_out_notes(),
            *others_told,
        ]
        return "\n\n".join(parts)

    def _left_out_notes(self) -> Iterable[str]:
        """What the comparison does not measure as the collection's files have it; each sentence once."""
        by_split = [{one.label: one.evaluations[split][0] for one in self.compared} for split in SPLITS]
        return dict.fromkeys(line for evaluations in by_split for line in left_out_notes(evaluations))

    @cached_property
    def sentences(self) -> list[str]:
        """What the sweep says, the most important first."""
        space = self.trials.space
        told = [
            verdict.sentence(self.systems[0].label, self.floor.label, self.measure, self.against_floor),
            verdict.runner_up_sentence(self.trials, self.standings),
            verdict.floor_sentence(self.standings, self.seeds, len(space.trial_seeds) or 1),
        ]
        if space.has_several_objectives:
            told.insert(1, verdict.front_sentence(self.trials, self.systems))
        told += [verdict.proxy_sentence(*proxy, pruned=space.rungs.prune) for proxy in self.proxies.items()]
        told.append(verdict.importance_sentence(self.importance, labels(space), len(self.trials.complete)))
        return [sentence for sentence in told if sentence]

    @property
    def floor(self) -> report.System:
        """The system without middle training, or the last of the baselines; BM25 if there is no baseline."""
        last = [*self.compared[-1:], *self.systems[1:]][-1]
        return next((system for system in self.systems if system.label == "none"), last)

    @cached_property
    def against_floor(self) -> dict[str, dict[str, Comparison]]:
        """Split -> system -> its comparison with the floor on that split, by the first objective."""
        return {split: report.against(self.compared, self.floor.label, split, self.measure) for split in SPLITS}

    def _probing(self) -> str:
        share = self.trials.rung_share()
        return f"; rungs took {share:.0%} of their time" if share else ""

    def _system(self, label: str, rows: list[Entrant]) -> report.System:
        """A row of the comparison, with the seconds that its trainings took when they were computed."""
        steps, storage = rows[0].plan, self.trials.storage
        pretrain = _seconds(steps.pretrained, storage) if steps.pretrained else None
        finetune = sum(_seconds(stage, storage) for stage in steps.stages)
        evaluations = {split: [load(one.evaluations[split].place(storage)) for one in rows] for split in SPLITS}
        return report.System(label, evaluations, pretrain, finetune)


def _seconds(step: Step, storage: Place) -> float:
    return float(load(step.place(storage)).result["seconds"])
