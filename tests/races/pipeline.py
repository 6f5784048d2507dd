"""The steps that are raced: a small pipeline with mining and a teacher, and what each of them makes when left alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midmask.artifact import Artifact, Place, load
from midmask.experiment.plan import Step, plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.steps import LOCAL
from midmask.identity import flatten, override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from tests.support.corpora.collections import write_beir

SMALL = {"steps": 10, "batch_size": 8, "checkpoint_every": 2, "threads": 1}
"""Of every training: checkpoints to go on from, and threads that change no sum."""

TIMES = ("seconds", "build_seconds", "query_seconds", "data_wait_share")


@dataclass(frozen=True)
class Entry:
    """A step, its inputs in one store, and its artifact when nobody disturbs it."""

    step: Step
    inputs: Mapping[str, Artifact]
    alone: Artifact
    seconds: float

    def facts(self, artifact: Artifact) -> dict[str, Any]:
        """The small results that must be equal: all but times."""
        return {name: value for name, value in artifact.result.items() if name not in TIMES}


def pipeline(folder: Path) -> list[Step]:
    """Every step, each after its inputs; the collection is written to the folder."""
    write_beir(folder, passages=60, queries=45)
    recipe = PROTOCOLS["sigir23_1neg_distil"]().on(RECIPES["rom"](), "demo")
    recipe = override(recipe, {"corpus.name": f"beir:{folder}", "tokens.vocabulary_size": 300, "tokens.max_length": 24})
    trainings = [path.removesuffix("checkpoint_every") for path in flatten(recipe) if path.endswith("checkpoint_every")]
    recipe = override(recipe, {f"{path}{name}": value for path in trainings for name, value in SMALL.items()})
    planned = plan(recipe)
    targets = (planned.evaluation(recipe.evaluation), planned.bm25_evaluation(recipe.evaluation))
    return list({step.fingerprint: step for target in targets for step in target.upstream()}.values())


def entries(steps: list[Step], storage: Place, kinds: tuple[str, ...]) -> dict[str, Entry]:
    """The first step of each of these kinds by name, or of every kind if none is given, after it has run into the
    storage with all that it needs.
    """
    runner = Runner(storage, LOCAL, Silent())
    found: dict[str, Entry] = {}
    for step in steps:
        if step.name not in found and (not kinds or step.name in kinds):
            alone = runner.run(step)
            inputs = {role: load(source.place(storage)) for role, source in step.inputs.items()}
            found[step.name] = Entry(step, inputs, alone, float(alone.result["seconds"]))
    return found


def reproducible(one: Entry, other: Entry) -> set[str]:
    """Names of the files that two undisturbed runs make with the same bytes: all that hold no times."""
    first, second = one.alone.record["files"], other.alone.record["files"]
    return {name for name in first if first[name] == second.get(name)}
