"""Disturbed jobs make what undisturbed ones make, and a cluster makes what one machine makes.

    python -m tests.system.cluster --blows 40                          kills of processes on this machine (make chaos)
    python -m tests.system.cluster --where bed --blows 0               a cluster, and one machine (make scale)
    python -m tests.system.cluster --where bed --blows 30 --only pipeline   losses on it (make chaos-cluster)
    python -m tests.system.cluster --where store --blows 50            two processes race for one artifact (make races)

Three jobs: a pipeline with mined negatives (here with a teacher), a sweep (here with pruning), a benchmark. Here each
has a local Ray of its own; victims are the driver, a worker, the channel actor, a trial, or all processes.
The bed is a cluster of machines without a common disk, in namespaces of this one (root): head, two workers, and the
stores (an S3 emulation, MLflow's server over PostgreSQL); a worker, both, the head with the driver, or a store goes and
comes back. Where the driver went, the same command is typed again. Prints a line of JSON for each blow and cycle. Exit
code 1 if anything differs, hangs, or is left behind; then the folder with all that was made stays.
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
    """A run of the program in a folder. counts: blows by job and kind. troubles: a line for all that went wrong."""

    def __init__(self, out: Path, seed: int, *, on_bed: bool) -> None:
        self.out, self.seed, self.on_bed = out, seed, on_bed
        self.works, self.corpus = works(out, is_spread=on_bed), write_collection(out / "tiny")
        self.counts, self.cycles, self.troubles = Counter[tuple[str, str]](), 0, list[str]()

    @contextlib.contextmanager
    def site(self, name: str, home: Path) -> Iterator[Local | Bed]:
        """Where a job may run once."""
        home.mkdir()
        if self.on_bed:
            with cluster(home) as there:
                yield Bed(there, self.works[name], there.upload(self.out / "tiny"))
        else:
            whole = self.out / f"{name}-whole" / "tmp"
            known = {path.name for path in whole.iterdir()} if whole.exists() else None
            yield Local(self.works[name], self.corpus, home, known)

    def unlike(self, name: str, home: Path, site: Local | Bed) -> list[str]:
        """A line for all that an undisturbed run, or one machine, has not made."""
        if isinstance(site, Local):
            return [*site.unlike(self.out / f"{name}-whole")]
        alone = self.out / f"{name}-alone"
        lines, told = compare.unlike_one_machine(self.works[name], self.corpus, home / "out", alone, home)
        print(f"{name}: {told}", flush=True)
        return lines

    def timeline(self, name: str) -> Timeline:
        """An undisturbed run's; on the bed it is held against what one machine makes."""
        home = self.out / f"{name}-whole"
        if self.on_bed:
            run_here(self.works[name], self.corpus, self.out / f"{name}-alone")
        with self.site(name, home) as site:
            made = undisturbed(site)
        self.tell(self.unlike(name, home, site), event="undisturbed", job=name, seconds=made.total)
        return made

    def run(self, name: str, count: int) -> None:
        """Cycles of one job, until as many blows were carried out."""
        timeline, struck, number = self.timeline(name), 0, 0
        while struck < count:
            if number > count:
                raise RuntimeError(f"{name}: {number} cycles, and {count - struck} of {count} blows came too late")
            home = self.out / f"{name}-{number}"
            with self.site(name, home) as site:
                wanted = draw(site, timeline, min(PER_CYCLE, count - struck), f"{self.seed}-{name}-{number}")
                cycle = Cycle(site, timeline, lambda event: self.tell([], job=name, **event))
                cycle.run(wanted)
            troubles = [*site.troubles, *self.unlike(name, home, site)]
            self.tell(troubles, event="cycle", job=name, struck=cycle.struck, starts=cycle.starts)
            struck, number, self.cycles = struck + cycle.struck, number + 1, self.cycles + 1

    def tell(self, troubles: list[str], **event: Any) -> None:
        self.troubles += troubles
        if event["event"] == "blow":
            self.counts[event["job"], event["kind"]] += 1
        print(f"{time.strftime('%H:%M:%S')} {json.dumps({**event, 'troubles': troubles})}", flush=True)

    def summary(self) -> str:
        """Blows by job and kind, as a Markdown table, and what went wrong."""
        names, kinds = ([*dict.fromkeys(key[place] for key in self.counts)] for place in (0, 1))
        lines = [f"| job | {' | '.join(kinds)} | all |", f"| :-- |{' --: |' * (len(kinds) + 1)}"]
        for name in names:
            own = [self.counts[name, kind] for kind in kinds]
            lines.append(f"| {name} | {' | '.join(map(str, own))} | {sum(own)} |")
        told = f"{self.counts.total()} blows in {self.cycles} cycles, {len(self.troubles)} troubles"
        return "\n".join([*lines, f"\nseed {self.seed}: {told}", *self.troubles])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where", choices=("local", "bed", "store"), default="local")
    parser.add_argument("--blows", type=int, default=40, help="0: an undisturbed run alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=JOBS)
    given = parser.parse_args()
    if given.where == "bed" and (lacks := missing()):
        print(f"error: {lacks}", file=sys.stderr)
        return 2
    # Every machine of a bed reads /var/tmp; a local Ray's sockets need a short path
    out = Path(tempfile.mkdtemp(prefix="m-", dir="/tmp" if given.where == "local" else "/var/tmp"))
    if given.where == "store":
        print(HEADER, flush=True)
        wrong = 0
        for line, problems in races(out, given.blows, given.seed):
            print(line, flush=True)
            wrong += len(problems)
    else:
        adopt_orphans()
        campaign = Campaign(out, given.seed, on_bed=given.where == "bed")
        names = [given.only] if given.only else JOBS
        for place, name in enumerate(names):
            campaign.run(name, given.blows // len(names) + (place < given.blows % len(names)))
        print(campaign.summary())
        wrong = len(campaign.troubles)
    if not wrong:
        shutil.rmtree(out)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
