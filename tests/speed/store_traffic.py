"""Requests to an object store and bytes over the network: predicted by a dry run, and counted by the store.

    python -m tests.speed.store_traffic [--passages 32000]

A recipe with mined negatives runs step by step on a local Ray of two CPUs; its storage is an S3 emulation (moto) that
counts. The steps and the collection are those of `tests.scale.growth`.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.scale.collection import write_collection
from tests.scale.growth import CPUS, steps_of

from midmask.artifact import Place
from midmask.backend.connection import quiet_ray_data
from midmask.backend.makers import cluster_makers
from midmask.estimate import estimate
from midmask.experiment.run import Runner, Silent
from tests.speed.own_ray import start_ray
from tests.support.object_store import Requests, object_store

PASSAGES = 32_000


def measure(passages: int) -> None:
    """Prints a Markdown table with a line for each step."""
    seen = Requests()
    heads = ("writing requests", "reading requests", "MB up", "MB down")
    print(f"| step | {' | '.join(f'{head}: predicted | counted' for head in heads)} |\n| :-- |{' --: |' * 8}")
    with tempfile.TemporaryDirectory(prefix="mm", dir="/var/tmp") as folder, object_store(requests=seen) as options:
        os.environ["MIDMASK_CACHE"] = f"{folder}/cache"
        corpus = write_collection(Path(folder) / "collection", passages)
        quiet_ray_data()
        start_ray(CPUS, _temp_dir=f"{folder}/ray")
        storage = Place(f"s3://bucket/store?{options}")
        runner = Runner(storage, cluster_makers(CPUS), Silent())
        for step in steps_of(corpus):
            told = estimate([step], storage).traffic
            assert told is not None
            before = Requests(seen.writing, seen.reading, seen.up, seen.down)
            runner.run(step)
            cells = (
                f"{told.writes:.0f} | {seen.writing - before.writing}",
                f"{told.reads:.0f} | {seen.reading - before.reading}",
                f"{told.up / 1e6:.2f} | {(seen.up - before.up) / 1e6:.2f}",
                f"{told.down / 1e6:.2f} | {(seen.down - before.down) / 1e6:.2f}",
            )
            print(f"| {step.name} | {' | '.join(cells)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=PASSAGES)
    measure(parser.parse_args().passages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
