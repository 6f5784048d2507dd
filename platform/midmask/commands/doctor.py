"""The command `doctor`: what is installed, what the stores hold, and what is wrong with either."""

import platform
import uuid
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from midmask.app.flags import add_storage_flag, add_tracking_flag
from midmask.app.job import home, resolve_storage
from midmask.commands import program
from midmask.core.config import ABSENT, FAISS_BUILDS, library_versions
from midmask.core.process import usable_cores
from midmask.core.redaction import redacted
from midmask.errors import UserError, how_to_install
from midmask.store.artifact import RECORD
from midmask.store.place import Place
from midmask.store.pretrained import PRETRAINED, model_folder
from midmask.tracking.names import resolve_tracking_uri, sqlite_file

PACKAGES = ("midmask", "torch", "transformers", "ray", "mlflow", "optuna", "pyarrow", *FAISS_BUILDS)


def _doctor_flags(parser: ArgumentParser) -> None:
    add_storage_flag(parser)
    add_tracking_flag(parser)


@program(_doctor_flags)
def doctor(flags: Namespace) -> None:
    """Shows the installed versions and what the stores of this project contain, and says what is wrong and what mends
    it. All nodes of a cluster should say the same: run it on each.

    Examples:
      midmask doctor
    """
    base = home(Path.cwd())
    storage, tracking = Place(resolve_storage(flags.storage, base)), resolve_tracking_uri(flags.tracking_uri, base)
    for name, text in (*_list_versions(), *_list_pretrained(), ("project", str(base))):
        _say(name, text)
    problems = _examine_stores(storage, tracking)
    if problems:
        raise UserError(f"{problems} problem{'s' if problems > 1 else ''} found (see above)")


def _say(name: str, text: str) -> None:
    print(f"{name:<14}{text}")


def _examine_stores(storage: Place, tracking: str) -> int:
    """Prints what the stores contain; returns how many of them cannot be used."""
    from midmask.tracking.store import why_silent  # here, so that versions are shown at once

    closed = why_not_writable(storage) if storage.is_folder() or not storage.is_path else ""
    _say("store", f"{redacted(storage.uri)} cannot be used: {closed}" if closed else _store(storage))
    silent = why_silent(tracking)
    file = sqlite_file(tracking)
    nothing = ": nothing was tracked there yet" if file is not None and not file.exists() else ""
    _say("tracking", silent or redacted(tracking) + nothing)
    return bool(closed) + bool(silent)


def _list_versions() -> Iterator[tuple[str, str]]:
    versions = library_versions(PACKAGES)
    yield "midmask", f"{versions.pop('midmask')}, Python {platform.python_version()}, {usable_cores()} CPUs"
    for name, version in versions.items():
        if version != ABSENT:
            yield name, version
        elif name not in FAISS_BUILDS:
            yield name, f"is not installed: {how_to_install('cpu')}"


def _list_pretrained() -> Iterator[tuple[str, str]]:
    """Where each packaged model lies, or what to type to have it."""
    for name, model in PRETRAINED.items():
        try:
            yield name, f"{model_folder(name)} ({model.source}; {model.licence})"
        except UserError as error:
            yield name, str(error)


def why_not_writable(storage: Place) -> str:
    """Why a store cannot be written to, read and deleted from; empty if it can."""
    probe = storage / f"check-{uuid.uuid4().hex}"
    try:
        probe.write(b"midmask doctor")
        same = probe.read() == b"midmask doctor"
        probe.delete()
    except (OSError, UserError) as error:
        return redacted(" ".join(str(error).split()))[:300]
    return "" if same else f"{redacted(probe.uri)} came back with another content"


def _store(storage: Place) -> str:
    """The number of artifacts in a store."""
    folders = (storage / step / name for step in storage.names() for name in (storage / step).names())
    return f"{redacted(storage.uri)}: {sum((folder / RECORD).exists() for folder in folders)} artifacts"
