"""The final comparison: systems × fine-tuning seeds under one protocol, side by side on the cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import ray

from midmask.artifact import Artifact, Place, load
from midmask.cluster.channel import Channel
from midmask.cluster.trial import ChannelObserver
from midmask.recipes.plan import Plan, Step, plan
from midmask.recipes.run import Runner
from midmask.recipes.schema import Recipe
from midmask.recipes.survey import Survey
from midmask.steps import LOCAL

SPLITS = ("dev", "test")


@dataclass(frozen=True)
class Entrant:
    """One system with one fine-tuning seed: a label for the table, its recipe, and its plan."""

    label: str
    seed: int
    recipe: Recipe
    plan: Plan

    @cached_property
    def evaluations(self) -> dict[str, Step]:
        """By split."""
        own = self.recipe.evaluation
        return {split: self.plan.evaluation(own.model_copy(update={"split": split})) for split in SPLITS}


def entrants_of(label: str, recipe: Recipe, seeds: Sequence[int], survey: Survey) -> list[Entrant]:
    """A system with each of the seeds."""
    recipes = {seed: recipe.seeded(seed) for seed in seeds}
    return [Entrant(label, seed, one, plan(one, survey)) for seed, one in recipes.items()]


@dataclass(frozen=True)
class Scored:
    """A system's evaluations of one seed, by split."""

    entrant: Entrant
    evaluations: dict[str, Artifact]


def compare(entrants: Sequence[Entrant], storage: Place, channel: Channel, *, cpus: float, gpus: float) -> list[Scored]:
    """Every entrant on every split, as many at once as the cluster has room for.

    The middle trainings come first, one task each, so that no two tasks wait for the same one.
    """
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=2)(_run)
    pretrained = {step.fingerprint: (one.label, step) for one in entrants if (step := one.plan.pretrained)}
    ray.get([task.remote([step], storage, channel, label) for label, step in pretrained.values()])
    pending = [
        task.remote(list(one.evaluations.values()), storage, channel, f"{one.label}, seed {one.seed}")
        for one in entrants
    ]
    found = zip(entrants, ray.get(pending), strict=True)
    return [
        Scored(one, {split: load(Place(uri)) for split, uri in zip(one.evaluations, uris, strict=True)})
        for one, uris in found
    ]


def _run(steps: list[Step], storage: Place, channel: Channel, source: str) -> list[str]:
    """Runs steps in this worker; the places of their artifacts."""
    runner = Runner(storage, LOCAL, ChannelObserver(channel, source))
    return [str(runner.run(step).address) for step in steps]
