"""Which artifacts and attempts of a store are not needed, and how they are deleted.

Needed are the artifacts that tracked runs and registered models name, and all that these were made from. Of the trials
of a sweep, also all that was made from the models they trained: their runs name no evaluations, and a sweep that goes
on reads these.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field

from midmask.app.store_contents import REMOVED, StoreContents, Stored, files_below
from midmask.artifact import RECORD, Place
from midmask.attempts import ATTEMPTS, FILLING
from midmask.errors import UserError
from midmask.experiment.kinds import KINDS
from midmask.leases import LEASE
from midmask.redaction import redacted
from midmask.refusals import CLOSED, refusing
from midmask.tracking.references import References

INTERMEDIATE = {kind.name for kind in KINDS.values() if kind.intermediate}

TRIED = {kind.name for kind in KINDS.values() if kind.trains and kind.model in ("encoder", "retriever")}
"""Trainings of a sweep's trials."""


@dataclass(frozen=True)
class Sorted:
    """A store's artifacts and attempts. needed: by a run or a registered model. kept: not needed, but too young, held,
    or of a store in which a job runs. spare: intermediates of finished results, which only --intermediates deletes.
    unneeded: what can be deleted. running: whether a job runs, so that artifacts are not deleted now.
    """

    needed: list[Stored] = field(default_factory=list)
    kept: list[Stored] = field(default_factory=list)
    spare: list[Stored] = field(default_factory=list)
    unneeded: list[Stored] = field(default_factory=list)
    running: bool = False


def sort_contents(contents: StoreContents, tracked: References, before: float, *, intermediates: bool) -> Sorted:
    """Sorts what lies in a store.

    Args:
        before: seconds since 1970; what has changed since is kept.
        intermediates: whether intermediates of finished results can be deleted, too.
    """
    needed = needed_fingerprints(contents.artifacts, tracked)
    searched = {name for one in contents.artifacts for name in one.names if one.fingerprint in needed}
    running = bool(tracked.running) or any(one.may_live for one in contents.attempts)
    found = Sorted(running=running)
    for one in contents.artifacts:
        stays = one.is_held or one.changed > before or running
        is_spare = one.step in INTERMEDIATE and one.fingerprint in searched
        if one.fingerprint in needed and (stays or not is_spare):
            found.needed.append(one)
        elif stays:
            found.kept.append(one)
        elif is_spare and not intermediates:
            found.spare.append(one)
        else:
            found.unneeded.append(one)
    for one in contents.attempts:
        stays = one.is_held or one.may_live or (one.changed > before and not one.is_marked)
        (found.kept if stays else found.unneeded).append(one)
    return found


def needed_fingerprints(artifacts: Iterable[Stored], tracked: References) -> set[str]:
    """Fingerprints of the artifacts that tracked runs and registered models need."""
    inputs: dict[str, set[str]] = {}
    users: dict[str, set[str]] = {}
    trained = set()
    for one in artifacts:
        inputs.setdefault(one.fingerprint, set()).update(one.names)
        trained |= {one.fingerprint} if one.step in TRIED else set()
        for name in one.names:
            users.setdefault(name, set()).add(one.fingerprint)
    tried = _reach(tracked.tried, inputs) & trained
    return _reach(tracked.named | _reach(tried, users), inputs) & inputs.keys()


def _reach(start: Iterable[str], edges: dict[str, set[str]]) -> set[str]:
    """All that the edges lead to, the start included."""
    found, waiting = set(start), list(start)
    while waiting:
        new = edges.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def refuse_strangers(storage: Place, contents: StoreContents, tracked: References, uris: Iterable[str]) -> None:
    """Raises UserError if no tracked run names an artifact in this store, so that all would look unneeded."""
    if not contents.artifacts or _real_place(storage.uri) in map(_real_place, tracked.storages):
        return
    others = ", ".join(sorted(redacted(one) for one in tracked.storages)[:3])
    raise UserError(
        f"none of the {tracked.runs:,} runs tracked in {', '.join(map(redacted, uris))} names an artifact of "
        f"{redacted(storage.uri)}, so all its {len(contents.artifacts):,} artifacts would look unneeded"
        f"{f' (these runs name {others})' if others else ''}. Nothing was deleted. Give the --storage and the "
        "--tracking-uri of the jobs that filled the store, as they were given to the jobs."
    )


def _real_place(uri: str) -> str:
    base = Place(uri).base.rstrip("/")
    return os.path.realpath(base) if "://" not in base else base


def delete(storage: Place, one: Stored) -> None:
    """Deletes an artifact or an attempt. At no moment does a part of it look whole, or like the start of an attempt
    that a job could go on from; so this may be killed at any time.

    Raises:
        UserError: if the store is read-only or closed to this user.
    """
    with refusing(str(storage / one.address), CLOSED):
        if storage.is_path:
            _move_and_delete(storage, one)
        else:
            _mark_and_delete(storage, one)


def _move_and_delete(storage: Place, one: Stored) -> None:
    """On a disk: renames the folder to a name that no job looks for; only then are its files deleted."""
    source = (storage / one.address).uri
    attempts = os.path.dirname(source) if one.is_attempt else f"{source}{ATTEMPTS}"
    if not os.path.basename(source).startswith(REMOVED):
        os.makedirs(attempts, exist_ok=True)
        target = os.path.join(attempts, f"{REMOVED}{secrets.token_hex(4)}")
        with contextlib.suppress(FileNotFoundError):  # an attempt may have left its lease alone
            os.rename(source, target)
            source = target
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(source)
    (storage / f"{one.address}{LEASE}").delete()
    with contextlib.suppress(OSError):
        os.rmdir(attempts)  # unless other attempts lie there


def _mark_and_delete(storage: Place, one: Stored) -> None:
    """On an object store: the record goes first. A mark in the folder of the files, which goes last, keeps jobs from
    taking them over.
    """
    files = storage / one.address / one.own_attempt if one.own_attempt else storage / one.address
    (files / FILLING).write(b"")
    (storage / one.address / RECORD).delete()
    (files / RECORD).delete()
    for file in files_below(files):
        if file.name != FILLING and not file.is_linked:
            (files / file.name).delete()
    files.delete()
    (storage / f"{one.address}{LEASE}").delete()
    if one.own_attempt and not (storage / one.address).names():
        (storage / one.address).delete()
