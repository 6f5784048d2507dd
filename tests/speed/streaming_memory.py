"""Memory while preparing 10,000 and 113,000 passages of the wiki set through Ray Data.

    python -m tests.speed.streaming_memory

Each size runs in its own process with its own Ray, object store capped at 256 MiB. Measured is the peak of the summed
USS (memory that is nobody else's) of driver and workers from the start of preparing to its end. Prints one ratio.
"""

import argparse
import gzip
import itertools
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from tests.support.memory import Peaks

WIKI = Path(__file__).resolve().parents[3] / "shared" / "data" / "wiki"
SMALL, LARGE = 10_000, 113_000
TARGET = 1.25
MEBIBYTE = 1 << 20


def prepare_in_this_process(folder: str) -> None:
    """The measured process: prints a line when Ray is up, then prepares."""
    import ray

    from midmask.artifact import Place
    from midmask.backend.prepare import prepare
    from midmask.corpora import CorpusConfig
    from tests.speed.own_ray import start_ray

    with tempfile.TemporaryDirectory(prefix="mm", dir="/tmp") as session:
        start_ray(2, object_store_memory=256 * MEBIBYTE, _temp_dir=session)
        print("ready", flush=True)
        prepare(CorpusConfig(name=f"beir:{folder}"), {}, Place(f"{folder}/artifact"))
        print("done", flush=True)
        ray.shutdown()


def peak(passages: int) -> int:
    """Highest summed USS in bytes while the first `passages` of the wiki set are prepared."""
    with tempfile.TemporaryDirectory(prefix="mm", dir="/tmp") as folder:
        with gzip.open(WIKI / "corpus.jsonl.gz", "rb") as source, open(f"{folder}/corpus.jsonl", "wb") as target:
            target.writelines(itertools.islice(source, passages))
        command = [sys.executable, "-m", "tests.speed.streaming_memory", "--prepare", folder]
        with (
            open(f"{folder}/log", "w+") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as run,
        ):
            assert run.stdout is not None
            if run.stdout.readline() != "ready\n":
                raise RuntimeError(f"Ray did not start: {Path(f'{folder}/log').read_text()[-2000:]}")
            with Peaks(psutil.Process(run.pid), every_s=0.02) as peaks:
                said = run.stdout.read()
            if "done" not in said:
                raise RuntimeError(f"preparing failed: {Path(f'{folder}/log').read_text()[-2000:]}")
    return peaks.summed


def measured_ratio() -> float:
    """Peak of the large set over peak of the small one."""
    small, large = peak(SMALL), peak(LARGE)
    print(f"{SMALL:,} passages: {small / MEBIBYTE:.0f} MiB; {LARGE:,} passages: {large / MEBIBYTE:.0f} MiB")
    return large / small


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prepare", metavar="FOLDER", help="used by the script itself: the process that is measured")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare_in_this_process(arguments.prepare)
    else:
        print(f"ratio {measured_ratio():.2f} (target: at most {TARGET})")
