"""Races of two processes for one artifact, for every kind of step, on a disk and on an object store.

    python -m tests.races [--races 50] [--seed N]

Each race draws from its seed when its processes begin, are paused and are killed. In every second race a process does
not see by the other's process id whether it lives, as on two machines. Prints a Markdown table; exit code 1 if a row is
lost, a file torn, or bytes differ from those of an undisturbed run.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.races.races import HEADER, races


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory(prefix="races") as folder:
        wrong = 0
        for line, problems in races(Path(folder), options.races, options.seed):
            print(line, flush=True)
            wrong += len(problems)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
