"""The command `doctor`: what is installed, what the stores hold, and what is wrong with either or with a cluster."""

import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from midmask.app.flags import add_storage_flag, add_tracking_flag
from midmask.app.job import home, resolve_storage
from midmask.commands import program
from midmask.core.config import ABSENT
from midmask.core.process import usable_cores
from midmask.core.redaction import redacted
from midmask.errors import UserError, how_to_install
from midmask.store.checks import FAISS_BUILDS, own_versions, why_not_writable
from midmask.store.digests import RECORD
from midmask.store.place import Place
from midmask.store.pretrained import PRETRAINED, model_folder
from midmask.tracking.names import resolve_tracking_uri, sqlite_file

if TYPE_CHECKING:
    from midmask.backend.cluster import NodeReport


def _doctor_flags(parser: ArgumentParser) -> None:
    add_storage_flag(parser)
    add_tracking_flag(parser)


@program(_doctor_flags)
def doctor(flags: Namespace) -> None:
    """Shows the installed versions and what the stores of this project contain, and says what is wrong and what mends
    it: of the stores, and, where RAY_ADDRESS names a cluster, of each of its nodes (versions, address, GPUs).

    Examples:
      midmask doctor
    """
    base = home(Path.cwd())
    storage, tracking = Place(resolve_storage(flags.storage, base)), resolve_tracking_uri(flags.tracking_uri, base)
    for name, text in (*_list_versions(), *_list_pretrained(), ("project", str(base))):
        _say(name, text)
    problems = _examine_stores(storage, tracking)
    if os.environ.get("RAY_ADDRESS", "local") != "local":
        problems += _examine_cluster(storage, tracking)
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
    _say("tracking", silent or _tracking(tracking))
    return bool(closed) + bool(silent)


def _examine_cluster(storage: Place, tracking: str) -> int:
    """Prints the faults of each node of the cluster; returns their number."""
    from midmask.backend.cluster import connect, report_on_nodes

    connect()
    reports = report_on_nodes(storage, tracking)
    node_faults = faults(reports, own_versions())
    for report, lines in zip(reports, node_faults, strict=True):
        for line in lines or [f"{report.address}, {report.gpus[0]} GPUs: fine"]:
            _say(report.name, line)
    return sum(map(len, node_faults))


def faults(reports: "Sequence[NodeReport]", own: Mapping[str, str]) -> list[list[str]]:
    """The faults of each node, one line per fault.

    Args:
        own: versions of Python and the packages on this machine.
    """
    return [list(_faults(report, len(reports) > 1, own)) for report in reports]


def _faults(report: "NodeReport", several: bool, own: Mapping[str, str]) -> Iterator[str]:
    if report.silent:
        yield f"did not answer ({report.silent}); install midmask there, in the same versions"
        return
    from midmask.backend.worker_group import is_loopback  # here, for the sake of Ray

    yield from _of_versions(report.versions, own)
    if several and is_loopback(report.address):
        yield (
            f"joined as {report.address}, where no other machine reaches it, since its own name resolves to it; start "
            "its Ray with --node-ip-address=ADDRESS"
        )
    yield from _of_gpus(*report.gpus)
    for what, why in (("the store", report.store), ("the tracking server", report.tracking)):
        if why:
            yield f"cannot use {what}: {why}"


def _of_versions(versions: Mapping[str, str], own: Mapping[str, str]) -> Iterator[str]:
    theirs = {name: versions.get(name, ABSENT) for name in own if name not in FAISS_BUILDS}
    names = [name for name, version in theirs.items() if version != own[name]]
    if names:
        differences = ", ".join(f"{name} {theirs[name]} ({own[name]} here)" for name in names)
        packages = [
            f"{name}=={own[name]}" for name in names if name not in ("Python", "midmask") and own[name] != ABSENT
        ]
        typed = f": pip install {' '.join(packages)}" if packages else ""
        yield f"has other versions: {differences}; install the same there{typed}"


def _of_gpus(reserved: int, torch: int, faiss: int) -> Iterator[str]:
    if reserved > torch:
        yield f"Ray has {reserved} GPUs there and torch sees {torch}; install a build of torch for CUDA, and its driver"
    if torch and not faiss:
        yield f"its faiss is a build for CPUs; {how_to_install('gpu')} lets it search on the GPU"


def _list_versions() -> Iterator[tuple[str, str]]:
    versions = own_versions()
    yield "midmask", f"{versions.pop('midmask')}, Python {versions.pop('Python')}, {usable_cores()} CPUs"
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


def _store(storage: Place) -> str:
    """The number of artifacts in a store, and of those from an earlier version that would be computed again."""
    from midmask.experiment.graph import FORMAT  # here, for the sake of torch

    folders = (storage / step / name for step in storage.names() for name in (storage / step).names())
    records = (folder / RECORD for folder in folders if (folder / RECORD).exists())
    formats = Counter(record.read_json().get("identity", {}).get("format") for record in records)
    older = sum(count for number, count in formats.items() if number not in (FORMAT, None))
    text = f"{redacted(storage.uri)}: {sum(formats.values())} artifacts"
    if older:
        text += f"; {older} of them are of an older version, which computes its steps anew and leaves these unused"
    return text


def _tracking(uri: str) -> str:
    path = sqlite_file(uri)
    missing = path is not None and not path.exists()
    return redacted(uri) + (": nothing was tracked there yet" if missing else "")
