"""Races of two processes for one artifact, for every kind of step, on a disk and on an object store.

Each race draws from its seed when its processes begin, are paused and are killed. In every second race a process does
not see by the other's process id whether it lives, as on two machines. No row may be lost, no file torn, and bytes must
be those of an undisturbed run.
"""

import contextlib
import logging
import math
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from midmask.core.config import flatten, override
from midmask.experiment.graph import Step
from midmask.experiment.kinds import LOCAL
from midmask.experiment.plan import plan
from midmask.experiment.run import Runner
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.store.artifact import Artifact, load, produce
from midmask.store.leases import Timing
from midmask.store.place import Place
from tests.support.corpora.collections import write_beir
from tests.support.object_store import object_store

SMALL = {"steps": 10, "batch_size": 8, "checkpoint_every": 2, "threads": 1}
"""Of every training: checkpoints to go on from, and threads that change no sum."""

TIMES = ("seconds", "build_seconds", "query_seconds", "data_wait_share")
TIMING = {"renew_s": 0.1, "dead_s": 0.8, "look_s": 0.02}
KILLS = 2
"""At most so many for each of the two processes."""

EVENTS = {"waited": "waiting for it", "taken over": "resuming from", "losers deleted": "was first"}
"""What is counted of a race, and the words of the log that tell it."""

COLUMNS = ("pauses", "kills", *EVENTS)
HEADER = f"| race | seed | step | store | {' | '.join(COLUMNS)} | wrong |\n|{' --- |' * (len(COLUMNS) + 5)}"


@dataclass(frozen=True)
class Entry:
    """A step, its inputs in one store, and its artifact when nobody disturbs it."""

    step: Step
    inputs: Mapping[str, Artifact]
    alone: Artifact


def pipeline(folder: Path) -> list[Step]:
    """Every step with mining and a teacher, each after its inputs; the collection is written to the folder."""
    write_beir(folder, passages=60, queries=45)
    recipe = PROTOCOLS["sigir23_1neg_distil"]().on(RECIPES["rom"](), "demo")
    recipe = override(recipe, {"corpus.name": f"beir:{folder}", "tokens.vocabulary_size": 300, "tokens.max_length": 24})
    trainings = [path.removesuffix("checkpoint_every") for path in flatten(recipe) if path.endswith("checkpoint_every")]
    recipe = override(recipe, {f"{path}{name}": value for path in trainings for name, value in SMALL.items()})
    planned = plan(recipe)
    targets = (planned.evaluation(recipe.evaluation), planned.bm25_evaluation(recipe.evaluation))
    return list({step.fingerprint: step for target in targets for step in target.upstream()}.values())


def entries(steps: list[Step], storage: Place, kinds: tuple[str, ...]) -> dict[str, Entry]:
    """The first step of each kind, or of each of these, by name, after it has run into the storage with all that it
    needs.
    """
    runner = Runner(storage, LOCAL)
    wanted = {step.name: step for step in reversed(steps) if not kinds or step.name in kinds}
    alone = {name: runner.compute(step) for name, step in wanted.items()}
    inputs = {name: {role: load(one.place(storage)) for role, one in wanted[name].sources().items()} for name in wanted}
    return {name: Entry(step, inputs[name], alone[name]) for name, step in wanted.items()}


@dataclass
class Racer:
    """One of the two. kill_at, pause_at: moments at which it is interrupted; infinite: never. pause: for how long."""

    process: Any
    kill_at: float
    pause_at: float
    pause: float
    kills: int


@dataclass(frozen=True)
class Race:
    """What is raced, and what became of it. reproducible: files that two undisturbed runs make with the same bytes."""

    entry: Entry
    place: Place
    timing: Timing
    log: Path
    reproducible: set[str]
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, draw: random.Random) -> list[str]:
        """Runs until both processes have ended well; what is wrong with the result, if anything."""
        racers = [self._start(draw, kills=0) for _ in range(2)]
        deadline = time.monotonic() + 120
        while racers and time.monotonic() < deadline:
            time.sleep(0.01)
            for racer in list(racers):
                code = self._disturbed(racer)
                if code is not None:
                    racers.remove(racer)
                if code == -signal.SIGKILL:
                    racers.append(self._start(draw, kills=racer.kills))
                elif code:
                    return [f"a process ended with {code}: {self.log.read_text()[-2000:]}"]
        for racer in racers:
            racer.process.kill()
        text = self.log.read_text()
        self.counts.update({name: text.count(words) for name, words in EVENTS.items()})
        return ["it did not end within two minutes"] if racers else self._wrong()

    def _start(self, draw: random.Random, kills: int) -> Racer:
        span = 0.5 + 1.5 * float(self.entry.alone.result["seconds"])
        kill_at = draw.uniform(0, span) if kills < KILLS and draw.random() < 0.6 else math.inf
        pause_at = draw.uniform(0, span) if draw.random() < 0.4 else math.inf
        arguments = (self.entry, self.place, self.timing, draw.uniform(0, 0.3), self.log)
        process = multiprocessing.get_context("forkserver").Process(target=race, args=arguments, daemon=True)
        process.start()
        now = time.monotonic()
        return Racer(process, now + kill_at, now + pause_at, draw.uniform(0.1, 2.0), kills)

    def _disturbed(self, racer: Racer) -> int | None:
        """Its exit code, after it was paused or killed if that is due."""
        if racer.process.exitcode is None and time.monotonic() > racer.pause_at:
            racer.pause_at = math.inf
            with contextlib.suppress(ProcessLookupError):  # it ends at this very moment
                os.kill(racer.process.pid, signal.SIGSTOP)
                self.counts["pauses"] += 1
                time.sleep(racer.pause)
                os.kill(racer.process.pid, signal.SIGCONT)
        if racer.process.exitcode is None and time.monotonic() > racer.kill_at:
            racer.process.kill()
            racer.process.join()
            racer.kills += 1
            self.counts["kills"] += 1
        return racer.process.exitcode  # type: ignore[no-any-return]

    def _wrong(self) -> list[str]:
        """Compares the artifact with the undisturbed one; reading it checks every digest."""
        done, alone = read(load(self.place)), self.entry.alone
        results = [{name: one for name, one in made.result.items() if name not in TIMES} for made in (done, alone)]
        found = [] if results[0] == results[1] else [f"results differ: {done.result}, alone {alone.result}"]
        raced, files = done.record["files"], alone.record["files"]
        changed = {name for name in self.reproducible if files[name] != raced.get(name)}
        return found + sorted(changed | (files.keys() ^ raced.keys()))


def read(artifact: Artifact) -> Artifact:
    """The same, after every file was read."""
    for name in artifact.record["files"]:
        (artifact.place / name).read()
    return artifact


def race(entry: Entry, place: Place, timing: Timing, delay: float, log: Path) -> None:
    """What one of the two processes does."""
    logging.basicConfig(filename=log, level=logging.WARNING, format="%(process)d %(name)s: %(message)s")
    logging.getLogger("midmask").setLevel(logging.INFO)
    torch.set_num_threads(1)
    time.sleep(delay)
    step = entry.step

    def make(out: Place) -> dict[str, Any]:
        return LOCAL[step.name](step.config, entry.inputs, out, log=lambda at, values: None)

    read(produce(place, {"step": step.name, "fingerprint": step.fingerprint}, make, timing))


def races(folder: Path, count: int, seed: int, kinds: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """A row of the table and the list of what is wrong, for each race; then a row with the sums.

    Args:
        kinds: the steps that are raced; empty: every kind of the pipeline.
    """

    def row(name: str, counts: Counter[str], wrong: str) -> str:
        return f"| {name} | {' | '.join(str(counts[column]) for column in COLUMNS)} | {wrong} |"

    with object_store() as options, mock.patch.dict(os.environ, {"MIDMASK_CACHE": str(folder / "cache")}):
        preload = ["midmask.experiment.steps", "tests.system.cluster.races"]
        multiprocessing.get_context("forkserver").set_forkserver_preload(preload)
        steps = pipeline(folder / "corpus")
        roots = {"disk": Place(str(folder / "store")), "S3": Place(f"s3://bucket/store?{options}")}
        alone = {store: entries(steps, root, kinds) for store, root in roots.items()}
        names = list(kinds or alone["disk"])
        total, wrong = Counter[str](), 0
        for number in range(count):
            kind, store = names[number // 2 % len(names)], ("disk", "S3")[number % 2]
            first, second = (alone[one][kind].alone.record["files"] for one in ("disk", "S3"))
            reproducible = {name for name in first if first[name] == second.get(name)}
            timing = Timing(**TIMING, by_process=number // 4 % 2 == 0)
            place = roots[store] / f"race-{number:03d}" / "artifact"
            run = Race(alone[store][kind], place, timing, folder / f"{number}.log", reproducible)
            problems = run.run(random.Random(f"{seed} {number}"))
            total += run.counts
            wrong += bool(problems)
            yield row(f"{number} | {seed} | {kind} | {store}", run.counts, "; ".join(problems) or "nothing"), problems
        yield row(f"all {count} | {seed} | |", total, f"{wrong} races"), []
