"""Finished models in MLflow's registry: the folder as it is, its signature, and its origin.

A version is a LoggedModel whose files are the model's own folder and `MLmodel`, so that the folder which is fetched
loads in midmask, transformers or sentence-transformers like any other. Nothing is pickled. A dense model has MLflow's
flavour for sentence-transformers, by which MLflow loads and serves it.
"""

import json
import logging
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from mlflow import MlflowClient, pyfunc
from mlflow.entities import LoggedModel, LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, Schema, TensorSpec

from midmask.core.redaction import redacted
from midmask.errors import UserError
from midmask.tracking.lineage import model_name
from midmask.tracking.names import ARTIFACT, LONGEST_TAG, check_key, shorten
from midmask.tracking.opening import FINGERPRINT
from midmask.tracking.store import FAILURES, Patience, create_store, patiently, reason

log = logging.getLogger(__name__)

LOGGED = "midmask.logged_model"
"""Which LoggedModel a version is of: a SQL registry keeps no id."""

FLAVOUR = "midmask"
SENTENCE_TRANSFORMERS = "sentence_transformers"
SENTENCE_TRANSFORMERS_FOLDER = "model.sentence_transformer"
"""MLflow's flavour, and the folder of a version in which it looks for the model."""

_ALIAS = re.compile(r"(?![vV]\d+$)(?!latest$)[\w-]{1,255}", re.ASCII)


@dataclass(frozen=True)
class RegistryEntry:
    """An entry of the registry: a model's folder with its tags."""

    objective: str  # of the model's last training
    backbone: str  # of the model's last training
    fingerprint: str  # of the artifact that holds the model
    outputs: Mapping[str, int]  # view -> its width, such as {"dense": 384, "lexical": 30522}
    # origin: name -> value (recipe, corpus, the steps' fingerprints)
    lineage: Mapping[str, str] = field(default_factory=dict)
    run_id: str | None = None  # the tracked run that trained it, if there is one

    @property
    def name(self) -> str:
        """Registered name: midmask, objective and backbone, joined by dots; MLflow refuses `/` and `:` in it."""
        backbone = re.sub(r"[^\w.-]+", "-", self.backbone).strip("-.")
        return f"midmask.{self.objective}.{backbone}"

    @property
    def signature(self) -> ModelSignature:
        """Texts in; for each text a float32 vector of every view out."""
        outputs = [TensorSpec(np.dtype(np.float32), (-1, width), view) for view, width in self.outputs.items()]
        return ModelSignature(Schema([ColSpec("string")]), Schema(outputs))

    @property
    def tags(self) -> dict[str, str]:
        tags = {FINGERPRINT: self.fingerprint, **{f"midmask.{name}": value for name, value in self.lineage.items()}}
        tags |= {"midmask.objective": self.objective, "midmask.backbone": self.backbone}
        return {check_key(name): shorten(redacted(value), LONGEST_TAG) for name, value in tags.items()}


def register_model(
    uri: str,
    home: Path,
    folder: Path,
    entry: RegistryEntry,
    *,
    alias: str = "candidate",
    patience: Patience = Patience(),  # noqa: B008 (frozen)
) -> str:
    """Registers a model's folder, and gives the version an alias, such as `candidate` or `best-dev`; the version's URI.

    A fingerprint that the name has already is not registered a second time; its version gets the alias.

    Args:
        uri: the store, as `resolve_tracking_uri` gives it. home: the folder of `mlartifacts/`.

    Raises:
        UserError: if there is no model in the folder, the alias or a tag is none that MLflow takes, or the store stays
            away or refuses.
    """
    if not _ALIAS.fullmatch(alias):
        raise UserError(f"alias {alias!r}: use letters, digits, - and _, but not `latest` or v1; such as candidate")
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} holds no model to register: config.json is missing")
    tags = entry.tags

    client, experiment = patiently(lambda: create_store(uri, home), uri, patience)
    try:
        _create_name(client, entry.name)
        versions = client.search_model_versions(f"name='{entry.name}' and tags.`{FINGERPRINT}`='{entry.fingerprint}'")
        version = versions[0] if versions else _create_version(client, experiment, folder, entry, tags)
        client.set_registered_model_alias(entry.name, alias, version.version)
    except FAILURES as error:
        raise UserError(f"{entry.name} cannot be registered in {redacted(uri)}: {reason(error)}") from None
    made = f"models:/{entry.name}/{version.version}"
    log.info("%s is %s@%s", made, entry.name, alias)
    return made


def _create_name(client: MlflowClient, name: str) -> None:
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _find_model(client: MlflowClient, experiment: str, entry: RegistryEntry) -> LoggedModel | None:
    """The model of a tracked run with this fingerprint; its tags become the entry's too."""
    same = client.search_logged_models([experiment], f"tags.`{FINGERPRINT}` = '{entry.fingerprint}'")
    logged_model = next((model for model in same if ARTIFACT in model.tags), None)
    if logged_model is not None:
        client.set_logged_model_tags(logged_model.model_id, entry.tags)
    return logged_model


def _add_flavours(about: Model, folder: Path, entry: RegistryEntry) -> str | None:
    """Adds the flavours of a model; returns where its files lie in the version, None for beside `MLmodel`.

    A SentenceTransformer gives a hybrid's dense view alone, and nothing of a lexical model, so neither has its flavour.
    The generic flavour does not distinguish queries from passages, so it is only for models that encode them alike.
    """
    if list(entry.outputs) != ["dense"] or not (folder / "modules.json").is_file():
        about.add_flavor(FLAVOUR, data=".")
        return None
    about.add_flavor(FLAVOUR, data=SENTENCE_TRANSFORMERS_FOLDER)
    about.add_flavor(SENTENCE_TRANSFORMERS)
    prompts = json.loads((folder / "config_sentence_transformers.json").read_text()).get("prompts", {})
    if not any(prompts.values()) and not (folder / "router_config.json").exists():
        pyfunc.add_to_model(about, f"mlflow.{SENTENCE_TRANSFORMERS}", data=SENTENCE_TRANSFORMERS_FOLDER)
    return SENTENCE_TRANSFORMERS_FOLDER


def _create_version(
    client: MlflowClient, experiment: str, folder: Path, entry: RegistryEntry, tags: Mapping[str, str]
) -> ModelVersion:
    """Uploads the folder as a LoggedModel and makes a version of it; what fails half-way is marked so.

    The model that runs are linked to (`lineage`) gets the files, so that the version leads to its evaluations.
    """
    logged = _find_model(client, experiment, entry) or client.create_logged_model(
        experiment,
        name=model_name(f"{entry.objective}-{entry.backbone}"),
        source_run_id=entry.run_id,
        tags=dict(tags),
        model_type="retriever",
    )
    try:
        about = Model(run_id=entry.run_id, signature=entry.signature, model_id=logged.model_id)
        data = _add_flavours(about, folder, entry)
        with tempfile.TemporaryDirectory() as place:
            about.save(str(Path(place) / "MLmodel"))
            client.log_model_artifacts(logged.model_id, place)
        client.log_model_artifacts(logged.model_id, str(folder), data)
        client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    except BaseException:
        if logged.status != LoggedModelStatus.READY:
            client.finalize_logged_model(logged.model_id, LoggedModelStatus.FAILED)
        raise
    # Not `models:/ID` as the source: MLflow would look the id up in the store of its global settings.
    tags = {**tags, LOGGED: logged.model_id}
    return client.create_model_version(entry.name, logged.artifact_location, run_id=entry.run_id, tags=tags)
