"""Outcomes of mutants in a file, a line for each as it ends."""

import hashlib
import json
from pathlib import Path

from tests.mutants.drawing import Mutant
from tests.mutations.runner import ROOT


class Kept:
    """What earlier runs found. A caught mutant stays caught while its module is the same; a survivor only while its
    tests are the same too.
    """

    def __init__(self, path: Path, *, afresh: bool) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if afresh:
            path.unlink(missing_ok=True)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        self._names = set(map(json.loads, lines))

    def outcome(self, mutant: Mutant, tests: list[str]) -> bool | None:
        """Whether it survives; None if that is not known."""
        if caught_name(mutant) in self._names:
            return False
        return True if survivor_name(mutant, tests) in self._names else None

    def add(self, mutant: Mutant, tests: list[str], survives: bool) -> None:
        name = survivor_name(mutant, tests) if survives else caught_name(mutant)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(name) + "\n")


def caught_name(mutant: Mutant) -> str:
    return f"caught {_digest(mutant.file, mutant.source)}"


def survivor_name(mutant: Mutant, tests: list[str]) -> str:
    texts = [(ROOT / test.partition("::")[0]).read_text("utf-8") for test in tests]
    return f"survived {_digest(mutant.file, mutant.source, *texts)}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
