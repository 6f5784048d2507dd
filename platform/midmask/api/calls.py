"""What all calls of the Python API share: names and settings that they take, where they compute, what they print."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from midmask.app.job import resolve_storage
from midmask.app.progress import StepProgress
from midmask.core.config import flatten, override
from midmask.core.redaction import has_credentials, redacted
from midmask.core.words import clock
from midmask.corpora.config import CorpusConfig
from midmask.errors import UserError
from midmask.experiment.changes import as_folder_reads, check_folder
from midmask.experiment.events import Begun, Ended, Logged, StepEvent, unobserved
from midmask.experiment.graph import Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.searching import adopted
from midmask.recipes import RECIPES
from midmask.recipes.build import at_scale
from midmask.recipes.protocols import PROTOCOLS
from midmask.retrieve.bm25 import BM25
from midmask.store.place import Place
from midmask.store.pretrained import model_folder


def list_recipes() -> list[str]:
    """Names of the recipes: each is a middle training (or none) with a fine-tuning."""
    return list(RECIPES)


def list_protocols() -> list[str]:
    """Names of the fine-tuning protocols, each of which can be put on any recipe."""
    return list(PROTOCOLS)


def settings(recipe: str, *, protocol: str | None = None) -> dict[str, Any]:
    """Every field of a recipe, as dotted path -> value: what `train(…, settings={path: value})` can change.

    Raises:
        UserError: for an unknown recipe or protocol.
    """
    return flatten(recipe_named(recipe, protocol))


def recipe_named(name: str, protocol: str | None) -> Recipe:
    """The recipe, with another protocol's fine-tuning if one is named.

    Raises:
        UserError: for an unknown name, with the nearest one.
    """
    recipe = RECIPES[name]()
    return recipe if protocol is None else at_scale(recipe, protocol, "demo")


def as_changes(settings: Mapping[str, object] | None) -> dict[str, object]:
    """The settings of a call of this API, with every path as text."""
    return {path: str(value) if isinstance(value, Path) else value for path, value in (settings or {}).items()}


def read_as(corpus: CorpusConfig, changes: Mapping[str, object]) -> CorpusConfig:
    """The collection with the changes to fields of `corpus` applied.

    Raises:
        UserError: for an unknown field, with the nearest one, or an impossible value.
    """
    reading = {path: value for path, value in changes.items() if path.partition(".")[0] == "corpus"}
    return override(override(RECIPES["none"](), {"corpus": corpus.model_dump()}), reading).corpus


def recipe_for_model(model: str | Path, corpus: CorpusConfig, changes: dict[str, object]) -> tuple[Recipe, Step | None]:
    """The recipe that reads a collection's texts as a model does, and the model's folder as a step; for BM25, none.

    Args:
        model: a folder, the name of a pre-trained model, a cached hub id, or "bm25".
        changes: dotted path -> value, which win over what the folder says.

    Raises:
        UserError: for an unknown name, a folder that holds no model, or an impossible value.
    """
    recipe = override(override(RECIPES["none"](), {"corpus": corpus.model_dump()}), changes)
    if model == BM25:
        return recipe, None
    folder = model_folder(str(Path(model).expanduser()), field="model", choices=(BM25,)).absolute()
    recipe = as_folder_reads(recipe, folder, changes)
    check_folder(recipe, folder)
    return recipe, adopted(str(folder))


def check_reach(changes: Mapping[str, object], reached: Sequence[str], of: str) -> None:
    """
    Args:
        reached: fields and sections that can be set. of: what they are set of, for the message.

    Raises:
        UserError: for a path that changes nothing there.
    """
    for path in changes:
        if not any(f"{path}.".startswith(f"{section}.") for section in reached):
            raise UserError(
                f"{path}: it changes nothing about {of}, only {', '.join(reached)} do; give it to the training (in "
                "Python: midmask.train), or leave it out"
            )


STORE = "midmask-store"
"""The store of a call without `storage` where MIDMASK_STORAGE is not set: a folder of the working directory."""


def open_store(storage: str | Path | None) -> Place:
    """The store: as given, else MIDMASK_STORAGE, else `STORE`.

    Raises:
        UserError: for a URI that contains credentials.
    """
    place = str(storage) if storage is not None else os.environ.get("MIDMASK_STORAGE") or STORE
    if has_credentials(place):
        raise UserError(
            f"storage = {redacted(place)!r} contains credentials, which records would show; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (or what your store reads) instead"
        )
    return Place(resolve_storage(place, Path.cwd()))


def runner_in(storage: Place, *, progress: bool) -> Runner:
    """Runs steps in this process."""
    return Runner(storage, LOCAL, ProgressLines() if progress else unobserved)


class ProgressLines:
    """Prints to standard error what is computed: a line when a step begins and ends, and now and then in between."""

    def __init__(self) -> None:
        self._lines: dict[str, StepProgress] = {}
        self._began: dict[str, float] = {}

    def __call__(self, event: StepEvent) -> None:
        match event:
            case Begun(step):
                self._lines[step.fingerprint] = StepProgress(step.name, show_line)
                self._began[step.fingerprint] = time.monotonic()
                show_line(f"{step.name} …")
            case Logged(step, at, values):
                self._lines[step.fingerprint].update(at, step.optimiser_steps, values.get("train/loss"))
            case Ended(step, cached=False):
                show_line(f"{step.name}: done in {clock(time.monotonic() - self._began[step.fingerprint])}")


def show_line(line: str) -> None:
    """Prints a line of progress to standard error."""
    print(line, file=sys.stderr, flush=True)
