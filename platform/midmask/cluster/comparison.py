"""The final comparison: systems × fine-tuning seeds under one protocol, side by side on the cluster."""

from dataclasses import dataclass

import ray

from midmask.artifact import Artifact, Place, load
from midmask.cluster.channel import Channel
from midmask.cluster.trial import ChannelObserver
from midmask.recipes.plan import Step, plan
from midmask.recipes.run import Runner
from midmask.recipes.schema import Recipe
from midmask.steps import LOCAL

SPLITS = ("dev", "test")


@dataclass(frozen=True)
class Entrant:
    """One system of the comparison: a label for the table, and its recipe."""

    label: str
    recipe: Recipe


@dataclass(frozen=True)
class Scored:
    """A system's evaluations of one seed, by split."""

    entrant: Entrant
    seed: int
    evaluations: dict[str, Artifact]


def evaluation(recipe: Recipe, split: str) -> Step:
    return plan(recipe).evaluation(recipe.evaluation.model_copy(update={"split": split}))


def compare(
    entrants: list[Entrant],
    seeds: tuple[int, ...],
    storage: Place,
    channel: Channel,
    *,
    cpus: float,
    gpus: float,
) -> list[Scored]:
    """Every system with every seed on every split, as many at once as the cluster has room for.

    The middle trainings come first, one task each, so that no two tasks wait for the same one.
    """
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=2)(_run)
    pretrained = {
        step.fingerprint: (entrant.label, step) for entrant in entrants if (step := plan(entrant.recipe).pretrained)
    }
    ray.get([task.remote([step], storage, channel, label) for label, step in pretrained.values()])
    pending = []
    for seed in seeds:
        for entrant in entrants:
            recipe = entrant.recipe.seeded(seed)
            steps = [evaluation(recipe, split) for split in SPLITS]
            source = f"{entrant.label}, seed {seed}"
            pending.append((entrant, seed, task.remote(steps, storage, channel, source)))
    scored = []
    for entrant, seed, reference in pending:
        places = zip(SPLITS, ray.get(reference), strict=True)
        scored.append(Scored(entrant, seed, {split: load(Place(uri)) for split, uri in places}))
    return scored


def _run(steps: list[Step], storage: Place, channel: Channel, source: str) -> list[str]:
    """Runs steps in this worker; the places of their artifacts."""
    runner = Runner(storage, LOCAL, ChannelObserver(channel, source))
    return [str(runner.run(step).address) for step in steps]
