"""A store whose runs have all that pages ask for: two tiny recipes and BM25, made and tracked as jobs do, less Ray."""

from collections.abc import Iterable
from pathlib import Path

import torch

from midmask.app.run_contents import base_tags
from midmask.app.tracked_job import GraphObserver, TrackedJob, TrackedSystem
from midmask.backend.cluster import Resources
from midmask.core.config import flatten, override
from midmask.experiment.graph import Graph, Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner, report_finished
from midmask.experiment.schema import Recipe
from midmask.recipes import RECIPES
from midmask.store.place import Place
from midmask.tracking.runs import Tracker
from tests.support.benchmark.tiny import short, write_collection
from tests.support.dashboards.tracked import QUICK

JOB = "run_recipe"
ALONE = Resources(cpus=1, gpus=0, side_by_side=1)


def recipes(corpus: str) -> tuple[Recipe, Recipe]:
    """RetroMAE, and the same fine-tuning without middle training with another seed."""
    changes = {"pretrain.log_every": 1, "stages.0.train.log_every": 1}
    found = [override(short(RECIPES[name](), corpus), changes) for name in ("retromae", "none")]
    return found[0], found[1].seeded(7)


def run_tracked_here(job: TrackedJob, recipe: Recipe, targets: Iterable[Step]) -> None:
    """A recipe's steps run and tracked in this process, as a job runs them on a cluster."""
    graph = Graph.left_in(job.storage, targets)
    job.progress.plan(graph.unfinished.values())
    observer = GraphObserver(job, [TrackedSystem(recipe.name, recipe)])
    report_finished(graph.finished.values(), job.storage, observer)
    runner = Runner(job.storage, LOCAL, observer)
    while ready := graph.ready():
        runner.compute_next(graph, ready[0])


def everything(uri: str, home: Path) -> dict[str, str]:
    """Runs both recipes on dev, and BM25; recipe -> fingerprint of its evaluation."""
    torch.set_num_threads(1)
    storage, made = Place(str(home / "store")), dict[str, str]()
    with Tracker(uri, home, QUICK) as tracker:
        for recipe in recipes(write_collection(home / "tiny")):
            steps = plan(recipe)
            tags = {**base_tags(JOB, recipe), "midmask.step": "job", "midmask.fingerprint": f"job-{recipe.name}"}
            with tracker.run(f"{JOB}-{recipe.name}", tags=tags, params=flatten(recipe)) as parent:
                targets = (steps.evaluation(recipe.evaluation), steps.bm25_evaluation(recipe.evaluation))
                run_tracked_here(TrackedJob(JOB, tracker, parent, storage, ALONE), recipe, targets)
                made |= {recipe.name: targets[0].fingerprint, "bm25": targets[1].fingerprint}
    return made
