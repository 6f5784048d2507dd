"""All cases of part `parity`, and whole trainings, on a device that pretends to be a GPU (`tests.support.gpu.pretend`).

    python -m tests.gpu.pretended [KIND …]

It shows, without a GPU, tensors that are made on the wrong device and memory that is read as if it were the host's.
KIND: of the table's first column, or `training`; default: all. Exit code 1 if a case fails.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from midmask.artifact import Artifact, Place
from midmask.tokens import TokensConfig, tokenise
from midmask.training.run import local_reader, run_training
from tests.gpu.compared import Case, Numbers, Where, compare
from tests.gpu.parity import all_cases, report
from tests.support.gpu.pretend import pretended
from tests.support.training.corpus import write_corpus
from tests.support.training.runs import spec_of, trace_of
from tests.support.training.worker import setup_of

TINY = {"name": "tiny", "dropout": 0.0}
TRAIN = {"steps": 4, "batch_size": 8, "precision": "fp32", "checkpoint_every": 2}
LOOKS = {"health_every": 2, "probe_every": 2}
LOSSES = 1e-3
"""Relative difference of a loss: four updates of AdamW make more of a rounding error than one loss does."""


def trainings(folder: Path) -> Iterator[Case]:
    """Middle trainings and a fine-tuning: with health, probe, checkpoints, a guard, a gradient cache and experts."""
    corpus, tokens = Place(str(folder / "corpus")), Place(str(folder / "tokens"))
    write_corpus(folder / "corpus")
    made = Artifact(corpus, {"fingerprint": "c", "result": {}})
    tokenise(TokensConfig(vocabulary_size=500, max_length=48, query_length=8), {"corpus": made}, tokens)
    started = {"backbone": TINY, "objective": {"name": "retromae"}, "corpus": str(corpus), "train": TRAIN | LOOKS}
    guarded = {"backbone": TINY, "objective": {"name": "mlm"}, "self_distillation": 1.0, "train": TRAIN | LOOKS}
    experts = {"name": "tiny", "dropout": 0.1, "experts": "all"}
    cached = {"kind": "finetune", "objective": {"name": "contrastive"}, "corpus": str(corpus), "per_query": 1}
    specs: dict[str, dict[str, Any]] = {
        "retromae": started,
        "mlm, guarded": guarded,
        "laprador, experts": {"backbone": experts, "objective": {"name": "laprador"}, "train": TRAIN},
        "contrastive, cached": {"backbone": TINY, **cached, "train": TRAIN | {"micro_batch": 3}},
    }
    for name, fields in specs.items():
        yield Case(
            "training", name, partial(losses, tokens, folder, name, fields), LOSSES, None, Where(torch.device("cpu"))
        )


def losses(tokens: Place, folder: Path, name: str, fields: dict[str, Any], where: Where) -> Numbers:
    """The loss and the gradient's norm of each step; a guarded run starts where the first one ended."""
    out = folder / where.device.type
    if "self_distillation" in fields:
        fields = {**fields, "start": str(out / "retromae")}
    run_training(
        setup_of(spec_of(tokens, out / name, **fields)),
        Place(str(out / name)),
        local_reader,
        _ignore,
        device=where.device,
    )
    rows = trace_of(out / name)
    return {key: torch.tensor([row[key] for row in rows]) for key in ("loss", "gradient_norm")}


def _ignore(done: int, values: dict[str, float]) -> None:
    """Takes no notice of a report."""


def main(kinds: list[str]) -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, pretended() as device:
        folder = Path(name)
        (folder / "trained").mkdir()
        cases = [*all_cases(folder), *trainings(folder / "trained")]
        wanted = [replace(case, bf16=None) for case in cases if not kinds or case.kind in kinds]
        rows = list(compare(wanted, device))
    print(report(rows))
    return 0 if rows and all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
