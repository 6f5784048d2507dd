"""A fine-tuning step against sentence-transformers', data pipelines included.

    python -m tests.speed.finetuning [contrastive | splade] [--length 256] [--rounds 3] [--cpu-time] [--memory]

contrastive    dot products of unit [CLS] vectors over 0.05, in-batch negatives; SentenceTransformerTrainer with
               MultipleNegativesRankingLoss. Goal: 1.2 times its steps a second
splade         the lexical view and FLOPS of both sides; SparseEncoderTrainer with SpladeLoss. Goals: 1.3 times its
               steps a second, a third of its peak memory

Same starting weights (`mini`, V = 30,522, dropout 0.1), same texts (queries and passages of SQuAD, cut to --length
tokens, 32 of each a step), fp32, AdamW, gradient norm clipped; runs alternate in one process, and medians of their
steps are compared. Here texts are tokenised before training, once for all stages; there by the trainer's collator.
Memory is the peak of a process of its own, above what it holds before the first step. Needs `datasets` and
`accelerate`, the training extra of sentence-transformers, which midmask does not depend on.
"""

import argparse
import gzip
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.representation import Representation
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.regularisers import Regularisers
from midmask.tokens import TokensConfig, tokenise
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.run import local_reader, run_training
from midmask.training.setup import FinetuneSetup
from midmask.vocabulary import Vocabulary

SQUAD = Path(__file__).resolve().parents[3] / "shared" / "data" / "squad"
PAIRS, BATCH, WARM_UP = 8000, 32, 3
SPEED = {"contrastive": 1.2, "splade": 1.3}
MEMORY = 3.0
SPARSE = Regularisers(query="flops", passage="flops", lambda_query=5e-5, lambda_passage=1e-3, ramp=1 / 3)

Clock = Callable[[], float]
Run = Callable[[str, Path, int, Clock], list[float]]


def prepare(folder: Path, length: int) -> None:
    """Tokens of texts cut to a length, a model folder, the corpus that both learn from, and its pairs as texts."""
    passages, queries = read_texts("corpus"), read_texts("queries")
    judged = [line.split("\t") for line in (SQUAD / "qrels" / "train.tsv").read_text().splitlines()[1:]]
    chosen = judged[:: len(judged) // PAIRS][:PAIRS]
    query_ids, doc_ids, _ = (list(column) for column in zip(*chosen, strict=True))
    asked = {"query_id": query_ids, "text": [queries[query] for query in query_ids]}
    columns = {"anchor": asked["text"], "positive": [passages[doc] for doc in doc_ids]}
    (folder / "pairs.json").write_text(json.dumps(columns))
    corpus = folder / "corpus"
    (corpus / "docs").mkdir(parents=True)
    docs = {"doc_id": list(passages), "title": [""] * len(passages), "text": list(passages.values())}
    pq.write_table(pa.table(docs), corpus / "docs" / "00000.parquet", row_group_size=2048)
    pq.write_table(pa.table(asked), corpus / "queries.parquet")
    grades = pa.array([1] * len(query_ids), pa.int32())
    qrels = {"split": ["train"] * len(query_ids), "query_id": query_ids, "doc_id": doc_ids, "grade": grades}
    pq.write_table(pa.table(qrels), corpus / "qrels.parquet")
    config = TokensConfig(vocabulary_size=30522, max_length=length, query_length=length)
    tokenise(config, {"corpus": Artifact(Place(str(corpus)), {})}, Place(str(folder / "tokens")))
    tokenizer = folder / "tokens" / "tokenizer"
    backbone = build_backbone(BackboneConfig(name="mini"), Vocabulary.of(tokenizer), seed=0)
    backbone.save(folder / "start" / "model", tokenizer)
    (folder / "length").write_text(str(length))


def length_of(folder: Path) -> int:
    return int((folder / "length").read_text())


def read_texts(name: str) -> dict[str, str]:
    with gzip.open(SQUAD / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {row["_id"]: row["text"] for row in map(json.loads, lines)}


def midmask_run(kind: str, folder: Path, steps: int, clock: Clock) -> list[float]:
    """The time at the end of each step."""
    times: list[float] = []
    is_splade = kind == "splade"
    places = {name: Place(str(folder / name)) for name in ("tokens", "corpus", "start")}
    length = length_of(folder)
    setup = FinetuneSetup(
        objective=Contrastive.Config(regularisers=SPARSE) if is_splade else Contrastive.Config(temperature=0.05),
        train=TrainConfig(steps=steps, batch_size=BATCH, learning_rate=5e-5, decay=0.9, log_every=1),
        backbone=BackboneConfig(name="mini"),
        tokens=places["tokens"],
        start=places["start"],
        rows=PairExamples(
            places["tokens"], places["corpus"], "train", "benchmark", query_length=length, passage_length=length
        ),
        representation=Representation(dense=None, lexical="splade") if is_splade else Representation(normalise=True),
    )
    with tempfile.TemporaryDirectory() as out:
        run_training(setup, Place(out), local_reader, lambda *_: times.append(clock()), device=torch.device("cpu"))
    return times


def sentence_transformers_run(kind: str, folder: Path, steps: int, clock: Clock) -> list[float]:
    """The time at the end of each step."""
    from sentence_transformers.sentence_transformer.trainer import SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments
    from sentence_transformers.sparse_encoder import SparseEncoderTrainer, SparseEncoderTrainingArguments
    from transformers import TrainerCallback

    times: list[float] = []

    class Stopwatch(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(clock())

    dataset = importlib.import_module("datasets").Dataset.from_dict(json.loads((folder / "pairs.json").read_text()))
    is_splade = kind == "splade"
    model, loss = (splade_parts if is_splade else dense_parts)(folder / "start" / "model", length_of(folder))
    arguments = SparseEncoderTrainingArguments if is_splade else SentenceTransformerTrainingArguments
    with tempfile.TemporaryDirectory() as out:
        wanted = arguments(
            output_dir=out,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            learning_rate=5e-5,
            weight_decay=0.01,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = SparseEncoderTrainer if is_splade else SentenceTransformerTrainer
        trainer(model=model, args=wanted, train_dataset=dataset, loss=loss, callbacks=[Stopwatch()]).train()
    return times


def dense_parts(folder: Path, length: int) -> tuple[Any, Any]:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    first = Transformer(str(folder), max_seq_length=length)
    modules = [first, Pooling(first.get_embedding_dimension(), pooling_mode="cls"), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu")
    return model, MultipleNegativesRankingLoss(model, scale=20.0)


def splade_parts(folder: Path, length: int) -> tuple[Any, Any]:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
    from sentence_transformers.sparse_encoder.modules import SpladePooling, Transformer

    first = Transformer(str(folder), max_seq_length=length, transformer_task="fill-mask")
    model = SparseEncoder(modules=[first, SpladePooling(pooling_strategy="max")], device="cpu")
    ranking = SparseMultipleNegativesRankingLoss(model)
    weights = {"query_regularizer_weight": SPARSE.lambda_query, "document_regularizer_weight": SPARSE.lambda_passage}
    return model, SpladeLoss(model, loss=ranking, **weights)


SIDES: dict[str, Run] = {"midmask": midmask_run, "sentence-transformers": sentence_transformers_run}


def compare_speed(kind: str, folder: Path, steps: int, rounds: int, clock: Clock) -> None:
    """Prints both medians and their ratio."""
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name, run in SIDES.items():
            times = run(kind, folder, steps, clock)[WARM_UP:]
            seconds[name] += [after - before for before, after in pairwise(times)]
    ours, theirs = (median(values) for values in seconds.values())
    print(
        f"{kind}: midmask {ours * 1000:.0f} ms a step, sentence-transformers {theirs * 1000:.0f} ms; "
        f"{theirs / ours:.2f} times as fast (goal {SPEED[kind]})",
        flush=True,
    )


def compare_memory(kind: str, folder: Path, steps: int) -> None:
    """Prints the peak of a process for each side, and their ratio."""
    peaks = {}
    for name in SIDES:
        command = [sys.executable, "-m", "tests.speed.finetuning", kind, "--steps", str(steps)]
        done = subprocess.run([*command, "--peak-of", name, str(folder)], check=True, capture_output=True, text=True)
        peaks[name] = int(done.stdout.split()[-1])
    ours, theirs = peaks.values()
    print(
        f"{kind}: midmask {ours / 1e6:.0f} MB above its start, sentence-transformers {theirs / 1e6:.0f} MB; "
        f"{theirs / ours:.1f} times as much (goal {MEMORY})",
        flush=True,
    )


def peak_of(name: str, kind: str, folder: Path, steps: int) -> int:
    """Bytes that a run takes at most, above what the process has before it."""
    before = resident("VmRSS")
    SIDES[name](kind, folder, steps, time.perf_counter)
    return resident("VmHWM") - before


def resident(field: str) -> int:
    """Bytes of this process in memory: VmRSS now, VmHWM at most."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=sorted(SPEED), default="contrastive")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help=f"of each run; the first {WARM_UP} warm up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--length", type=int, default=256, help="tokens that texts are cut to")
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: processor time of one thread")
    parser.add_argument("--memory", action="store_true", help="compare peaks of memory instead of times")
    parser.add_argument("--peak-of", nargs=2, metavar=("SIDE", "FOLDER"), help="used by --memory")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.cpu_time or options.memory or options.peak_of else options.threads)
    if options.peak_of:
        name, prepared = options.peak_of
        print(peak_of(name, options.kind, Path(prepared), options.steps))
        return
    clock = time.process_time if options.cpu_time else time.perf_counter
    with tempfile.TemporaryDirectory(prefix="mm", dir="/tmp") as made:
        folder = Path(made)
        prepare(folder, options.length)
        if options.memory:
            compare_memory(options.kind, folder, options.steps)
        else:
            compare_speed(options.kind, folder, options.steps, options.rounds, clock)


if __name__ == "__main__":
    main()
