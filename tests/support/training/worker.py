"""One worker of a training run as a process of its own: `python worker.py JSON`. The tests start, join and kill it.

JSON: kind, objective (fields), train (fields), backbone (fields), PLACES, out; rank, size, meet (a file through which
the workers find each other); kill_at (steps done after which the process kills itself).
"""

import json
import os
import signal
import sys

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

PLACES = ("tokens", "spans", "pseudo_queries", "corpus", "start", "resume")


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
    more = {"stop_after": spec.get("stop_after"), "self_distillation": spec.get("self_distillation", 0.0)}
    return PretrainSetup(**shared, **more, rows=rows, resume=places.get("resume"), corpus=places.get("corpus"))


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
