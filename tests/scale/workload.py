"""What runs on the cluster and, as a reference, on one machine's disk: a pipeline, a sweep, a benchmark.

The collection is small, the encoders are tiny and trainings have a dozen steps, so that most of the time is Ray's.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]

PRETRAIN = {"pretrain.steps": 12, "pretrain.batch_size": 8, "pretrain.checkpoint_every": 4}
STAGE = {"train.steps": 6, "train.batch_size": 8, "train.checkpoint_every": 2}
SMALL = {"tokens.vocabulary_size": 800, **PRETRAIN}


def _stages(*numbers: int | str) -> dict[str, object]:
    return {f"stages.{number}.{path}": value for number in numbers for path, value in STAGE.items()}


SPACE = {
    "name": "scale",
    "recipe": "mlm",
    "search": "grid",
    "parameters": {"objective.encoder_mask_ratio": {"values": [0.15, 0.3]}},
    "rungs": {"prune": False},  # trials side by side are pruned by who comes first
    "settings": {**SMALL, **_stages(0)},
    "baselines": ["none"],
    "seeds": [0],
}


@dataclass(frozen=True)
class Task:
    """One job. here, there: flags on one machine alone, and on the cluster."""

    job: str
    flags: tuple[str, ...]
    here: tuple[str, ...] = ()
    there: tuple[str, ...] = ()


def tasks(space: Path) -> dict[str, Task]:
    """By name; the file of the sweep's space is written to `space`, which every machine can read."""
    space.write_text(yaml.safe_dump(SPACE))
    mined = {"stages.0.negatives": [], "stages.0.per_query": 0, "stages.0.mine.max_queries": None}
    alone, two = ("--workers", "1"), ("--workers-per-training", "2")
    return {
        "pipeline": Task(
            "run_recipe",
            ("--recipe", "retromae", "--protocol", "ance", *_set({**SMALL, **_stages(0, 1), **mined})),
            here=("--workers-per-training", "1"),
            there=two,
        ),
        "sweep": Task("sweep", ("--space", str(space)), here=alone, there=("--workers", "2")),
        "benchmark": Task(
            "benchmark_middle_training",
            (
                "--systems",
                "none,mlm",
                "--representations",
                "dense,splade",
                "--seeds",
                "0",
                *_set({**SMALL, **_stages("*")}),
            ),
            here=alone,
            there=("--workers", "1", *two),
        ),
    }


def _set(changes: dict[str, object]) -> list[str]:
    return [f"--set={path}={json.dumps(value)}" for path, value in changes.items()]


def run_here(task: Task, corpus: str, home: Path) -> None:
    """The reference: a local Ray, one process for each training, everything below `home`."""
    known = ("MIDMASK_STORAGE", "MLFLOW_TRACKING_URI", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN")
    kept = {name: value for name, value in os.environ.items() if name not in known}
    own = {"MIDMASK_HOME": str(home), "RAY_ADDRESS": "local", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "jobs" / f"{task.job}.py"), "--corpus", corpus, *task.flags, *task.here]
    done = subprocess.run(command, env={**kept, **own}, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"{task.job} on one machine: {done.stderr[-3000:]}")


def flags_there(task: Task, corpus: str) -> Sequence[str]:
    """Of the same job on the cluster."""
    return ("--corpus", corpus, *task.flags, *task.there)
