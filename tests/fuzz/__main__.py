"""Bad input of every kind: each case is read, quarantined and counted, or refused in one line.

    python -m tests.fuzz [--cases N] [--seed S] [--processes P] [TARGET …]      (make fuzz: 20,000 cases)
    python -m tests.fuzz --show TARGET NUMBER [--seed S]                         (one case, with its traceback)

Prints a Markdown table; ends with exit code 1 if a case ended otherwise, took more than 512 MiB, or had not ended after
60 seconds of processor time.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.running import Result, run, run_case, table
from tests.fuzz.targets import all_targets

FAULTS_SHOWN = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="default: all")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="run the case TARGET NUMBER in this process")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        targets = all_targets(Path(root))
        if flags.show:
            name, number = flags.targets
            print(run_case(targets[name], int(number), flags.seed))
            return 0
        names = flags.targets or list(targets)
        cases = [(names[number % len(names)], number // len(names)) for number in range(flags.cases)]
        results: list[Result] = []
        for result in run(targets, cases, flags.seed, processes=flags.processes):
            results.append(result)
            if result.fault and sum(bool(one.fault) for one in results) <= FAULTS_SHOWN:
                print(f"{result.target} {result.number}: {result.fault}", file=sys.stderr, flush=True)
    results.sort(key=lambda result: names.index(result.target))
    print(table(results, flags.seed))
    return 1 if any(result.fault for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
