"""Mutation testing: the wrong changes that cosmic-ray's operators make, each of which a test should notice.

    python -m tests.mutants [--since main]      of the lines that this branch has changed in platform/
    python -m tests.mutants FILE … [--count N]  of modules, such as platform/midmask/masking/corruption.py

Each mutant runs against the fast tests of its module: those of its folder in tests/, and those that import the module
or its package; or those of --tests. At most one mutant is made of a place in the code, and --seed decides which. Exit
code 0 if at most one mutant in twenty survives; of a survivor, judge whether anybody could notice it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.drawing import Mutant, draw
from tests.support.project import ROOT, copy_of_project, passes

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="a module of platform/")
    parser.add_argument("--since", default="main", metavar="COMMIT", help="where the branch began; default: main")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="run these in place of the module's")
    parser.add_argument("--count", type=int, default=40, help="mutants of each module, at most")
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--at-once", type=int, default=2, help="processes side by side")
    return parser.parse_args()


def lives(project: Path, tests: list[str], mutant: Mutant | None = None) -> bool:
    """Whether the tests pass on a copy of the project, with a change; those that run for too long do not."""
    with tempfile.TemporaryDirectory(prefix="mutant") as name:
        root = copy_of_project(Path(name), project)
        if mutant is not None:
            mutant.apply(root)
        try:
            return passes(root, tests)
        except subprocess.TimeoutExpired:
            return False


def main() -> int:
    options = parsed()
    places = dict.fromkeys(options.files) or changed_lines(options.since)
    drawn = [one for file, lines in places.items() for one in draw(file, options.count, options.seed, lines)]
    tests = {file: options.tests or tests_of(file) for file in places}
    with tempfile.TemporaryDirectory(prefix="project") as name, ThreadPoolExecutor(options.at_once) as threads:
        project = copy_of_project(Path(name))  # as it is now, whatever is edited meanwhile
        own = sorted({one for each in tests.values() for one in each})
        unchanged = threads.map(lambda test: lives(project, [test]), own)
        if broken := [test for test, good in zip(own, unchanged, strict=True) if not good]:
            print(f"these fail without any mutation: {' '.join(broken)}")
            return 2
        alive: list[Mutant] = []
        found = threads.map(lambda one: lives(project, tests[one.file], one), drawn)
        for one, survives in zip(drawn, found, strict=True):
            print(f"{'SURVIVED' if survives else 'caught  '} {one}", flush=True)
            alive += [one] * survives
    made, living = Counter(one.file for one in drawn), Counter(one.file for one in alive)
    print("\n| module | mutants | survive |\n| --- | ---: | ---: |")
    for file in made:
        print(f"| {file} | {made[file]} | {living[file]} |")
    return int(len(alive) > len(drawn) / 20)


if __name__ == "__main__":
    sys.exit(main())
