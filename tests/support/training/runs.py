"""Training runs for tests: in this process, or as worker processes, each `python runs.py JSON`, which the tests start,
join and kill.

JSON: kind, objective (fields), train (fields), backbone (fields), PLACES, out; rank, size, meet (a file through which
the workers find each other); kill_at (steps done after which the process kills itself).
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import safetensors.torch
import torch
import torch.distributed as dist

from midmask.encoders.backbone import BackboneConfig
from midmask.objectives import FINETUNING, PRETRAINING
from midmask.store.place import Place
from midmask.training.examples import local_reader
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.pretraining_rows import pretraining_examples
from midmask.training.run import run_training
from midmask.training.setup import FinetuneSetup, PretrainSetup, TrainingSetup

PLACES = ("tokens", "spans", "pseudo_queries", "vectors", "corpus", "start", "resume")


def setup_of(spec: dict) -> TrainingSetup:
    places = {name: Place(spec[name]) for name in PLACES if spec.get(name)}
    tunes = spec["kind"] == "finetune"
    table = FINETUNING if tunes else PRETRAINING
    shared = {
        "objective": table[spec["objective"]["name"]].Config(**spec["objective"]),
        "train": TrainConfig(**spec["train"]),
        "backbone": BackboneConfig(**spec["backbone"]),
        "tokens": places["tokens"],
        "start": places.get("start"),
    }
    if tunes:
        lengths = {"per_query": spec.get("per_query", 0), "query_length": 8, "passage_length": 48}
        return FinetuneSetup(**shared, rows=PairExamples(places["tokens"], places["corpus"], "train", "f", **lengths))
    rows = pretraining_examples(shared["objective"], places, "f", 48)
    more = {"stop_after": spec.get("stop_after")}
    return PretrainSetup(**shared, **more, rows=rows, resume=places.get("resume"))


def spec_of(tokens: Place, out: Path, **changes: Any) -> dict[str, Any]:
    """A small run: 30 steps of MLM on batches of 16, dropout on, a checkpoint every 7 steps."""
    train = {"steps": 30, "batch_size": 16, "learning_rate": 1e-3, "log_every": 1, "checkpoint_every": 7, "threads": 1}
    train |= changes.pop("train", {})
    usual = {"kind": "pretrain", "objective": {"name": "mlm"}, "backbone": {"name": "tiny", "dropout": 0.1}}
    return {**usual, "tokens": str(tokens), "out": str(out), "train": train, **changes}


class Stopped(Exception):
    """An interruption made by a test."""


def run_here(spec: dict[str, Any], *, stop_at: int | None = None) -> dict[str, Any]:
    """Runs in this process; raises `Stopped` when `stop_at` steps are done."""

    def log(done: int, values: dict[str, float]) -> None:
        if done == stop_at:
            raise Stopped

    return run_training(setup_of(spec), Place(spec["out"]), local_reader, log, device=torch.device("cpu"))


def run_workers(spec: dict[str, Any], size: int, folder: Path) -> list[int]:
    """Runs `size` worker processes to their end; their exit codes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    workers = []
    for rank in range(size):
        text = json.dumps({**spec, "rank": rank, "size": size, "meet": str(folder / "meet")})
        workers.append(subprocess.Popen([sys.executable, __file__, text], env=environment))
    return [worker.wait(timeout=500) for worker in workers]


def trace_of(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / "trace.parquet").to_pylist()
    return rows


def assert_same_run(one: list[dict[str, Any]], other: list[dict[str, Any]], *, within: float) -> None:
    """Every step once, of the same examples, with the same losses and gradients."""
    assert [row["step"] for row in one] == [row["step"] for row in other] == list(range(len(one)))
    for left, right in zip(one, other, strict=True):
        for name in ("rows", "digest", "learning_rate"):
            assert left[name] == right[name], (left["step"], name)
        for name in ("loss", "gradient_norm"):
            assert abs(left[name] - right[name]) <= within * max(1, abs(right[name])), (left["step"], name)


def spoil(checkpoint: Path) -> None:
    """Makes a weight of a checkpoint NaN, as a training that diverged would have saved it: its digest is right."""
    weights, position = checkpoint / "objective.safetensors", checkpoint / "position.json"
    tensors = safetensors.torch.load_file(weights)
    next(tensor for tensor in tensors.values() if tensor.ndim == 2)[7] = float("nan")
    safetensors.torch.save_file(tensors, weights)
    stated = json.loads(position.read_text())
    stated["sha256"][weights.name] = hashlib.sha256(weights.read_bytes()).hexdigest()
    position.write_text(json.dumps(stated))


def main(spec: dict) -> None:
    torch.set_num_threads(1)
    if spec.get("size", 1) > 1:
        meet = f"file://{spec['meet']}"
        dist.init_process_group("gloo", init_method=meet, rank=spec["rank"], world_size=spec["size"])

    def log(done: int, values: dict[str, float]) -> None:
        if done == spec.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    run_training(setup_of(spec), Place(spec["out"]), local_reader, log, device=torch.device("cpu"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    os._exit(0)  # all is written; gloo's threads abort one process in many that takes itself apart at its end
