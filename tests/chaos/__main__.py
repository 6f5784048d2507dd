"""Jobs killed at random moments and started again by the same command, then held against undisturbed runs.

    python -m tests.chaos [--kills 40] [--seed N] [--only pipeline|sweep|benchmark] [--out FOLDER]

A pipeline with mining and a teacher, a sweep with pruning, and a benchmark, each on a local Ray of its own. Victims are
the driver, a Ray worker, the raylet, the channel actor, a trial, or all processes of the job; moments are drawn over
the time and the steps of an undisturbed run. Everything is written to FOLDER/chaos.jsonl; with the same FOLDER a run
that was itself ended goes on where it was. Exit code 1 if anything differs, hangs, or is left behind.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos import processes
from tests.chaos.compare import contents, differences, metrics, tracked, tracking_uri, unfinished
from tests.chaos.cycle import Cycle, draw, undisturbed
from tests.chaos.job import Timeline
from tests.chaos.scenarios import Scenario, scenarios
from tests.support.benchmark.tiny import write_collection

PER_CYCLE = 14
"""Kills between the first start of a job and its end."""


class Chaos:
    """One run of the harness in a folder, with its journal."""

    def __init__(self, out: Path, seed: int) -> None:
        self.out = out
        self.seed = seed
        self._path = out / "chaos.jsonl"
        out.mkdir(parents=True, exist_ok=True)
        collection = out / "tiny"
        self.collection = f"beir:{collection}" if collection.exists() else write_collection(collection)

    def events(self, **wanted: Any) -> list[dict[str, Any]]:
        """What the journal says so far, as far as it agrees with `wanted`."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        found: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [event for event in found if wanted.items() <= event.items()]

    def write(self, event: dict[str, Any]) -> None:
        with open(self._path, "a") as file:
            file.write(json.dumps(event) + "\n")
        told = {key: value for key, value in event.items() if key != "finished" or not isinstance(value, list)}
        print(f"{time.strftime('%H:%M:%S')} {json.dumps(told)}", flush=True)

    def timeline(self, name: str, scenario: Scenario) -> Timeline:
        """The undisturbed run's, which is made if it is not there."""
        if not (known := self.events(event="undisturbed", scenario=name)):
            home = self.out / f"{name}-undisturbed"
            shutil.rmtree(home, ignore_errors=True)
            made = undisturbed(scenario, self.collection, home)
            times = [round(second, 2) for second in made.finished]
            self.write({"event": "undisturbed", "scenario": name, "finished": times, "total": round(made.total, 2)})
            known = self.events(event="undisturbed", scenario=name)
        return Timeline(known[0]["finished"], known[0]["total"])

    def run(self, name: str, scenario: Scenario, kills: int) -> None:
        """Cycles of one scenario, until as many kills were carried out."""
        timeline = self.timeline(name, scenario)
        number = 0
        while (left := kills - len(self.events(event="kill", scenario=name))) > 0 or self._is_open(name, number):
            if not self.events(event="cycle", scenario=name, cycle=number):
                self._cycle(name, scenario, timeline, number, left)
            number += 1
            if number > kills:
                raise RuntimeError(f"{name}: {number} cycles, and {left} of {kills} kills came too late each time")

    def _is_open(self, name: str, number: int) -> bool:
        which = {"scenario": name, "cycle": number}
        return bool(self.events(event="kill", **which)) and not self.events(event="cycle", **which)

    def _cycle(self, name: str, scenario: Scenario, timeline: Timeline, number: int, left: int) -> None:
        which = {"scenario": name, "cycle": number}
        before = self.events(event="kill", **which)
        home = self.out / f"{name}-{number}"
        if not before:
            shutil.rmtree(home, ignore_errors=True)
        count = min(PER_CYCLE, left + len(before))
        done = {event["number"] for event in before}
        wanted = [kill for kill in draw(scenario, timeline, count, f"{self.seed}-{name}-{number}")]
        known = {path.name for path in (self.out / f"{name}-undisturbed" / "tmp").iterdir()}
        cycle = Cycle(scenario, self.collection, home, timeline, lambda event: self.write({**which, **event}), known)
        began = time.monotonic()
        cycle.run(
            [kill for kill in wanted if kill.number not in done], max((event["start"] for event in before), default=0)
        )
        troubles = [*cycle.troubles, *self._differences(name, home), *tracked(tracking_uri(home))]
        took = round(time.monotonic() - began)
        self.write(
            {"event": "cycle", **which, "struck": len(done) + cycle.struck, "seconds": took, "troubles": troubles}
        )

    def _differences(self, name: str, home: Path) -> Iterator[str]:
        reference = self.out / f"{name}-undisturbed"
        yield from differences(contents(reference), contents(home))
        yield from differences(metrics(reference), metrics(home))
        yield from (f"left behind in the store: {name}" for name in unfinished(home) - unfinished(reference))

    def summary(self) -> str:
        """Kills by scenario and victim, as a Markdown table, and what went wrong."""
        kills = Counter((event["scenario"], event["victim"]) for event in self.events(event="kill"))
        names = list(dict.fromkeys(scenario for scenario, _ in kills))
        victims = list(dict.fromkeys(victim for _, victim in kills))
        lines = [f"| scenario | {' | '.join(victims)} | all |", f"| :-- |{' --: |' * (len(victims) + 1)}"]
        for name in names:
            counts = [kills[name, victim] for victim in victims]
            lines.append(f"| {name} | {' | '.join(map(str, counts))} | {sum(counts)} |")
        troubles = [line for event in self.events(event="cycle") for line in event["troubles"]]
        cycles, total = len(self.events(event="cycle")), sum(kills.values())
        lines += ["", f"seed {self.seed}: {total} kills in {cycles} cycles, {len(troubles)} troubles", *troubles]
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("pipeline", "sweep", "benchmark"))
    parser.add_argument("--out", type=Path, help="default: a temporary folder, deleted if nothing went wrong")
    options = parser.parse_args()
    processes.adopt_orphans()
    chaos = Chaos((options.out or Path(tempfile.mkdtemp(prefix="chaos"))).absolute(), options.seed)
    known = scenarios(chaos.out)
    names = [options.only] if options.only else list(known)
    for place, name in enumerate(names):
        share = options.kills // len(names) + (place < options.kills % len(names))
        chaos.run(name, known[name], share)
    print(chaos.summary())
    failed = any(event["troubles"] for event in chaos.events(event="cycle"))
    if not failed and options.out is None:
        shutil.rmtree(chaos.out)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
