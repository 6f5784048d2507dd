"""Whole trainings, data pipelines included, on the documentation of installed packages, against
sentence-transformers'.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import torch

from midmask.corpora.assemble import prepare
from midmask.corpora.config import CorpusConfig
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.encoders.representation import Representation
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from midmask.text.vocabulary import Vocabulary
from midmask.training.examples import local_reader
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.run import run_training
from midmask.training.setup import FinetuneSetup
from tests.benchmarks.harness import Bench
from tests.support.retrieve.collection import made, texts_of

LENGTH, BATCH, WARM_UP = 128, 32, 3
Pairs = list[tuple[str, str]]


@contextmanager
def collection(bench: Bench) -> Iterator[dict[str, Artifact]]:
    """Corpus and tokens, and below `start/model` an encoder of random weights."""
    with tempfile.TemporaryDirectory(prefix="mm", dir="/tmp") as name:
        root, packages = Place(name), bench.size(("numpy", "scipy", "sklearn"), ("numpy",))
        config = CorpusConfig(name="pydocs", packages=packages)
        corpus = made(prepare, config, {}, root / "corpus")
        words = TokensConfig(vocabulary_size=bench.size(30522, 2000), max_length=LENGTH, query_length=LENGTH)
        tokens = made(tokenise, words, {"corpus": corpus}, root / "tokens")
        tokenizer = Path(name) / "tokens" / "tokenizer"
        backbone = build_backbone(BackboneConfig(name=bench.size("mini", "tiny")), Vocabulary.of(tokenizer), seed=0)
        backbone.save(Path(name) / "start" / "model", tokenizer)
        yield {"corpus": corpus, "tokens": tokens, "start": Artifact(root / "start", {})}


def contrastive(bench: Bench) -> None:
    """In-batch contrast of unit [CLS] vectors against MultipleNegativesRankingLoss, 32 pairs of up to 128 tokens."""
    count, taken = bench.size(12, 6), dict[str, list[float]](ours=[], theirs=[])
    with collection(bench) as inputs:
        pairs = pairs_of(inputs["corpus"])
        for _ in range(bench.rounds):
            for name, times in (
                ("ours", midmask_times(bench, inputs, count)),
                ("theirs", sentence_transformers_times(bench, inputs, pairs, count)),
            ):
                taken[name] += [after - before for before, after in pairwise(times[WARM_UP - 1 :])]
    ours, theirs = (1e3 * median(values) for values in taken.values())
    bench.ratio("a step", ours, theirs, "ms", goal=1.2, rival="sentence-transformers")


def pairs_of(corpus: Artifact) -> Pairs:
    queries, qrels = (pq.read_table((corpus.place / f"{name}.parquet").uri) for name in ("queries", "qrels"))
    asked = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    docs = texts_of(corpus, titles=True)
    judged = zip(*(qrels[name].to_pylist() for name in ("split", "query_id", "doc_id")), strict=True)
    return [(asked[query], docs[doc]) for split, query, doc in judged if split == "train"]


def midmask_times(bench: Bench, inputs: dict[str, Artifact], count: int) -> list[float]:
    """The time at the end of each step."""
    times: list[float] = []
    corpus, tokens = inputs["corpus"].place, inputs["tokens"].place
    setup = FinetuneSetup(
        objective=Contrastive.Config(temperature=0.05), tokens=tokens, start=inputs["start"].place,
        train=TrainConfig(steps=count, batch_size=BATCH, learning_rate=5e-5, log_every=1, threads=bench.threads),
        backbone=BackboneConfig(name=bench.size("mini", "tiny")),
        rows=PairExamples(tokens, corpus, "train", "benchmark", query_length=LENGTH, passage_length=LENGTH),
        representation=Representation(normalise=True),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as out:
        tick = lambda *_: times.append(bench.clock())  # noqa: E731
        run_training(setup, Place(out), local_reader, tick, device=torch.device("cpu"))
    return times


def sentence_transformers_times(bench: Bench, inputs: dict[str, Artifact], pairs: Pairs, count: int) -> list[float]:
    """The time at the end of each step: as its trainer does them, texts tokenised by the collator."""
    torch.set_num_threads(bench.threads)
    model, loss = dense_parts(Path(inputs["start"].place.uri) / "model")
    optimiser, times = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True), []
    model.train()
    for number in range(count):
        batch = [pairs[(number * BATCH + row) % len(pairs)] for row in range(BATCH)]
        features = [model.preprocess(list(texts)) for texts in zip(*batch, strict=True)]
        optimiser.zero_grad()
        loss(features, torch.zeros(BATCH)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        times.append(bench.clock())
    return times


def dense_parts(folder: Path) -> tuple[Any, Any]:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    first = Transformer(str(folder), max_seq_length=LENGTH)
    modules = [first, Pooling(first.get_embedding_dimension(), pooling_mode="cls"), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu")
    return model, MultipleNegativesRankingLoss(model, scale=20.0)
