"""The artifacts of two stores, file by file.

Several workers add the gradients of their shares, in another order than one process does. Where a weight's gradient is
nearly nothing but rounding, AdamW makes steps of it as large as of any other, so some weights differ although losses do
not. What is computed from the same weights must be equal byte for byte, whoever computes it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from midmask.artifact import RECORD
from tests.chaos.compare import PLACED, artifacts, equal_part

TRAININGS = ("pretrain", "finetune", "teach")
"""Steps whose weights depend on how many workers there are."""

OF_RUN = {"workers", "threads", "name", *PLACED}
"""Fields of a record that say how it was made, or where."""

LOSS_ALIKE, LEXICAL_ALIKE = 1e-5, 1e-4
"""Largest relative difference of a loss, and of one by lexical views: each word has the highest of its tokens' weights,
where these are nearly equal rounding decides between them, and the gradient goes to another token."""

ALIKE = 1e-5
"""Largest difference of a weight that counts as equal."""


@dataclass
class Equality:
    """equal: number of files. apart: one line for every file that only one store has, or that differs."""

    equal: int = 0
    apart: list[str] = field(default_factory=list)


def same_bytes(home: Path, others: Sequence[Path]) -> Equality:
    """All artifacts of a home but its trainings, each held against the first of the others that has it."""
    files, known = dict(_files(home, trainings=False)), [(one, dict(_files(one, trainings=False))) for one in others]
    found = Equality()
    for name in sorted(files):
        twin = next(((own[name], other) for other, own in known if name in own), None)
        if twin is None:
            found.apart.append(f"only in one store: {name}")
        elif _content(files[name], home) != _content(*twin):
            found.apart.append(f"differs: {name}")
        else:
            found.equal += 1
    return found


def _content(path: Path, home: Path) -> bytes:
    """A record without times, and without what says how or where it was made."""
    return equal_part(json.loads(path.read_text()), home, OF_RUN) if path.suffix == ".json" else path.read_bytes()


@dataclass
class TrainingDifference:
    """Of two trainings of one fingerprint. loss: the largest relative difference of a step's loss. weights: share of
    those that differ by more than `ALIKE`; most: the largest difference. is_lexical: whether it scores by words.
    """

    name: str
    loss: float
    weights: float
    most: float
    is_lexical: bool = False

    @property
    def is_alike(self) -> bool:
        return self.loss <= (LEXICAL_ALIKE if self.is_lexical else LOSS_ALIKE)


def trainings(own: Path, other: Path) -> list[TrainingDifference]:
    """All trainings of two homes.

    Raises:
        ValueError: if one store has a training that the other lacks.
    """
    one, two = dict(_files(own, trainings=True)), dict(_files(other, trainings=True))
    names = sorted({name.rpartition("/model/")[0] for name in one if name.endswith("/model/model.safetensors")})
    if any(f"{name}/model/model.safetensors" not in two for name in names):
        raise ValueError(f"the other store has not all of {', '.join(names)}")
    return [_training(name, one, two) for name in names]


def _training(name: str, own: dict[str, Path], other: dict[str, Path]) -> TrainingDifference:
    curves = [pq.read_table(files[f"{name}/trace.parquet"])["loss"].to_numpy() for files in (own, other)]
    loss = float(np.max(np.abs(curves[0] - curves[1]) / np.abs(curves[0])))
    models = [load_file(files[f"{name}/model/model.safetensors"]) for files in (own, other)]
    apart = np.concatenate([np.abs(models[0][key] - models[1][key]).ravel() for key in models[0]])
    config = json.loads(own[f"{name}/{RECORD}"].read_text()).get("config", {})
    is_lexical = config.get("representation", {}).get("lexical") is not None
    return TrainingDifference(name, loss, float(np.mean(apart > ALIKE)), float(apart.max()), is_lexical)


def _files(home: Path, *, trainings: bool) -> Iterator[tuple[str, Path]]:
    """`STEP/FINGERPRINT/FILE` -> its path, of all finished artifacts that are trainings, or that are none."""
    for record, folder, files in artifacts(home):
        step = record.parent.parent.name
        if (step in TRAININGS) == trainings:
            name = f"{step}/{record.parent.name}"
            yield f"{name}/{RECORD}", record
            yield from ((f"{name}/{path.relative_to(folder)}", path) for path in files)
