"""A job on a cluster that loses nodes and stores at random moments makes what one machine makes.

    python -m tests.scale.chaos [--losses 30] [--seed N] [--out FOLDER]

The pipeline of `python -m tests.scale` runs again and again, each time on a new cluster. A worker node, both, the head
with the driver, the storage, the tracking server or its database go at moments that are drawn over the steps of an
undisturbed run, and come back. Where the driver went, the same command is typed again. Everything is written to
FOLDER/losses.jsonl; with the same FOLDER a run that was itself ended goes on with the next cycle. Exit code 1 if
anything differs, hangs or is left running.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.scale.bed import cluster
from tests.scale.cycle import Cycle
from tests.scale.losses import KINDS, Loss, Timeline, draw
from tests.scale.machine import missing
from tests.scale.services import BUCKET
from tests.scale.workload import ROOT, run_here, tasks
from tests.scale.yardstick import held_against

PER_CYCLE = 8
"""Losses between the first start of a job and its end."""

PATIENCE = 6.0
"""A start may take so many times as long as the undisturbed run, and the time of its losses, before it counts as hung.
"""

DATA = ROOT.parent / "shared" / "data" / "cranfield"


class Chaos:
    """The harness in a folder, with its journal."""

    def __init__(self, out: Path, seed: int) -> None:
        self.out, self.seed = out, seed
        self._path = out / "losses.jsonl"
        out.mkdir(parents=True, exist_ok=True)
        space = Path(tempfile.mkdtemp(prefix="midmask-space-", dir="/var/tmp")) / "scale.yaml"
        self.task, self.corpus = tasks(space)["pipeline"], f"beir:{DATA}"

    def events(self, event: str) -> list[dict[str, Any]]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [found for found in map(json.loads, lines) if found["event"] == event]

    def write(self, event: dict[str, Any]) -> None:
        with open(self._path, "a") as file:
            file.write(json.dumps(event) + "\n")
        print(f"{time.strftime('%H:%M:%S')} {json.dumps(event)}", flush=True)

    def timeline(self) -> Timeline:
        """Of the run without losses, which is made if it is not there, and its twin on one machine."""
        if not self.events("undisturbed"):
            run_here(self.task, self.corpus, self.out / "alone")
            cycle = self.cycle("undisturbed", [], 3600)
            if cycle.troubles:
                raise RuntimeError("\n".join(cycle.troubles))
            self.write({"event": "undisturbed", "starts": cycle.watch.seen, "total": cycle.seconds})
        (known,) = self.events("undisturbed")
        return Timeline(list(known["starts"].values()), known["total"])

    def run(self, losses: int) -> None:
        """Cycles until as many losses were carried out."""
        timeline = self.timeline()
        while (left := losses - len(self.events("loss"))) > 0:
            number = len(self.events("cycle"))
            wanted = draw(timeline, min(PER_CYCLE, left), f"{self.seed}-{number}")
            limit = PATIENCE * timeline.total + sum(loss.away for loss in wanted)
            cycle = self.cycle(f"cycle-{number}", wanted, limit)
            for loss in cycle.lost:
                self.write({"event": "loss", "cycle": number, **loss})
            told = {"seconds": cycle.seconds, "losses": len(cycle.lost), "troubles": cycle.troubles}
            self.write({"event": "cycle", "cycle": number, **told})

    def cycle(self, name: str, wanted: list[Loss], limit: float) -> Cycle:
        """One run on a new cluster, held against one machine."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.out))
        with cluster(folder, loopback_names=True) as there:
            cycle = Cycle(there, self.task, f"beir:{there.upload(DATA, DATA.name)}", limit)
            cycle.run(wanted)
            there.download(f"s3://{BUCKET}/store", "store")
        cycle.troubles += self._differences(folder)
        return cycle

    def _differences(self, folder: Path) -> Iterator[str]:
        """What one machine would not have made."""
        found, others = held_against([self.task], self.corpus, folder / "out", self.out / "alone", folder)
        yield from others.apart
        yield from (f"{one.name}: losses differ by {one.loss:.1e}" for one in found if not one.is_alike)

    def summary(self) -> str:
        """Losses by kind, as a Markdown table, and what went wrong."""
        counts = Counter(event["kind"] for event in self.events("loss"))
        lines = [f"| {' | '.join(KINDS)} | all |", f"|{' --: |' * (len(KINDS) + 1)}"]
        lines.append(f"| {' | '.join(str(counts[kind]) for kind in KINDS)} | {counts.total()} |")
        troubles = [line for event in self.events("cycle") for line in event["troubles"]]
        return "\n".join(
            [*lines, "", f"seed {self.seed}: {counts.total()} losses, {len(troubles)} troubles", *troubles]
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: a new temporary folder")
    given = parser.parse_args()
    if lacks := missing():
        print(f"error: {lacks}", file=sys.stderr)
        return 2
    chaos = Chaos((given.out or Path(tempfile.mkdtemp(prefix="midmask-losses-"))).absolute(), given.seed)
    chaos.run(given.losses)
    print(chaos.summary())
    return int(any(event["troubles"] for event in chaos.events("cycle")))


if __name__ == "__main__":
    sys.exit(main())
