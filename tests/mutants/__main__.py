"""Mutation testing by tool: cosmic-ray's operators make the wrong changes, and nearly each must make a test fail.

    python -m tests.mutants [--module NAME …] [--seed N] [--count N] [--list]      (make mutants)

`modules.toml` lists modules with the tests meant for them and how many mutants are drawn from each; the seed decides
which. `argued.toml` lists mutants that change nothing anybody could notice, each with the reason. Outcomes are kept in
.mutants/: a run that was ended goes on where it was, a mutant that was caught is not tried again while the module stays
as it is, and one that survived is tried again when its tests have changed. `--afresh` runs all again.

Exit code 0 if at most one mutant in twenty survives without an argument.
"""

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.drawing import Mutant, draw
from tests.mutants.kept import Kept
from tests.mutations.runner import ROOT, Task, failing, load_libraries, outcomes

HERE = Path(__file__).resolve().parent
TOLERATED = 0.05


@dataclass(frozen=True)
class Module:
    """A module, the tests meant for it, and how many mutants are drawn from it."""

    file: str
    tests: list[str]
    count: int


def modules(names: list[str] | None) -> list[Module]:
    table = tomllib.loads((HERE / "modules.toml").read_text("utf-8"))
    found = [Module(**entry) for entry in table["module"]]
    if names and (strangers := set(names) - {Path(each.file).stem for each in found}):
        sys.exit(f"--module: {', '.join(sorted(strangers))}: not in tests/mutants/modules.toml")
    return [each for each in found if not names or Path(each.file).stem in names]


def reasons() -> dict[tuple[str, str, str], str]:
    """(file, line, changed line) -> why nobody can notice the change."""
    table = tomllib.loads((HERE / "argued.toml").read_text("utf-8"))
    return {(each["file"], each["old"], each["new"]): each["why"] for each in table.get("argued", [])}


def survivors(drawn: dict[Mutant, Module], kept: Kept, at_once: int) -> Iterator[Mutant]:
    """Runs every mutant whose outcome is not known; those that live."""
    known = {mutant: kept.outcome(mutant, module.tests) for mutant, module in drawn.items()}
    yield from (mutant for mutant, lives in known.items() if lives)
    left = [Task(module.tests, mutant) for mutant, module in drawn.items() if known[mutant] is None]
    print(f"{len(drawn)} mutants, {len(left)} of them to be run", flush=True)
    if left and (broken := failing((test for task in left for test in task.tests), at_once=at_once)):
        sys.exit(f"these fail without any mutation; mend them first: {', '.join(broken)}")
    for number, (task, lives) in enumerate(outcomes(left, at_once=at_once), start=1):
        assert isinstance(task.change, Mutant)
        kept.add(task.change, list(task.tests), lives)
        print(f"{number}/{len(left)} {'SURVIVED' if lives else 'caught  '} {task.change}", flush=True)
        if lives:
            yield task.change


def report(drawn: dict[Mutant, Module], alive: list[Mutant]) -> int:
    """Prints the survivors and a table by module; how many survive without an argument."""
    argued = reasons()
    open_ = [mutant for mutant in alive if mutant.key not in argued]
    for mutant in sorted(open_, key=str):
        print(f"SURVIVED  {mutant}")
    for mutant in sorted(set(alive) - set(open_), key=str):
        print(f"argued    {mutant}\n          {argued[mutant.key]}")
    made, living, without = (Counter(each.file for each in group) for group in (drawn, alive, open_))
    print("\n| module | mutants | caught | argued | alive |\n| --- | ---: | ---: | ---: | ---: |")
    for file in sorted(made):
        caught = made[file] - living[file]
        print(f"| {file} | {made[file]} | {caught} | {living[file] - without[file]} | {without[file]} |")
    caught = len(drawn) - len(alive)
    print(f"| all | {len(drawn)} | {caught} | {len(alive) - len(open_)} | {len(open_)} |")
    return len(open_)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--module", action="append", metavar="NAME", help="only this module, such as `space`")
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--count", type=int, help="mutants of each module, in place of the table's")
    parser.add_argument("--at-once", type=int, default=2, help="processes side by side")
    parser.add_argument("--afresh", action="store_true", help="run all again")
    parser.add_argument("--list", action="store_true", help="print the drawn mutants and end")
    parser.add_argument("--kept", type=Path, default=ROOT / ".mutants" / "outcomes.jsonl", help="file of outcomes")
    options = parser.parse_args(arguments)
    drawn = {
        mutant: module
        for module in modules(options.module)
        for mutant in draw(module.file, options.count or module.count, options.seed)
    }
    if options.list:
        print("\n".join(map(str, drawn)))
        return 0
    load_libraries()
    alive = list(survivors(drawn, Kept(options.kept, afresh=options.afresh), options.at_once))
    return 0 if report(drawn, alive) <= TOLERATED * len(drawn) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
