"""The command `gc`: what a store no longer needs, listed or deleted."""

import re
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from midmask.app.flags import add_storage_flag
from midmask.app.job import home, resolve_storage
from midmask.commands import program
from midmask.core.redaction import redacted
from midmask.core.words import gib
from midmask.errors import UserError
from midmask.store.place import Place
from midmask.tracking.names import resolve_tracking_uri

if TYPE_CHECKING:
    from midmask.app.garbage import Sorted, Stored


DAY = 86400.0
LAST = "unfinished"
"""The line of what killed jobs left."""


def _gc_flags(parser: ArgumentParser) -> None:
    add_storage_flag(parser)
    parser.add_argument(
        "--tracking-uri",
        action="append",
        metavar="URI",
        help="MLflow's; default: sqlite:///mlflow.db in the project; give it again for each store of runs whose jobs "
        "share the storage",
    )
    parser.add_argument(
        "--older-than", type=_days, default="30d", metavar="DAYS", help="keep what is younger, such as 7d; default: 30d"
    )
    parser.add_argument(
        "--intermediates",
        action="store_true",
        help="also vectors and indexes of finished searches; another search of the same model computes them again",
    )
    parser.add_argument("--delete", action="store_true", help="delete it; without this flag it is only listed")


@program(_gc_flags)
def gc(flags: Namespace) -> None:
    """Lists, and with --delete frees, what a store no longer needs: artifacts that no tracked run and no registered
    model needs, and what killed jobs left unfinished.

    Runs that were deleted in MLflow need nothing. Results of the Python API are not tracked, so that they count as not
    needed. While a job runs, only what killed jobs left is deleted.

    Examples:
      midmask gc
      midmask gc --delete
    """
    from midmask.app.garbage import (  # here, for the sake of MLflow
        delete,
        read_contents,
        refuse_strangers,
        sort_contents,
    )
    from midmask.tracking.reading import read_references

    base, now = home(Path.cwd()), time.time()
    storage = Place(resolve_storage(flags.storage, base))
    uris = [resolve_tracking_uri(uri, base) for uri in flags.tracking_uri or [None]]
    if not storage.exists():
        raise UserError(f"--storage {redacted(storage.uri)} is not there; give the one of your jobs")
    contents = read_contents(storage, now)  # before the runs: what is made meanwhile is not in it
    tracked = read_references(uris)
    refuse_strangers(storage, contents, tracked, uris)
    by_need = sort_contents(contents, tracked, now - flags.older_than, intermediates=flags.intermediates)
    print(f"{redacted(storage.uri)}, with {tracked.runs:,} runs tracked in {', '.join(map(redacted, uris))}\n")
    print("\n".join([*_table(by_need), ""]))
    if by_need.kept:
        days = flags.older_than / DAY
        print(f"Kept for now: younger than {days:g} days (--older-than), in use, behind a link, or damaged.")
    if by_need.running:
        print("A job runs: artifacts are not deleted until it has ended.")
    for stored in by_need.unneeded if flags.delete else ():
        delete(storage, stored)
    unneeded = _amount(by_need.unneeded) or "nothing"
    print(
        f"Deleted: {unneeded}."
        if flags.delete
        else f"Not needed: {unneeded}. --delete deletes it; nothing was deleted."
    )


def _table(groups: "Sorted") -> Iterator[str]:
    """The lines of the summary table: one for each kind of step, and one for the attempts."""
    columns = (groups.needed, groups.kept, groups.unneeded)
    yield f"{'step':<14}{'needed':>20}{'kept for now':>20}{'not needed':>20}"
    names = {_kind(stored) for column in columns for stored in column}
    for name in sorted(names, key=lambda name: (name == LAST, name)):
        cells = [[stored for stored in column if _kind(stored) == name] for column in columns]
        yield f"{name:<14}{''.join(f'{_amount(some):>20}' for some in cells)}".rstrip()
    yield f"{'in all':<14}{''.join(f'{_amount(some):>20}' for some in columns)}".rstrip()


def _kind(stored: "Stored") -> str:
    return LAST if stored.is_attempt else stored.step


def _amount(some: "Sequence[Stored]") -> str:
    return f"{len(some):,} · {gib(sum(stored.size for stored in some))}" if some else ""


def _days(text: str) -> float:
    """Parses a number of days (`7` or `7d`) into seconds."""
    if not (match := re.fullmatch(r"(\d{1,5})d?", text)):
        raise ArgumentTypeError(f"{text!r} is no number of days, such as 30d")
    return int(match[1]) * DAY
