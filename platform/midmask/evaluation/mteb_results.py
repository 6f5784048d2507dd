"""Measured systems as MTEB's result files, with the ranks that the tests allow them beside the measures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from midmask.errors import UserError
from midmask.evaluation.measures import aggregate
from midmask.evaluation.statistics.ranks import RankRange, competition_ranks, rank_ranges
from midmask.evaluation.statistics.significance import compare
from midmask.exchange.mteb_files import LANGUAGE, MAIN, WHOLE, MtebResult, folder_name, write_result


@dataclass(frozen=True)
class MtebTask:
    """The task that systems were measured on, in MTEB's terms."""

    name: str
    split: str
    revision: str  # of the collection
    language: str = LANGUAGE  # such as `eng-Latn`


@dataclass(frozen=True)
class SystemSample:
    """A system's results, one table for each seed."""

    tables: Sequence[pa.Table]  # query_id, measure, value; all of the same queries
    revision: str  # identifies the system's weights

    @property
    def means(self) -> dict[str, float]:
        """Measure -> its mean over seeds and queries."""
        each = [aggregate(table) for table in self.tables]
        return {measure: sum(own[measure] for own in each) / len(each) for measure in each[0]}


def write_results(systems: Mapping[str, SystemSample], task: MtebTask, folder: Path) -> dict[str, Path]:
    """Writes a result file per system; returns label -> file.

    The scores of each have, beside MTEB's own, `rank` by nDCG@10 among these systems, and `rank_best` and `rank_worst`:
    the ranks that paired t-tests allow, with Bonferroni's correction over all pairs, as on the leaderboard. `seeds`
    says over how many seeds the values are means.

    Args:
        systems: label -> values, all of the same queries.

    Raises:
        UserError: for systems of different queries, one without nDCG@10, or two whose labels give one folder.
    """
    means = {label: own.means for label, own in systems.items()}
    for label, own in means.items():
        if MAIN not in own:
            raise UserError(f"{label}: {MAIN} is MTEB's main score of retrieval, and was not measured")
    names = _model_names(list(systems))
    ranks = competition_ranks({label: own[MAIN] for label, own in means.items()})
    tested = compare({label: own.tables for label, own in systems.items()}, measure=MAIN, correction="bonferroni")
    allowed = rank_ranges(tested) or {label: RankRange(1, 1) for label in systems}
    where = task.split, WHOLE
    written = {}
    for label, system in systems.items():
        further: dict[str, Any] = {
            "languages": [task.language],
            "rank": ranks[label],
            "rank_best": allowed[label].best,
            "rank_worst": allowed[label].worst,
            "seeds": len(system.tables),
        }
        result = MtebResult(names[label], system.revision, task.name, task.revision, "", {where: means[label]})
        written[label] = write_result(result, {where: further}, folder)
    return written


def _model_names(labels: Sequence[str]) -> dict[str, str]:
    """Label -> the model's name: letters, digits, dots and dashes, since it is a folder's name too."""
    names = {label: re.sub(r"[^\w./-]+", "-", label).strip("-/.") or "system" for label in labels}
    by_folder: dict[str, str] = {}
    for label, name in names.items():
        other = by_folder.setdefault(folder_name(name), label)
        if other != label:
            raise UserError(f"{other!r} and {label!r} would both be written to {folder_name(name)}; export one by one")
    return names
