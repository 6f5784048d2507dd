"""What share of a training step is spent waiting for data: `python -m tests.speed.data_wait [--steps N]`.

RetroMAE on made-up passages of about 120 tokens, batches of 32, two backbones: `mini`, and `tiny`, whose short steps
leave the reader least time. Two readers: the one-process one, and Ray Data beside a Ray Train worker on 2 CPUs. The
first step, which waits for files to be opened and processes to start, is left out, as in the `data_wait_share` of every
run. Goal: under 5%.
"""

import argparse
import os
import random
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import torch

from midmask.artifact import Artifact, Place
from midmask.backend.worker_group import train_on_ray
from midmask.encoders.backbone import BackboneConfig
from midmask.objectives.pretraining.retromae import RetroMAE
from midmask.tokens import TokensConfig, tokenise
from midmask.training.examples import PassageExamples
from midmask.training.optimiser import TrainConfig
from midmask.training.run import local_reader, run_training
from midmask.training.setup import PretrainSetup
from tests.speed.own_ray import start_ray

PASSAGES = 20_000
GOAL = 0.05


def prepare(folder: Path) -> Place:
    """A tokens artifact of 20,000 passages of 60 to 150 made-up words."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(3000)]
    (folder / "corpus" / "docs").mkdir(parents=True)
    texts = [" ".join(draw.choices(words, k=draw.randint(60, 150))) for _ in range(PASSAGES)]
    table = pa.table({"doc_id": [f"d{row}" for row in range(PASSAGES)], "title": [""] * PASSAGES, "text": texts})
    pq.write_table(table, folder / "corpus" / "docs" / "00000.parquet", row_group_size=2048)
    queries = pa.table({"query_id": pa.array([], pa.string()), "text": pa.array([], pa.string())})
    pq.write_table(queries, folder / "corpus" / "queries.parquet")
    tokens = Place(str(folder / "tokens"))
    tokenise(TokensConfig(), {"corpus": Artifact(Place(str(folder / "corpus")), {})}, tokens)
    return tokens


def silent(done: int, values: dict[str, float]) -> None:
    pass


def measure(backbone: str, reader: str, steps: int, tokens: Place, out: Path) -> dict[str, Any]:
    setup = PretrainSetup(
        objective=RetroMAE.Config(),
        train=TrainConfig(steps=steps, batch_size=32, learning_rate=3e-4, checkpoint_every=steps, threads=1),
        backbone=BackboneConfig(name=backbone),
        tokens=tokens,
        rows=PassageExamples(tokens, "benchmark"),
    )
    if reader == "ray":
        return train_on_ray(setup, Place(str(out)), workers=1, use_gpu=False, log=silent)
    return run_training(setup, Place(str(out)), local_reader, silent, device=torch.device("cpu"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory(prefix="mm", dir="/tmp") as name:
        folder = Path(name)
        tokens = prepare(folder)
        start_ray(2, _temp_dir=str(folder / "r"))
        for backbone in ("mini", "tiny"):
            for reader in ("local", "ray"):
                result = measure(backbone, reader, steps, tokens, folder / f"{backbone}-{reader}")
                share, step = result["data_wait_share"], result["seconds"] / steps
                print(f"{backbone:5} {reader:6} waits {share:7.3%} of a step of {step:.3f} s (goal: under {GOAL:.0%})")
        ray.shutdown()


if __name__ == "__main__":
    main()
