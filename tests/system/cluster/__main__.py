"""Disturbed jobs make what undisturbed ones make, and a cluster makes what one machine makes.

    python -m tests.system.cluster --blows 40                          kills of processes on this machine (make chaos)
    python -m tests.system.cluster --where bed --blows 0               a cluster, and one machine (make scale)
    python -m tests.system.cluster --where bed --blows 30 --only pipeline   losses on it (make chaos-cluster)
    python -m tests.system.cluster --where store --blows 50            two processes race for one artifact (make races)

Three jobs: a pipeline with mined negatives (here with a teacher), a sweep (here with pruning), a benchmark. Here each
has a local Ray of its own; victims are the driver, a worker, the raylet, the channel actor, a trial, or all processes.
The bed is a cluster of machines without a common disk, in namespaces of this one (root): head, two workers, and the
stores (an S3 emulation, MLflow's server over PostgreSQL); a worker, both, the head with the driver, or a store goes and
comes back. Where the driver went, the same command is typed again. Everything is written to FOLDER/journal.jsonl; with
the same FOLDER a run that was itself ended goes on with the next cycle. Exit code 1 if anything differs, hangs, or is
left behind.
"""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.benchmark.tiny import write_collection
from tests.system.cluster import compare
from tests.system.cluster.bed import Bed, cluster
from tests.system.cluster.cycle import Cycle, Timeline, draw, undisturbed
from tests.system.cluster.local import Local, adopt_orphans
from tests.system.cluster.machine import missing
from tests.system.cluster.races import HEADER, races
from tests.system.cluster.work import JOBS, run_here, works

PER_CYCLE = 10
"""Blows between the first start of a job and its end."""


class Campaign:
    """A run of the program in a folder, with its journal."""

    def __init__(self, out: Path, seed: int, *, on_bed: bool, collection: Path | None = None) -> None:
        self.out, self.seed, self.on_bed = out, seed, on_bed
        self._path = out / "journal.jsonl"
        out.mkdir(parents=True, exist_ok=True)
        self.works = works(out, is_spread=on_bed)
        self.collection = collection or out / "tiny"
        if not self.collection.exists():
            write_collection(self.collection)

    def events(self, **wanted: Any) -> list[dict[str, Any]]:
        """What the journal says so far, as far as it agrees with `wanted`."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        found: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [event for event in found if wanted.items() <= event.items()]

    def write(self, **event: Any) -> None:
        with open(self._path, "a") as file:
            file.write(json.dumps(event) + "\n")
        print(f"{time.strftime('%H:%M:%S')} {json.dumps(event)}", flush=True)

    @contextlib.contextmanager
    def site(self, name: str, home: Path) -> Iterator[Local | Bed]:
        """Where a job may run once, in a folder that is emptied."""
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        if self.on_bed:
            with cluster(home) as there:
                yield Bed(there, self.works[name], there.upload(self.collection))
        else:
            whole = self.out / f"{name}-undisturbed" / "tmp"
            known = {path.name for path in whole.iterdir()} if whole.exists() else None
            yield Local(self.works[name], f"beir:{self.collection}", home, known)

    def unlike(self, name: str, home: Path, site: Local | Bed) -> list[str]:
        """A line for all that an undisturbed run, or one machine, has not made."""
        if isinstance(site, Local):
            return [*site.unlike(self.out / f"{name}-undisturbed")]
        alone, corpus = self.out / f"{name}-alone", f"beir:{self.collection}"
        lines, told = compare.unlike_one_machine([self.works[name]], corpus, home / "out", alone, home)
        print(f"{name}: {told}", flush=True)
        return lines

    def timeline(self, name: str) -> Timeline:
        """The undisturbed run's, which is made if it is not there; on the bed also what one machine makes."""
        if not self.events(event="undisturbed", job=name):
            if self.on_bed:
                run_here(self.works[name], f"beir:{self.collection}", self.out / f"{name}-alone")
            home = self.out / f"{name}-undisturbed"
            with self.site(name, home) as site:
                made = undisturbed(site)
            troubles = self.unlike(name, home, site)
            self.write(event="undisturbed", job=name, marks=made.marks, total=made.total, troubles=troubles)
        (known,) = self.events(event="undisturbed", job=name)
        return Timeline(known["marks"], known["total"])

    def run(self, name: str, count: int) -> None:
        """Cycles of one job, until as many blows were carried out."""
        timeline = self.timeline(name)
        while (left := count - sum(event["struck"] for event in self.events(event="cycle", job=name))) > 0:
            number = len(self.events(event="cycle", job=name))
            if number > count:
                raise RuntimeError(f"{name}: {number} cycles, and {left} of {count} blows came too late each time")
            home = self.out / f"{name}-{number}"
            began = time.monotonic()
            with self.site(name, home) as site:
                wanted = draw(site, timeline, min(PER_CYCLE, left), f"{self.seed}-{name}-{number}")
                cycle = Cycle(site, timeline, lambda event: self.write(job=name, **event))
                cycle.run(wanted)
            took, troubles = round(time.monotonic() - began), [*site.troubles, *self.unlike(name, home, site)]
            told = {"struck": cycle.struck, "starts": cycle.starts, "seconds": took, "troubles": troubles}
            self.write(event="cycle", job=name, cycle=number, **told)

    def troubles(self) -> list[str]:
        return [line for event in self.events() for line in event.get("troubles", ())]

    def summary(self) -> str:
        """Blows by job and kind, as a Markdown table, and what went wrong."""
        counts = Counter((event["job"], event["kind"]) for event in self.events(event="blow"))
        names, kinds = ([*dict.fromkeys(key[place] for key in counts)] for place in (0, 1))
        lines = [f"| job | {' | '.join(kinds)} | all |", f"| :-- |{' --: |' * (len(kinds) + 1)}"]
        for name in names:
            own = [counts[name, kind] for kind in kinds]
            lines.append(f"| {name} | {' | '.join(map(str, own))} | {sum(own)} |")
        cycles, troubles = len(self.events(event="cycle")), self.troubles()
        lines += ["", f"seed {self.seed}: {counts.total()} blows in {cycles} cycles, {len(troubles)} troubles"]
        return "\n".join([*lines, *troubles])


def race(count: int, seed: int) -> int:
    """Prints the table of races; the exit code."""
    print(HEADER, flush=True)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="races") as folder:
        for line, problems in races(Path(folder), count, seed):
            print(line, flush=True)
            wrong += len(problems)
    return int(wrong > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where", choices=("local", "bed", "store"), default="local")
    parser.add_argument("--blows", type=int, default=40, help="0: an undisturbed run alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=JOBS)
    parser.add_argument("--collection", type=Path, help="a folder in BEIR's layout; default: 48 passages")
    parser.add_argument("--out", type=Path, help="default: a temporary one; of a bed outside of /tmp and /home")
    given = parser.parse_args()
    if given.where == "bed" and (lacks := missing()):
        print(f"error: {lacks}", file=sys.stderr)
        return 2
    if given.where == "store":
        return race(given.blows, given.seed)
    adopt_orphans()
    out = given.out or Path(tempfile.mkdtemp(prefix="midmask-", dir="/var/tmp"))  # every machine of a bed reads it
    campaign = Campaign(out.absolute(), given.seed, on_bed=given.where == "bed", collection=given.collection)
    names = [given.only] if given.only else JOBS
    for place, name in enumerate(names):
        campaign.run(name, given.blows // len(names) + (place < given.blows % len(names)))
    print(campaign.summary())
    if not campaign.troubles() and given.out is None:
        shutil.rmtree(out)
    return int(bool(campaign.troubles()))


if __name__ == "__main__":
    sys.exit(main())
