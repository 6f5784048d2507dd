"""The tracked runs of a store, kept beside it, so that a page asks the store only for what changed.

MLflow keeps no time of a run's last change, so what may have changed is asked for in four ways: runs that have not
ended; runs that began or ended since shortly before the last look (the clocks of a cluster differ); runs that had not
ended at the last look, by their ids (their end may be told late, with the time at which it was); and the deleted ones.
Two things escape this, a tag that is edited by hand after the end, and a run that is deleted and purged between two
looks; so everything is read again when a day has passed, or when asked to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from midmask.tracking import StoreReader, TrackedRow

OVERLAP = timedelta(minutes=15)
"""How far the clocks of machines that write to one store may differ."""

WHOLE_AGAIN = timedelta(days=1)


@dataclass(frozen=True)
class Snapshot:
    """What was known of a store at a time.

    store: as `StoreReader.identity`. looked: when changes were last asked for, whole: when everything was last read.
    runs: id -> run. deleted: ids of runs in MLflow's bin, since one that leaves it may have been restored.
    """

    store: str
    looked: datetime
    whole: datetime
    runs: Mapping[str, TrackedRow]
    deleted: frozenset[str]

    def newest_first(self) -> list[TrackedRow]:
        return sorted(self.runs.values(), key=lambda run: run.started, reverse=True)


def refresh(
    known: Snapshot | None, reader: StoreReader, progress: Callable[[int], None] = lambda count: None
) -> Snapshot:
    """What the store holds now; `known` itself, but for the time, if nothing changed.

    Args:
        known: an earlier look; None: read everything.
        progress: told how many runs have been read when everything is read.

    Raises:
        UserError: if the store does not answer.
    """
    now = datetime.now(UTC)
    if known is None or known.store != reader.identity or now - known.whole > WHOLE_AGAIN or now < known.looked:
        deleted = reader.deleted()
        return Snapshot(reader.identity, now, now, _by_id(reader.all(progress)), deleted)
    unsettled = {run.run_id for run in known.runs.values() if run.ended is None}
    deleted = reader.deleted()
    found = _by_id(reader.running_or_since(known.looked - OVERLAP))
    asked = (unsettled | known.deleted) - found.keys() - deleted
    found |= _by_id(reader.named(asked))
    gone = (deleted | asked) - found.keys()
    changed = {run_id: run for run_id, run in found.items() if known.runs.get(run_id) != run}
    if not changed and deleted == known.deleted and not gone & known.runs.keys():
        return replace(known, looked=now)
    runs = {run_id: run for run_id, run in {**known.runs, **changed}.items() if run_id not in gone}
    return Snapshot(known.store, now, known.whole, runs, deleted)


def _by_id(runs: Sequence[TrackedRow]) -> dict[str, TrackedRow]:
    return {run.run_id: run for run in runs}
