"""What a contest has decided and spent, kept in its folder, so that a killed one goes on with the same decisions."""

import json
import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from midmask.artifact import Place
from midmask.choice.budget import Clock
from midmask.choice.contenders import Contender, Size
from midmask.ticking import ticking

FILE = "contest.json"
TICK_S = 10.0


@dataclass(frozen=True)
class Round:
    """Who is trained and for how long. until: seconds of the budget after which no training of it begins."""

    size: Size
    contenders: tuple[Contender, ...]
    until: float


class ContestJournal:
    """The decisions of one contest; another contest in the same folder begins afresh.

    pace: as `Prices` has learned it; sampled: whether a sample is searched for the test queries; kept: seconds that are
    kept for them; finalists: the systems that are searched with; None: not yet. enough: seconds of a budget that would
    compare middle trainings; None: none takes part.

    Args:
        folder: of the verdict. identity: fingerprint of all that the decisions depend on.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._file = folder / FILE
        self._identity = identity
        self._writing = threading.Lock()
        found = self._read()
        self.spent = float(found.get("spent", 0.0))
        self.pace: float | None = found.get("pace")
        self.sampled: bool | None = found.get("sampled")
        self.kept: float | None = found.get("kept")
        self.enough: float | None = found.get("enough")
        finalists = found.get("finalists")
        self.finalists = None if finalists is None else _contenders(finalists)
        self.rounds = [_round(one) for one in found.get("rounds", ())]
        self.given_up: dict[str, str] = dict(found.get("given_up", {}))

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return found if found.get("identity") == self._identity else {}

    def decide(self, decided: Round) -> None:
        self.rounds.append(decided)
        self.write()

    def choose_finalists(self, finalists: Sequence[Contender]) -> None:
        self.finalists = tuple(finalists)
        self.write()

    def give_up(self, contenders: Sequence[Contender], reason: str) -> None:
        """These go no further, or were never tried."""
        self.given_up = {**self.given_up, **{one.label: reason for one in contenders}}  # anew: a thread may write it
        self.write()

    def write(self, spent: float | None = None) -> None:
        """Replaces the file, whole or not at all; what is written last was known last, whichever thread writes it."""
        with self._writing:
            self.spent = self.spent if spent is None else spent
            rounds = [asdict(one) for one in self.rounds]
            known = {"identity": self._identity, "spent": self.spent, "pace": self.pace}
            known |= {"sampled": self.sampled, "kept": self.kept, "enough": self.enough}
            finalists = None if self.finalists is None else [asdict(one) for one in self.finalists]
            content = {**known, "rounds": rounds, "finalists": finalists, "given_up": self.given_up}
            Place(str(self._file)).write_json(content)

    def keep_time(self, clock: Clock, every: float = TICK_S) -> AbstractContextManager[None]:
        """Writes what is spent again and again while the block runs, so that a kill hides no more than a tick.

        Args:
            every: seconds between two writes.
        """
        return ticking(lambda: self.write(clock.spent), every, "contest-clock")


def _round(found: dict[str, Any]) -> Round:
    return Round(Size(**found["size"]), _contenders(found["contenders"]), float(found.get("until", math.inf)))


def _contenders(found: Sequence[Mapping[str, str]]) -> tuple[Contender, ...]:
    return tuple(Contender(**one) for one in found)
