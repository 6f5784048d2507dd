"""Bad input of every kind: each case is read, quarantined and counted, or refused in one line.

    python -m tests.fuzz [--cases N] [--seed S] [--processes P] [TARGET …]      (make fuzz: 20,000 cases)
    python -m tests.fuzz --show TARGET NUMBER [--seed S]                         (one case, in this process)

Prints a Markdown table; exit code 1 if a case ended otherwise, took over 512 MiB, or had not ended after 60 seconds
of processor time.
"""

import argparse
import logging
import sys
import tempfile
import warnings
from pathlib import Path

from tests.fuzz import collections, lists, settings
from tests.fuzz.running import Result, run, run_case

COLUMNS = ("succeeded", "quarantined", "refused")
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
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        # Whatever is heavy is imported and made here, before processes are forked.
        targets = {**collections.targets(Path(root)), **lists.targets(Path(root)), **settings.targets(Path(root))}
        if flags.show:
            name, number = flags.targets
            print(run_case(name, targets[name], int(number), flags.seed))
            return 0
        names = flags.targets or list(targets)
        cases = [(names[number % len(names)], number // len(names)) for number in range(flags.cases)]
        results: list[Result] = []
        for result in run(targets, cases, flags.seed, processes=flags.processes):
            results.append(result)
            if result.fault and sum(bool(one.fault) for one in results) <= FAULTS_SHOWN:
                print(f"{result.target} {result.number}: {result.fault}", file=sys.stderr, flush=True)
    print(f"| seed {flags.seed} | cases | {' | '.join(COLUMNS)} | faults |\n| --- |{' ---: |' * 5}")
    for name in (*names, "all"):
        own = [one for one in results if name in (one.target, "all")]
        counts = [sum(one.outcome == wanted for one in own) for wanted in COLUMNS]
        print(f"| {name} | {' | '.join(map(str, [len(own), *counts, sum(bool(one.fault) for one in own)]))} |")
    return 1 if any(result.fault for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
