"""The jobs that are disturbed or taken to a cluster: so small that most of their time is the start of processes.

A collection of 48 passages, tiny encoders, trainings of a dozen steps with checkpoints between which a kill can fall.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
TRAIN = {"steps": 6, "batch_size": 8, "checkpoint_every": 2}
SMALL = {
    "tokens.vocabulary_size": 300,
    **{"pretrain.steps": 12, "pretrain.batch_size": 8, "pretrain.checkpoint_every": 2},
}
MINED = {"stages.0.negatives": [], "stages.0.per_query": 0, "stages.0.mine.max_queries": None}
TAUGHT = {
    "stages.1.loss": {"name": "distillation", "loss": "kl"},
    "stages.1.teacher": {"train": {**TRAIN, "learning_rate": 1e-3}},
}
SYSTEMS = ("--systems", "none,mlm", "--representations", "dense,splade", "--seeds", "0")
JOBS = ("pipeline", "sweep", "benchmark")


def _stages(*numbers: int | str) -> dict[str, Any]:
    return {f"stages.{number}.train.{name}": value for number in numbers for name, value in TRAIN.items()}


def _set(changes: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"--set={path}={json.dumps(value)}" for path, value in changes.items())


@dataclass(frozen=True)
class Work:
    """A job with its flags. here, there: further flags on one machine, and on a cluster of several."""

    job: str
    flags: tuple[str, ...]
    here: tuple[str, ...] = ()
    there: tuple[str, ...] = ()

    def command(self, corpus: str, own: tuple[str, ...]) -> list[str]:
        return [sys.executable, str(ROOT / "jobs" / f"{self.job}.py"), "--corpus", corpus, *self.flags, *own]


def works(folder: Path, *, is_spread: bool) -> dict[str, Work]:
    """The jobs by name; the file of the search space is written to the folder, which every machine must be able to
    read.

    Args:
        is_spread: for a cluster: no teacher (its weights, and so its scores, depend on the number of workers) and no
            pruning (trials side by side are pruned by who comes first). On one machine one trial runs at a time.
    """
    rungs = {"prune": False} if is_spread else {"shares": [0.5], "steps": 2, "max_queries": 20, "reduction": 2}
    space = {
        "name": "disturbed", "recipe": "mlm", "search": "grid", "rungs": rungs, "baselines": ["none"], "seeds": [0],
        "parameters": {"objective.encoder_mask_ratio": {"values": [0.15, 0.3, 0.5]}},
        "settings": {**SMALL, **_stages(0)},
    }  # fmt: skip
    (folder / "space.yaml").write_text(yaml.safe_dump(space))
    pipeline = {**SMALL, **_stages(0, 1), **MINED, **({} if is_spread else TAUGHT)}
    benchmark = _set({**SMALL, **_stages("*")})
    alone, two = ("--workers", "1"), ("--workers-per-training", "2")
    return {
        "pipeline": Work("run_recipe", ("--recipe", "retromae", "--protocol", "ance", *_set(pipeline)), (), two),
        "sweep": Work("sweep", ("--space", str(folder / "space.yaml")), alone, ("--workers", "2")),
        "benchmark": Work("benchmark_middle_training", (*SYSTEMS, *benchmark), alone, (*alone, *two)),
    }


def environment(home: Path) -> dict[str, str]:
    """Results and temporary files below `home`, a local Ray, one thread for each library."""
    known = ("MIDMASK_STORAGE", "MLFLOW_TRACKING_URI", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "TMPDIR")
    kept = {name: value for name, value in os.environ.items() if name not in known}
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    own = {"MIDMASK_HOME": str(home), "TMPDIR": str(home / "tmp"), "RAY_ADDRESS": "local", "OMP_NUM_THREADS": "1"}
    return {**kept, **own, "RAY_worker_niceness": "0"}  # Ray's 15 would starve workers on a busy machine


def run_here(work: Work, corpus: str, home: Path) -> None:
    """To its end, on one machine with a disk: a local Ray, one process for each training."""
    command = work.command(corpus, work.here)
    env = environment(home) | {"RAY_TMPDIR": "/tmp"}  # below `home` the paths of Ray's sockets would be too long
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=home)
    if done.returncode != 0:
        raise RuntimeError(f"{work.job} on one machine: {done.stderr[-3000:]}")
