"""Mutation testing by table: each one-line change of the code must make a test fail.

    python -m tests.mutations [NAME …]      (make mutations: all of them)
    python -m tests.mutations --applies     (seconds: the old text of every entry stands where the entry says)

`tests/mutations/*.toml` lists file, old text, new text, the tests to run, and why the change is wrong. Mutations are
made in a temporary copy, one at a time; the copy must pass the same tests unmutated first, so that a test that fails
anyway catches nothing.
"""

import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.runner import ROOT, Task, failing, load_libraries, outcomes

TABLES = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Mutation:
    """One wrong change: in `file`, the text `old`, which stands there once, becomes `new`."""

    file: str
    old: str
    new: str
    tests: list[str]
    why: str

    def mutated(self, root: Path) -> str:
        """The text of the file with the mutation. Raises ValueError if the old text is not there exactly once, or
        nothing would change.
        """
        path = root / self.file
        text = path.read_text("utf-8") if path.is_file() else ""
        if text.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.file}: {self.old!r} stands there {text.count(self.old)} times, wanted once")
        return text.replace(self.old, self.new)

    def apply(self, root: Path) -> None:
        (root / self.file).write_text(self.mutated(root), "utf-8")


def read(names: list[str]) -> Iterator[Mutation]:
    """The mutations of the named tables, or of all."""
    for table in sorted(TABLES.glob("*.toml")):
        if not names or table.stem in names:
            yield from read_table(table)


def read_table(table: Path) -> list[Mutation]:
    return [Mutation(**entry) for entry in tomllib.loads(table.read_text("utf-8"))["mutation"]]


def misfits(mutations: Iterable[Mutation]) -> list[str]:
    """A line for every entry that does not apply to the project as it is, or names a test file that is not there."""
    found = []
    for mutation in mutations:
        try:
            mutation.mutated(ROOT)
        except ValueError as error:
            found.append(str(error))
        found += [
            f"{mutation.file}: no {test}" for test in mutation.tests if not (ROOT / test.split("::")[0]).is_file()
        ]
    return found


def main(names: list[str]) -> int:
    if names == ["--applies"]:
        lines = misfits(read([]))
        print("\n".join(lines) or "every entry applies")
        return 2 if lines else 0
    mutations = list(read(names))
    load_libraries()
    if broken := failing(test for mutation in mutations for test in mutation.tests):
        print(f"these fail without any mutation; mend them first: {', '.join(broken)}")
        return 2
    survivors = 0
    for task, survives in outcomes(Task(each.tests, each) for each in mutations):
        mutation = task.change
        assert isinstance(mutation, Mutation)
        print(f"{'SURVIVED' if survives else 'caught  '}  {mutation.file}: {mutation.why}", flush=True)
        survivors += survives
    print(f"{len(mutations)} mutations, {len(mutations) - survivors} caught")
    return 1 if survivors or not mutations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
