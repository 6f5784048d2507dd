"""The three jobs that are killed: commands so small that most of their time is the start of processes."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]

LETHAL = ("driver", "raylet", "group")
"""Victims that end the whole job; after any other the same job must go on."""

TRAIN = {"steps": 6, "batch_size": 4, "checkpoint_every": 2}
"""Length of each training; several checkpoints, so that a kill can fall between two."""

TEACHER = {"train": {**TRAIN, "learning_rate": 1e-3}}

STAGES = {f"stages.{number}.train.{name}": value for number in (0, 1) for name, value in TRAIN.items()}

PRETRAIN = {"pretrain.steps": 12, "pretrain.batch_size": 8, "pretrain.checkpoint_every": 2}

SPACE = {
    "name": "chaos",
    "recipe": "mlm",
    "search": "grid",
    "parameters": {"objective.encoder_mask_ratio": {"values": [0.15, 0.3, 0.5]}},
    "settings": {
        "tokens.vocabulary_size": 300,
        **PRETRAIN,
        **{f"stages.0.train.{name}": value for name, value in TRAIN.items()},
    },
    "rungs": {"shares": [0.5], "steps": 2, "max_queries": 20, "reduction": 2},
    "baselines": ["none"],
    "seeds": [0],
}


@dataclass(frozen=True)
class Scenario:
    """A job by name, its arguments beside the collection, and which of its processes are killed, as often as named."""

    job: str
    arguments: tuple[str, ...]
    victims: tuple[str, ...]

    def command(self, collection: str) -> list[str]:
        return [sys.executable, str(ROOT / "jobs" / f"{self.job}.py"), "--corpus", collection, *self.arguments]


def scenarios(folder: Path) -> dict[str, Scenario]:
    """The scenarios by name; the file of the search space is written to `folder`."""
    space = folder / "chaos.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    mined = {
        **STAGES,
        "stages.0.negatives": [],
        "stages.0.per_query": 0,
        "stages.0.mine.max_queries": None,
        "stages.1.loss": {"name": "distillation", "loss": "kl"},
        "stages.1.teacher": TEACHER,
    }
    all_stages = {f"stages.*.train.{name}": value for name, value in TRAIN.items()}
    shared = {"tokens.vocabulary_size": 300, **PRETRAIN}
    always = ("driver", "raylet", "group", "channel", "worker", "worker")
    return {
        "pipeline": Scenario(
            "run_recipe", ("--recipe", "mlm", "--protocol", "ance", *_set({**shared, **mined})), (*always, "worker")
        ),
        # One trial at a time: which trials ASHA ends depends on the order of their results.
        "sweep": Scenario("sweep", ("--space", str(space), "--workers", "1"), (*always, "trial", "trial")),
        "benchmark": Scenario(
            "benchmark_middle_training",
            (
                *("--systems", "none,mlm", "--representations", "dense,splade", "--seeds", "0"),
                *_set({**shared, **all_stages}),
            ),
            (*always, "worker"),
        ),
    }


def _set(changes: dict[str, object]) -> list[str]:
    return [f"--set={path}={json.dumps(value)}" for path, value in changes.items()]


def environment(home: Path) -> dict[str, str]:
    """Results and temporary files below `home`, a local Ray, one thread for each library."""
    known = ("MIDMASK_STORAGE", "MLFLOW_TRACKING_URI", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "TMPDIR")
    kept = {name: value for name, value in os.environ.items() if name not in known}
    own = {"MIDMASK_HOME": str(home), "TMPDIR": str(home / "tmp"), "RAY_ADDRESS": "local", "OMP_NUM_THREADS": "1"}
    return {**kept, **own, "RAY_worker_niceness": "0"}  # Ray's 15 would starve workers on a busy machine
