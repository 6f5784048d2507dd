"""Blind comparison of two systems by team-draft interleaving (Radlinski, Kurup and Joachims 2008, algorithm 2).

Both systems draft passages into one list in turns, like captains who choose their teams: in each round a coin decides
who goes first, and each takes its best passage that is not in the list yet. A person who does not know who proposed
what judges the list; each passage that is found relevant is a credit for its team. On a query, the system with more
credits wins.

The coin is a hash of the query and the two names, so that the same query shows the same list again and neither the
order of the names nor the position of a system on a page has a say.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scipy import stats

from midmask.choice.judgements import Judgement, JudgementJournal, query_id
from midmask.evaluation.statistics.intervals import ALPHA
from midmask.randomness.texts import uniform

SALT = "team-draft"


class DraftPick(NamedTuple):
    """A passage of an interleaved list, and the system that proposed it."""

    doc_id: str
    team: str


def team_draft(lists: Mapping[str, Sequence[str]], query: str, k: int = 10) -> list[DraftPick]:
    """The interleaved list of two systems, at most `k` long. It ends where a system has no passage left to propose, so
    that the teams differ by one passage at most.

    Args:
        lists: system -> its ranked document ids; two systems. query: text of the query.

    Raises:
        ValueError: for any other number of systems.
    """
    if len(lists) != 2:
        raise ValueError(f"{len(lists)} systems; a team draft is between two")
    names = sorted(lists)
    tosses = uniform([f"{query_id(query)}/{names[0]}/{names[1]}/{turn}" for turn in range(k)], SALT)
    chosen: list[DraftPick] = []
    for turn in range((k + 1) // 2):
        order = names if tosses[turn] < 0.5 else names[::-1]
        for team in order:
            taken = {pick.doc_id for pick in chosen}
            left = {name: next((one for one in lists[name] if one not in taken), None) for name in names}
            proposed = left[team]
            if proposed is None or len(chosen) == k or (team == order[0] and None in left.values()):
                return chosen
            chosen.append(DraftPick(proposed, team))
    return chosen


@dataclass(frozen=True)
class BlindPreference:
    """What blind comparisons of two systems say. wins, losses, ties: queries on which the first has more, fewer, and
    as many credits as the second; a query without any credit is a tie. share: of the decided queries that the first
    wins, with its interval (Clopper and Pearson 1934); 0 … 1 where none is decided. p: two-sided sign test.
    """

    wins: int
    losses: int
    ties: int
    share: float
    low: float
    high: float
    p: float

    @property
    def significant(self) -> bool:
        return self.p < ALPHA


def blind_judgements(journal: JudgementJournal, first: str, second: str) -> dict[tuple[str, str], Judgement]:
    """(query id, document id) -> the last judgement of it in a blind comparison of these two systems; withdrawn ones
    are left out.
    """
    pair = {first, second}
    blind = [row for row in journal.rows if row.mode == "blind" and {row.left, row.right} == pair and row.team in pair]
    last = {(row.query_id, row.doc_id): row for row in blind}
    return {key: row for key, row in last.items() if row.grade is not None}


def interleaving_preference(journal: JudgementJournal, first: str, second: str) -> BlindPreference:
    """Which of two systems is preferred, by the blind judgements of these two. A passage that was judged not relevant
    gives no credit; of several judgements of a passage the last one counts.
    """
    judged = blind_judgements(journal, first, second).values()
    credits = Counter((row.query_id, row.team) for row in judged if row.grade)
    signs = [credits[query, first] - credits[query, second] for query in {row.query_id for row in judged}]
    wins, losses = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    ties = len(signs) - wins - losses
    if not wins + losses:
        return BlindPreference(0, 0, ties, 0.5, 0.0, 1.0, 1.0)
    test = stats.binomtest(wins, wins + losses)
    ends = test.proportion_ci(1 - ALPHA)
    share = wins / (wins + losses)
    return BlindPreference(wins, losses, ties, share, float(ends.low), float(ends.high), float(test.pvalue))
