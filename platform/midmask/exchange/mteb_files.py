"""Results as MTEB keeps them: MODEL/REVISION/TASK.json, and beside it model_meta.json with the model's name.

    {"task_name", "dataset_revision", "mteb_version", "scores": {split: [{"hf_subset", "languages", "main_score",
     "ndcg_at_10", …}]}, "evaluation_time", "kg_co2_emissions"}

The layout is that of mteb 1.11 and later. Of its scores those are read that are means of trec_eval's measures.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midmask.errors import UserError, quoted

META = "model_meta.json"
WHOLE = "default"
"""The subset of a task that has no parts."""

LANGUAGE = "eng-Latn"
"""MTEB's default name for the only subset of a collection."""

NAMES = {"ndcg": "nDCG", "map": "AP", "mrr": "RR", "recall": "R", "precision": "P", "hit_rate": "Success"}
"""MTEB's name of a measure, before `_at_CUTOFF` -> the name in ir-measures, before `@CUTOFF`."""

MAIN = "nDCG@10"
"""MTEB's main score of retrieval."""

_SCORE = re.compile(rf"({'|'.join(NAMES)})_at_(\d+)")
_MEASURE = re.compile(rf"({'|'.join(NAMES.values())})@(\d+)")


@dataclass(frozen=True)
class MtebResult:
    """The results of a model on one task."""

    model: str
    revision: str
    task: str
    dataset_revision: str
    mteb_version: str
    measures: Mapping[tuple[str, str], Mapping[str, float]]  # (split, subset) -> measure of ir-measures -> value

    def corpus(self, subset: str) -> str:
        """Name of the collection of a subset."""
        return self.task if subset == WHOLE else f"{self.task} {subset}"


def score_name(measure: str) -> str | None:
    """`nDCG@10` -> `ndcg_at_10`; None for a measure that MTEB has no name for."""
    match = _MEASURE.fullmatch(measure)
    return match and f"{next(name for name, ours in NAMES.items() if ours == match[1])}_at_{match[2]}"


def measure_name(score: str) -> str | None:
    """`ndcg_at_10` -> `nDCG@10`; None for another number."""
    match = _SCORE.fullmatch(score)
    return match and f"{NAMES[match[1]]}@{match[2]}"


def result_files(places: Sequence[Path]) -> list[Path]:
    """The result files among these files and in these folders, in order.

    Raises:
        UserError: for a place that is not there, and for a folder without a result.
    """
    files: dict[Path, None] = {}
    for place in places:
        if not place.exists():
            raise UserError(
                f"{place}: no such file or folder; give MTEB's results, as results/MODEL/REVISION/TASK.json"
            )
        results = [place] if place.is_file() else sorted(path for path in place.rglob("*.json") if path.name != META)
        if not results:
            raise UserError(f"{place}: no .json file in it; MTEB's results are results/MODEL/REVISION/TASK.json")
        files |= dict.fromkeys(results)
    return list(files)


def read_result(file: Path) -> MtebResult:
    """The result in a file. Its measures are empty for a task of another kind than retrieval.

    Raises:
        UserError: naming the file, if it is damaged, has another layout, or a value outside of 0 to 1.
    """
    content = _read_json(file)
    if not isinstance(content, dict) or not {"task_name", "scores", "dataset_revision"} <= content.keys():
        hint = "a file of mteb before 1.11 is converted by TaskResult.from_disk(FILE).to_disk(FILE)"
        raise UserError(f"{file}: no result of MTEB: task_name, dataset_revision and scores are wanted; {hint}")
    try:
        parts = {
            (str(split), str(part["hf_subset"])): dict(_measures(file, part))
            for split, listed in content["scores"].items()
            for part in listed
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{file}: its scores are no lists of subsets by split, with hf_subset and numbers") from error
    model, revision = _model(file)
    version = str(content.get("mteb_version") or "")
    named = str(content["task_name"]), str(content["dataset_revision"])
    return MtebResult(model, revision, *named, version, {key: own for key, own in parts.items() if own})


def write_result(result: MtebResult, scores: Mapping[tuple[str, str], Mapping[str, Any]], folder: Path) -> Path:
    """Writes MODEL/REVISION/TASK.json and model_meta.json below a folder, in place of those that are there.

    Args:
        scores: (split, subset) -> what is written beside the measures, `languages` among it.

    Raises:
        UserError: if a part lacks MTEB's main score.
    """
    own = folder / folder_name(result.model) / result.revision
    parts: dict[str, list[dict[str, Any]]] = {}
    for (split, subset), measures in result.measures.items():
        if MAIN not in measures:
            raise UserError(f"{result.model}: {MAIN} is MTEB's main score of retrieval, and was not measured")
        named = {name: value for measure, value in measures.items() if (name := score_name(measure))}
        further = {"main_score": measures[MAIN], "hf_subset": subset, **scores[split, subset]}
        parts.setdefault(split, []).append({**named, **further})
    about = {"dataset_revision": result.dataset_revision, "task_name": result.task, "mteb_version": None}
    content = {**about, "scores": parts, "evaluation_time": None, "kg_co2_emissions": None}
    own.mkdir(parents=True, exist_ok=True)
    for name, value in ((f"{result.task}.json", content), (META, {"name": result.model, "revision": result.revision})):
        (own / name).write_text(json.dumps(value, indent=2) + "\n", "utf-8")
    return own / f"{result.task}.json"


def folder_name(model: str) -> str:
    """Name of a model's folder in MTEB's results."""
    return model.replace("/", "__").replace(" ", "_")


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: no JSON ({error})") from error


def _model(file: Path) -> tuple[str, str]:
    """Name and revision: from model_meta.json, else from the names of the folders."""
    meta = _read_json(file.parent / META) if (file.parent / META).is_file() else {}
    names = meta if isinstance(meta, dict) else {}
    name = names.get("name") or file.absolute().parent.parent.name.replace("__", "/")
    return str(name), str(names.get("revision") or file.absolute().parent.name)


def _measures(file: Path, part: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in part.items():
        measure = measure_name(name)
        if measure is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UserError(f"{file}: {name} is {quoted(value)}; wanted is a number from 0 to 1")
        yield measure, float(value)
