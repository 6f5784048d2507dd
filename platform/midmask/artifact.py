"""Folders with a record written last: a step's result is complete when, and only when, its record is there.

The record states the size and the SHA-256 of every file, so that damage is noticed (`digests`). Any number of jobs may
make the same artifact in one store: each writes into a folder of its own (`attempts`), and the first record counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from midmask.attempts import attempt
from midmask.digests import RECORD as RECORD
from midmask.digests import Digests, check_sizes, read_record, remember
from midmask.leases import Timing as Timing
from midmask.place import Place as Place
from midmask.place import cache_folder as cache_folder


@dataclass(frozen=True)
class Artifact:
    """A finished step: the folder of its files and its record (step, fingerprint, config, inputs, result, files)."""

    place: Place
    record: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        return str(self.record["fingerprint"])

    @property
    def result(self) -> dict[str, Any]:
        """The step's small results: counts, measures, seconds."""
        return dict(self.record["result"])

    @property
    def address(self) -> Place:
        """STORE/STEP/FINGERPRINT, under which `load` finds the artifact; on an object store, its files lie below."""
        name = self.record.get("attempt")
        if name is None:
            return Place(self.place.uri)
        options = self.place.uri[len(self.place.base) :]
        return Place(self.place.base.removesuffix(f"/{name}") + options)


def load(place: Place) -> Artifact:
    """A finished artifact.

    Raises:
        UserError: if there is no record, so nothing finished here, or a file is missing or has another size than the
            record states.
    """
    record = read_record(place)
    remember(place, record)
    folder = place / record["attempt"] if "attempt" in record else place
    check_sizes(place, folder, record.get("files", {}))
    return Artifact(Place(folder.uri, Digests(place, folder)), record)


def produce(
    place: Place, record: dict[str, Any], make: Callable[[Place], dict[str, Any]], timing: Timing | None = None
) -> Artifact:
    """The artifact at `place`: loaded if finished, else made by `make(out)` in a folder of this process's own.

    The result of `make` enters the record, which makes the artifact visible. After a kill, `make` finds the files that
    the dead process has finished. While another living process makes the artifact, this one waits.

    Args:
        timing: of leases; None: the default.
    """
    with attempt(place, timing or Timing()) as own:
        if own is not None:
            own.publish({**record, "result": make(own.out)})
    return load(place)


def start_afresh(out: Place) -> None:
    """Deletes what an interrupted call has left, for a step that cannot go on from it."""
    for name in out.names():
        (out / name).delete()
