"""What the driver's own steps do, written to MLflow as nested runs and to the terminal as a line now and then."""

import logging
from collections.abc import Mapping
from typing import Any

from midmask.artifact import Artifact
from midmask.cluster.progress import StepProgress
from midmask.identity import flatten
from midmask.recipes.plan import Step
from midmask.recipes.schema import Recipe
from midmask.tracking import TrackedRun, Tracker, metric_key

log = logging.getLogger(__name__)


def base_tags(job: str, recipe: Recipe) -> dict[str, str]:
    """The tags that every run of a job bears."""
    return {
        "midmask.job": job,
        "midmask.recipe": recipe.name,
        "midmask.objective": recipe.objective.name if recipe.objective else "none",
        "midmask.corpus": recipe.corpus.short_name,
    }


def step_tags(step: Step) -> dict[str, str]:
    """The tags of one step's run; BM25 is a system of its own, whatever recipe it is held against."""
    own = {"midmask.step": step.name, "midmask.fingerprint": step.fingerprint}
    is_bm25 = "bm25" in (step.name, *(source.name for source in step.inputs.values()))
    return {**own, "midmask.recipe": "bm25", "midmask.objective": "none"} if is_bm25 else own


def log_evaluation(run: TrackedRun, artifact: Artifact) -> None:
    """An evaluation's means as metrics, its per-query values and its ranked list as files. A slice is like a split."""
    result = artifact.result
    corpus, split = result["corpus"], result["split"]
    means = {split: result["measures"], **{name: own["measures"] for name, own in result.get("slices", {}).items()}}
    folder = artifact.place.local()
    for part, values in means.items():
        run.log({metric_key(corpus, part, measure): value for measure, value in values.items()}, step=0)
        run.log_file(folder / "per_query" / f"{corpus}.{part}.parquet", "per_query")
    run.log_file(folder / "runs" / f"{corpus}.{split}.trec.gz", "runs")
    if result["split_made_here"]:
        run.tag({"midmask.split_made_here": "true"})


def numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """The numeric leaves of a step's result, by dotted path."""
    found: dict[str, float] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            found.update({f"{name}.{inner}": leaf for inner, leaf in numbers(value).items()})
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = float(value)
    return found


class TrackingObserver:
    """A nested run for every step that is computed; a link to the first run for every step that was there."""

    def __init__(self, tracker: Tracker, parent: TrackedRun, job: str, recipe: Recipe) -> None:
        self._tracker = tracker
        self._parent = parent
        self._tags = base_tags(job, recipe)
        self._params = flatten(recipe)
        self._open: dict[str, TrackedRun] = {}
        self._seen: set[str] = set()
        self._progress: dict[str, StepProgress] = {}

    def begin(self, step: Step) -> None:
        log.info("%s: starts (%s)", step.name, step.fingerprint)
        tags = {**self._tags, **step_tags(step)}
        name = f"{step.name}-{tags['midmask.recipe']}-{step.fingerprint[:6]}"
        self._open[step.fingerprint] = self._tracker.run(name, tags=tags, params=self._params, parent=self._parent.id)
        self._progress[step.fingerprint] = StepProgress(step.name, lambda line: log.info("%s", line))

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        self._open[step.fingerprint].log(named(step.name, values), step=at)
        self._progress[step.fingerprint].update(at, step.optimiser_steps, values.get("train/loss"))

    def end(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        if step.fingerprint in self._seen:
            return
        self._seen.add(step.fingerprint)
        if cached:
            log.info("%s: taken from %s", step.name, artifact.place)
            finished = self._tracker.find(step.fingerprint, step=step.name).finished
            if finished:
                tags = {**self._tags, **step_tags(step)}
                self._tracker.link_cached(finished, f"{step.name} (cached)", tags=tags, parent=self._parent.id)
                return
            self.begin(step)
        run = self._open.pop(step.fingerprint)
        if step.name == "evaluate":
            log_evaluation(run, artifact)
        else:
            run.log({f"{step.name}/{name}": value for name, value in numbers(artifact.result).items()}, step=0)
        run.finish()
        log.info("%s: done, in %s", step.name, artifact.place)


def named(step: str, values: Mapping[str, float]) -> dict[str, float]:
    """Metric keys of a step's report: `pretrain/loss`, `finetune/tokens_per_second`."""
    return {f"{step}/{name.removeprefix('train/')}": value for name, value in values.items()}
