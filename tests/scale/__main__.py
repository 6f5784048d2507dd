"""A cluster whose nodes share nothing, and one machine with a disk, do the same work: the same artifacts come out.

    python -m tests.scale [--out FOLDER] [--only pipeline|sweep|benchmark]

Head, two workers and the stores (an S3 emulation, MLflow's server over PostgreSQL) are machines of their own, in
namespaces of this one: root is needed. Trainings of two workers are held against those of one process by their losses;
all else is made again on one machine from the same weights, and must be equal byte for byte. Exit code 1 if not.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.scale.bed import cluster
from tests.scale.machine import missing
from tests.scale.services import BUCKET
from tests.scale.workload import ROOT, Task, flags_there, run_here, tasks
from tests.scale.yardstick import held_against

DATA = ROOT.parent / "shared" / "data" / "cranfield"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of logs and stores; default: a new temporary one")
    parser.add_argument("--only", choices=["pipeline", "sweep", "benchmark"])
    parser.add_argument("--collection", type=Path, default=DATA, help="BEIR folder; default: Cranfield")
    given = parser.parse_args()
    if lacks := missing():
        print(f"error: {lacks}", file=sys.stderr)
        return 2
    out: Path = given.out or Path(tempfile.mkdtemp(prefix="midmask-scale-"))
    out.mkdir(parents=True, exist_ok=True)
    space = Path(tempfile.mkdtemp(prefix="midmask-space-", dir="/var/tmp")) / "scale.yaml"  # every machine reads it
    wanted = {name: task for name, task in tasks(space).items() if given.only in (None, name)}
    there = on_cluster(wanted, given.collection, out / "cluster")
    return report(wanted, f"beir:{given.collection}", there, out)


def on_cluster(wanted: dict[str, Task], collection: Path, folder: Path) -> Path:
    """The home whose store has what the cluster's has."""
    with cluster(folder) as there:
        corpus = f"beir:{there.upload(collection, collection.name)}"
        for name, task in wanted.items():
            began = time.monotonic()
            code = there.job(task.job, *flags_there(task, corpus), log=name).wait()
            print(f"{name} on the cluster: {time.monotonic() - began:.0f} s", flush=True)
            if code != 0:
                raise RuntimeError((folder / "logs" / f"{name}.log").read_text()[-3000:])
        there.download(f"s3://{BUCKET}/store", "store")
    return folder / "out"


def report(wanted: dict[str, Task], corpus: str, there: Path, out: Path) -> int:
    """Does the work on one machine, from the beginning and from the cluster's weights; the exit code."""
    for task in wanted.values():
        run_here(task, corpus, out / "alone")
    found, others = held_against(wanted.values(), corpus, there, out / "alone", out)
    for one in found:
        print(f"{one.name}: losses differ by {one.loss:.1e}, {one.weights:.2%} of weights, at most by {one.most:.1e}")
    print(f"{others.equal} files are equal")
    print("\n".join(others.apart))
    return 1 if others.apart or not all(one.is_alike for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
