"""Mutation testing: the wrong changes that cosmic-ray's operators make, each of which a test should notice.

    python -m tests.mutants [--since main]      of the lines that this branch has changed in platform/
    python -m tests.mutants FILE … [--count N]  of modules, such as platform/midmask/masking/selection.py

Each mutant runs against the fast tests of its module: those of its folder in tests/, and those that import the module
or its package; or those of --tests. At most one mutant is made of a place in the code, and --seed decides which. Exit
code 0 if at most one mutant in twenty survives; of a survivor, judge whether anybody could notice it.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.mutants.drawing import Mutant, draw
from tests.mutants.running import load_libraries, outcomes
from tests.support.project import ROOT

TOLERATED = 0.05
OTHER_TIERS = {"system", "gpu", "smoke"}


def changed_lines(since: str) -> dict[str, set[int]]:
    """File of platform/ -> numbers of the lines that were changed or added since a branch left a commit."""
    command = ["git", "diff", "--unified=0", "--merge-base", since, "--", "platform/*.py"]
    diff = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, set[int]] = {}
    for line in diff.splitlines():
        if file := re.match(r"\+\+\+ b/(.*)", line):
            lines = found.setdefault(file[1], set())
        elif hunk := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            lines.update(range(int(hunk[1]), int(hunk[1]) + int(hunk[2] or 1)))
    return found


def tests_of(file: str) -> list[str]:
    """Test files of the first tier that are meant for a module."""
    parts = Path(file).relative_to("platform").with_suffix("").parts
    names = [".".join(parts[:length]) for length in range(2, len(parts) + 1)]
    from_parent = [f"from {parent} import .*\\b{name}" for parent, _, name in (name.rpartition(".") for name in names)]
    imports = re.compile(rf"^(?:(?:from|import) (?:{'|'.join(names)})|{'|'.join(from_parent)})(?![\w.])", re.MULTILINE)
    room = (ROOT / "tests" / parts[1], ROOT / "tests" / f"test_{parts[1]}.py")
    files = sorted((ROOT / "tests").rglob("test_*.py"), key=lambda path: (parts[-1] not in path.stem, path))
    files = [path for path in files if path.relative_to(ROOT).parts[1] not in OTHER_TIERS]
    own = [path for path in files if any(path.is_relative_to(place) for place in room)]
    others = [path for path in files if path not in own and imports.search(path.read_text("utf-8"))]
    return [str(path.relative_to(ROOT)) for path in (*own, *others)]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="a module of platform/")
    parser.add_argument("--since", default="main", metavar="COMMIT", help="where the branch began; default: main")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="run these in place of the module's")
    parser.add_argument("--count", type=int, default=40, help="mutants of each module, at most")
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--at-once", type=int, default=2, help="processes side by side")
    parser.add_argument("--list", action="store_true", help="print mutants and tests, and end")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    places = dict.fromkeys(options.files) or changed_lines(options.since)
    drawn = [one for file, lines in places.items() for one in draw(file, options.count, options.seed, lines)]
    tests = {file: options.tests or tests_of(file) for file in places}
    if options.list or not drawn:
        print(*drawn, *(f"{file}: {' '.join(own)}" for file, own in tests.items()), f"{len(drawn)} mutants", sep="\n")
        return 0
    load_libraries()
    unchanged = [(lambda root: None, [test]) for test in sorted({one for own in tests.values() for one in own})]
    if broken := [unchanged[n][1][0] for n, good in outcomes(unchanged, at_once=options.at_once) if not good]:
        print(f"these fail without any mutation: {' '.join(broken)}")
        return 2
    alive: list[Mutant] = []
    for number, lives in outcomes([(one.apply, tests[one.file]) for one in drawn], at_once=options.at_once):
        print(f"{'SURVIVED' if lives else 'caught  '} {drawn[number]}", flush=True)
        alive += [drawn[number]] * lives
    made, living = Counter(one.file for one in drawn), Counter(one.file for one in alive)
    print("\n| module | mutants | survive |\n| --- | ---: | ---: |")
    for file in made:
        print(f"| {file} | {made[file]} | {living[file]} |")
    return int(len(alive) > TOLERATED * len(drawn))


if __name__ == "__main__":
    sys.exit(main())
