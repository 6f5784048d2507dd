"""Many races, one after the other, and what became of them as rows of a table."""

import multiprocessing
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from midmask.artifact import Place, Timing
from tests.races.pipeline import entries, pipeline, reproducible
from tests.races.race import Race
from tests.support.object_store import object_store

COLUMNS = ("pauses", "kills", "waited", "taken over", "losers deleted")
HEADER = f"| race | seed | step | store | {' | '.join(COLUMNS)} | wrong |\n|{' --- |' * (len(COLUMNS) + 5)}"

TIMING = {"renew_s": 0.1, "dead_s": 0.8, "look_s": 0.02}


def races(folder: Path, count: int, seed: int, kinds: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """A row of the table and the list of what is wrong, for each race; then a row with the sums.

    Args:
        kinds: the steps that are raced; empty: every kind of the pipeline.
    """
    with object_store() as options, mock.patch.dict(os.environ, {"MIDMASK_CACHE": str(folder / "cache")}):
        multiprocessing.get_context("forkserver").set_forkserver_preload(
            ["midmask.experiment.steps", "tests.races.race"]
        )
        steps = pipeline(folder / "corpus")
        roots = {"disk": Place(str(folder / "store")), "S3": Place(f"s3://bucket/store?{options}")}
        alone = {store: entries(steps, root, kinds) for store, root in roots.items()}
        names = list(kinds or alone["disk"])
        total: Counter[str] = Counter()
        wrong = 0
        for number in range(count):
            kind, store = names[number // 2 % len(names)], ("disk", "S3")[number % 2]
            timing = Timing(**TIMING, by_process=number // 4 % 2 == 0)
            place = roots[store] / f"race-{number:03d}" / "artifact"
            race = Race(alone[store][kind], place, timing, folder / f"{number}.log")
            problems = race.run(random.Random(f"{seed} {number}"))
            if not problems:
                problems = race.differing(reproducible(alone["disk"][kind], alone["S3"][kind]))
            total += race.counts
            wrong += bool(problems)
            yield _row(f"{number} | {seed} | {kind} | {store}", race.counts, "; ".join(problems) or "nothing"), problems
        yield _row(f"all {count} | {seed} | |", total, f"{wrong} races"), []


def _row(name: str, counts: Counter[str], wrong: str) -> str:
    return f"| {name} | {' | '.join(str(counts[column]) for column in COLUMNS)} | {wrong} |"
