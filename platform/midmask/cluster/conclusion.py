"""The end of a sweep, told from what its steps have left behind: who won, by how much, and what the probing cost."""

from dataclasses import dataclass

from midmask.artifact import RECORD, Artifact, Place, load
from midmask.cluster import report
from midmask.cluster.comparison import SPLITS, Scored, seeded
from midmask.cluster.search import best
from midmask.cluster.study import Outcome
from midmask.cluster.trial import dev_evaluation, probe, trial_name
from midmask.evaluate.significance import Comparison
from midmask.identity import override
from midmask.recipes.plan import Contents, Step, plan
from midmask.recipes.schema import Recipe
from midmask.recipes.space import Space


@dataclass(frozen=True)
class Conclusion:
    """A finished sweep. `bm25`: its evaluations by split."""

    space: Space
    recipe: Recipe
    contents: Contents
    storage: Place
    found: list[Outcome]
    winner: Outcome
    scored: list[Scored]
    bm25: dict[str, Artifact]

    def text(self) -> str:
        """The trials, the comparison, and a sentence."""
        measure, corpus = self.space.measure, self.recipe.corpus.short_name
        systems = self._systems()
        floor = next((system for system in systems if system.label == "none"), systems[-1])
        systems.append(report.System("bm25", {split: [artifact] for split, artifact in self.bm25.items()}))
        others = [name for name in self.bm25["test"].result["measures"] if name != measure]
        note = "; split made here" if self.bm25["dev"].result["split_made_here"] else ""
        parts = [
            f"Trials on {corpus} dev ({len(self.found)}; rungs took {self.rung_share():.0%} of their time):",
            report.trials_table(self.found, self.space.rungs.shares, measure),
            f"Comparison on {corpus} (test reported once, for the winner alone{note}):",
            report.comparison_table(systems, floor.label, measure, others),
            report.sentence(systems[0], floor, self._runner_up(), measure),
        ]
        return "\n\n".join(parts)

    def rung_share(self) -> float:
        """Share of the trials' time that probing at rungs took."""
        shares = (*self.space.rungs.shares, 1.0)
        probes = rest = 0.0
        for outcome in self.found:
            recipe = override(self.recipe, outcome.parameters)
            reached = shares[: len(outcome.measures)]
            probes += sum(
                self._measuring(probe(recipe, share, self.space, self.contents)) for share in reached if share < 1
            )
            rest += self._measuring(self._final(outcome)) if outcome.complete else 0.0
            pretrained = plan(recipe, self.contents, share=reached[-1]).pretrained
            rest += self._seconds(pretrained) if pretrained else 0.0
        return probes / (probes + rest) if self.found else 0.0

    def _measuring(self, evaluation: Step) -> float:
        """Seconds of an evaluation, of its search and encodings, and of the fine-tuning before it. Encodings that have
        been deleted since are left out.
        """
        search = evaluation.inputs["ranked"]
        encodings = [search.inputs[name] for name in ("passages", "queries")]
        there = [step for step in encodings if (step.place(self.storage) / RECORD).exists()]
        return sum(self._seconds(step) for step in (evaluation, search, *there, encodings[0].inputs["model"]))

    def _seconds(self, step: Step) -> float:
        return float(load(step.place(self.storage)).result["seconds"])

    def _final(self, outcome: Outcome) -> Step:
        recipe = override(self.recipe, outcome.parameters)
        return plan(recipe, self.contents).evaluation(dev_evaluation(recipe))

    def _systems(self) -> list[report.System]:
        """The compared systems, in the order of their first mention."""
        groups: dict[str, list[Scored]] = {}
        for one in self.scored:
            groups.setdefault(one.entrant.label, []).append(one)
        return [self._system(label, rows) for label, rows in groups.items()]

    def _system(self, label: str, rows: list[Scored]) -> report.System:
        """A row of the comparison, with the seconds that its trainings took when they were computed."""
        steps = plan(seeded(rows[0].entrant.recipe, rows[0].seed))
        pretrain = self._seconds(steps.pretrained) if steps.pretrained else None
        finetune = sum(self._seconds(stage) for stage in steps.stages)
        evaluations = {split: [one.evaluations[split] for one in rows] for split in SPLITS}
        return report.System(label, evaluations, pretrain, finetune)

    def _runner_up(self) -> tuple[str, Comparison] | None:
        """The second-best complete trial against the best, on the dev queries of their own evaluations."""
        others = [outcome for outcome in self.found if outcome.complete and outcome != self.winner]
        if not others:
            return None
        second = best(others, self.space)
        name = trial_name(second.parameters)
        pair = [
            report.System(label, {"dev": [load(self._final(outcome).place(self.storage))]})
            for label, outcome in (("winner", self.winner), (name, second))
        ]
        return name, report.against(pair, "winner", "dev", self.space.measure)[name]
