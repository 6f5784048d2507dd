"""Measured systems as MTEB keeps results: MODEL/REVISION/TASK.json, with model_meta.json beside it.

    {"task_name", "dataset_revision", "mteb_version", "scores": {split: [{"hf_subset", "languages", "main_score",
     "ndcg_at_10", …}]}, "evaluation_time", "kg_co2_emissions"}

The layout is that of mteb 1.11 and later.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from midmask.errors import UserError

LANGUAGE = "eng-Latn"
"""MTEB's default name for the only subset of a collection."""

NAMES = {"nDCG": "ndcg", "AP": "map", "RR": "mrr", "R": "recall", "P": "precision", "Success": "hit_rate"}
"""A measure's name in ir-measures, before `@CUTOFF` -> MTEB's, before `_at_CUTOFF`."""

MAIN = "nDCG@10"
"""MTEB's main score of retrieval."""

_MEASURE = re.compile(rf"({'|'.join(NAMES)})@(\d+)")


@dataclass(frozen=True)
class MtebResult:
    """The results of a system on one split of a task."""

    system: str  # label of the system
    revision: str  # identifies the system's weights
    task: str  # name of the collection in MTEB
    dataset_revision: str
    split: str
    measures: Mapping[str, float]  # measure of ir-measures -> mean over queries and seeds
    language: str = LANGUAGE
    seeds: int = 1

    @property
    def model(self) -> str:
        """The system's label in letters, digits, dots and dashes, since it names a folder too."""
        return re.sub(r"[^\w./-]+", "-", self.system).strip("-/.") or "system"


def score_name(measure: str) -> str | None:
    """`nDCG@10` -> `ndcg_at_10`; None for a measure that MTEB has no name for."""
    match = _MEASURE.fullmatch(measure)
    return match and f"{NAMES[match[1]]}_at_{match[2]}"


def write_results(results: Sequence[MtebResult], folder: Path) -> dict[str, Path]:
    """Writes a file per system below a folder, in place of those that are there; returns system -> file.

    Raises:
        UserError: for a system without nDCG@10, or two whose labels give one folder; nothing is written then.
    """
    folders: dict[str, str] = {}
    for result in results:
        if MAIN not in result.measures:
            raise UserError(f"{result.system}: {MAIN} is MTEB's main score of retrieval, and was not measured")
        name = result.model.replace("/", "__")
        other = folders.setdefault(name, result.system)
        if other != result.system:
            raise UserError(f"{other!r} and {result.system!r} would both be written to {name}; export one by one")
    return {result.system: _write(result, folder) for result in results}


def _write(result: MtebResult, folder: Path) -> Path:
    scores = {name: value for measure, value in result.measures.items() if (name := score_name(measure))}
    part = {
        **scores,
        "main_score": result.measures[MAIN],
        "hf_subset": "default",
        "languages": [result.language],
        "seeds": result.seeds,
    }
    content = {
        "dataset_revision": result.dataset_revision,
        "task_name": result.task,
        "mteb_version": None,
        "scores": {result.split: [part]},
        "evaluation_time": None,
        "kg_co2_emissions": None,
    }
    model_folder = folder / result.model.replace("/", "__") / result.revision
    model_folder.mkdir(parents=True, exist_ok=True)
    file = model_folder / f"{result.task}.json"
    file.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    meta = {"name": result.model, "revision": result.revision}
    (model_folder / "model_meta.json").write_text(json.dumps(meta, indent=2) + "\n", "utf-8")
    return file
