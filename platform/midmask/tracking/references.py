"""Which artifacts of a store the runs and the registered models of a tracking store name, and which jobs still run."""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow.entities import LoggedModel, Run

from midmask.core.config import fingerprints_in
from midmask.tracking.names import ARTIFACT
from midmask.tracking.outbox import find_left_behind
from midmask.tracking.reading import StoreReader
from midmask.tracking.writer import OWNER, PARENT, is_dead

_STEP = re.compile(r"/[^/?]+/[^/?]+(?=\?|$)")
"""STEP/FINGERPRINT in the place of an artifact, before a URI's options."""


@dataclass(frozen=True)
class References:
    """The artifacts that tracked runs and registered models name, and the jobs that still run."""

    # fingerprints in runs that are not deleted, their models, registered models, and values not sent yet
    named: frozenset[str] = frozenset()
    # fingerprints of the models of a sweep's trials, whose runs name no evaluations
    tried: frozenset[str] = frozenset()
    storages: frozenset[str] = frozenset()  # places of the stores in which artifacts of these runs lie
    running: tuple[str, ...] = ()  # names of the runs that a living process writes
    runs: int = 0  # how many there are

    def __or__(self, other: "References") -> "References":
        return References(
            self.named | other.named,
            self.tried | other.tried,
            self.storages | other.storages,
            (*self.running, *other.running),
            self.runs + other.runs,
        )


def read_references(uri: str, home: Path) -> References:
    """Reads the references of one tracking store; all are empty if nothing was tracked there yet.

    Args:
        home: the folder of `mlflow-pending/`, where values wait that have not reached the store.

    Raises:
        UserError: if the store does not answer.
    """
    pending = set[str]().union(*(fingerprints_in(text) for text in _read_pending(home, uri)))
    reader = StoreReader(uri)
    runs = {run.info.run_id: run for run in reader.runs()}
    models = {model.model_id: model for model in reader.models()}
    trials = [name for name, run in runs.items() if run.data.tags.get("midmask.step") == "trial"]
    in_trials = set[str]().union(*(_find_models(reader.run(name)) for name in trials)) & models.keys()
    counted = [model for name, model in models.items() if name in in_trials or _is_of(model, runs)]
    texts = [dict(record.data.tags) for record in runs.values()] + [
        dict(record.data.params) for record in runs.values()
    ]
    texts += [dict(record.tags) for record in (*counted, *reader.versions())]
    return References(
        named=frozenset(_fingerprints(texts) | pending),
        tried=frozenset(_fingerprints([dict(models[name].tags) for name in in_trials])),
        storages=frozenset(_STEP.sub("", place) for place in _places(texts)),
        running=tuple(run.info.run_name for run in runs.values() if _is_written(run, runs)),
        runs=len(runs),
    )


def _read_pending(home: Path, uri: str) -> Iterator[str]:
    for _, path in find_left_behind(home, uri):
        with contextlib.suppress(FileNotFoundError):  # its values have arrived meanwhile
            yield path.read_text("utf-8", "replace")


def _find_models(run: Run) -> set[str]:
    """Ids of the models that a run used or made."""
    used = run.inputs.model_inputs if run.inputs else []
    made = run.outputs.model_outputs if run.outputs else []
    return {link.model_id for link in (*used, *made)}


def _is_of(model: LoggedModel, runs: Mapping[str, Run]) -> bool:
    """Whether one of these runs made the model, or it is not known which run did. A model that a run only used is in
    the record of what the run made.
    """
    return not model.source_run_id or model.source_run_id in runs


def _fingerprints(texts: Iterable[Mapping[str, str]]) -> set[str]:
    return {name for values in texts for text in values.values() for name in fingerprints_in(text)}


def _places(texts: Iterable[Mapping[str, str]]) -> Iterable[str]:
    return (text for values in texts for name, text in values.items() if name.split("/")[0] == ARTIFACT)


def _is_written(run: Run, runs: Mapping[str, Run]) -> bool:
    """Whether a living process writes the run; False for a run of an earlier version, which does not name its owner."""
    tags = run.data.tags
    if run.info.status != "RUNNING" or OWNER not in tags:
        return False
    parent = runs.get(tags.get(PARENT, ""))
    return not is_dead(tags, parent.data.tags if parent else {}, time.time())
