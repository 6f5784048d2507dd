"""One race: two processes make one artifact in one store; they are delayed, paused and killed, and started again."""

import contextlib
import logging
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from midmask.artifact import Artifact, Place, Timing, load, produce
from midmask.experiment.steps import LOCAL
from tests.races.pipeline import Entry

KILLS = 2
"""At most so many for each of the two processes."""

EVENTS = {
    "taken over": "going on from",
    "waited": "waiting for it",
    "losers deleted": "was first",
}
"""What is counted of a race, and the words of the log that tell it."""


@dataclass
class Racer:
    """One of the two; `kills` and `pauses` are times after its start at which it is interrupted."""

    process: Any
    begun: float
    kill_at: float | None
    pause: tuple[float, float] | None
    kills: int = 0


@dataclass(frozen=True)
class Race:
    """What is raced, and what became of it."""

    entry: Entry
    place: Place
    timing: Timing
    log: Path
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, draw: random.Random) -> list[str]:
        """Runs until both processes have ended well; what is wrong with the result, if anything."""
        racers = [self._start(draw, kills=0) for _ in range(2)]
        deadline = time.monotonic() + 120
        while racers and time.monotonic() < deadline:
            time.sleep(0.01)
            for racer in list(racers):
                self._disturb(racer)
                if racer.process.exitcode is None:
                    continue
                racers.remove(racer)
                if racer.process.exitcode == -signal.SIGKILL:
                    racers.append(self._start(draw, kills=racer.kills))
                elif racer.process.exitcode:
                    return [f"a process ended with {racer.process.exitcode}: {self.log.read_text()[-2000:]}"]
        for racer in racers:
            racer.process.kill()
        text = self.log.read_text()
        self.counts.update({name: text.count(words) for name, words in EVENTS.items()})
        return ["it did not end within two minutes"] if racers else self._wrong()

    def _start(self, draw: random.Random, kills: int) -> Racer:
        span = 0.5 + 1.5 * self.entry.seconds
        kill_at = draw.uniform(0, span) if kills < KILLS and draw.random() < 0.6 else None
        pause = (draw.uniform(0, span), draw.uniform(0.1, 2.0)) if draw.random() < 0.4 else None
        arguments = (self.entry, self.place, self.timing, draw.uniform(0, 0.3), self.log)
        process = multiprocessing.get_context("forkserver").Process(target=race, args=arguments, daemon=True)
        process.start()
        return Racer(process, time.monotonic(), kill_at, pause, kills)

    def _disturb(self, racer: Racer) -> None:
        passed = time.monotonic() - racer.begun
        if racer.process.exitcode is not None:
            return
        if racer.pause is not None and passed > racer.pause[0]:
            with contextlib.suppress(ProcessLookupError):  # it ends at this very moment
                os.kill(racer.process.pid, signal.SIGSTOP)
                self.counts["pauses"] += 1
                time.sleep(racer.pause[1])
                os.kill(racer.process.pid, signal.SIGCONT)
            racer.pause = None
        if racer.kill_at is not None and passed > racer.kill_at:
            racer.process.kill()
            racer.process.join()
            racer.kill_at = None
            racer.kills += 1
            self.counts["kills"] += 1

    def _wrong(self) -> list[str]:
        """Compares the artifact with the undisturbed one; reading it checks every digest."""
        done = load(self.place)
        for name in done.record["files"]:
            (done.place / name).read()
        found = []
        if self.entry.facts(done) != self.entry.facts(self.entry.alone):
            found.append(f"results differ: {done.result}, alone {self.entry.alone.result}")
        return found

    def differing(self, names: set[str]) -> list[str]:
        """Which of these files have other bytes than those of the undisturbed run, or are in one of the two alone."""
        alone, raced = self.entry.alone.record["files"], load(self.place).record["files"]
        changed = {name for name in names if alone[name] != raced.get(name)}
        return sorted(changed | (alone.keys() ^ raced.keys()))


def race(entry: Entry, place: Place, timing: Timing, delay: float, log: Path) -> None:
    """What one of the two processes does."""
    logging.basicConfig(filename=log, level=logging.WARNING, format="%(process)d %(name)s: %(message)s")
    logging.getLogger("midmask").setLevel(logging.INFO)
    torch.set_num_threads(1)
    time.sleep(delay)
    step = entry.step

    def make(out: Place) -> dict[str, Any]:
        return LOCAL[step.name](step.config, entry.inputs, out, log=lambda at, values: None)

    done: Artifact = produce(place, {"step": step.name, "fingerprint": step.fingerprint}, make, timing)
    for name in done.record["files"]:
        (done.place / name).read()
