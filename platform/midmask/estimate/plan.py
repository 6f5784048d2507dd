"""What a plan needs, step by step: hours, memory, bytes in the storage. Finished steps, and steps that only they need,
cost nothing.

Hours of a model are its FLOPs over the pace that finished trainings in the storage reached, by the same method first,
if this machine is asked about and there are any; else over the device's rate. Other steps read, index and score texts
at the rates of a CPU core that are stated here and in `experiment.kinds`.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.estimate.devices import Device, Shape, this_machine
from midmask.estimate.trainings import (
    ModelSize,
    Training,
    model_size,
    pair_tokens,
    row_tokens,
    trained_size,
)
from midmask.estimate.volumes import (
    PAIR_BYTES,
    RANKED_BYTES,
    Volumes,
    collection_of,
    dense_bytes,
    list_length,
    read_and_written,
)
from midmask.experiment.graph import Graph, Step
from midmask.experiment.kinds import KINDS
from midmask.experiment.searching import represented_by
from midmask.experiment.steps import PretrainConfig
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig
from midmask.training.checkpoint import KEPT
from midmask.training.rehearsal import MOMENTS, WEIGHT


@dataclass(frozen=True)
class Charge:
    """The cost of one step. Sizes are in bytes."""

    step: Step
    work_seconds: float  # by the clock; where trainings run side by side, its part of the cluster's time
    bytes: float  # of the artifact in the storage
    tokens: float = 0.0  # that models read
    peak_bytes: float = 0.0  # in the storage while the step runs, besides `bytes`
    training: Training | None = None
    host: float = 0.0  # of the machine's memory: the index of all passages
    index: float = 0.0  # of each GPU's memory

    @property
    def hours(self) -> float:
        """With its start."""
        return (START_S + self.work_seconds) / 3600


@dataclass(frozen=True)
class Estimate:
    """The cost of all steps that are still to be computed."""

    shape: Shape
    workers: int  # of a training
    at_once: int  # trainings side by side
    charges: tuple[Charge, ...]
    cached: int  # number of finished steps
    volumes: tuple[str, ...]  # a line for each collection
    paces: int  # number of finished trainings that the pace is of
    free: int | None  # bytes on the storage's disk; None if it is no disk

    @property
    def total_hours(self) -> float:
        return sum(charge.hours for charge in self.charges)

    @property
    def peak_bytes(self) -> float:
        """The largest number of bytes in the storage at a time, beside those that were there before."""
        return sum(charge.bytes for charge in self.charges) + max(
            (charge.peak_bytes for charge in self.charges), default=0.0
        )


def estimate(
    targets: Iterable[Step],
    storage: Place,
    shape: Shape | None = None,
    *,
    workers: int | None = None,
    per_training: int | None = None,
    side_by_side: bool = False,
) -> Estimate:
    """The cost of these steps and of the unfinished steps that they need.

    Args:
        shape: of the cluster; none: this machine, at the pace of finished steps in the storage.
        workers: trainings at once if `side_by_side`, as in sweeps and benchmarks, else processes of a training; none:
            as many as there are GPUs, or one where there is none (side by side: as there are cores).
        per_training: processes of a training, each with one device, or core, to itself; none: one if `side_by_side`,
            else as `workers` says.
    """
    cluster = shape or this_machine()
    paces = [] if shape else list(finished_trainings(storage, cluster.device))
    cluster = replace(cluster, device=apply_pace(cluster.device, paces))
    devices = cluster.count if cluster.device.kind == "cuda" or side_by_side else 1
    count = per_training or (1 if side_by_side else workers or devices)
    at_once = (workers or max(1, devices // count)) if side_by_side else 1
    targets = list(targets)
    graph = Graph.left_in(storage, targets)
    needed = {step.fingerprint: step for target in targets for step in target.upstream()}
    left = [step for name, step in needed.items() if name in graph.unfinished]  # inputs first
    charges = Charges(storage, cluster, count, at_once, paces)
    costs = tuple(map(charges.of, left))
    facts = dict.fromkeys(fact for step in left if (fact := _volume(charges.volumes, step)))
    free = shutil.disk_usage(_nearest_folder(storage)).free if storage.is_path else None
    return Estimate(cluster, count, at_once, costs, len(graph.finished), tuple(facts), len(paces), free)


def _volume(volumes: Volumes, step: Step) -> str:
    """The size of a step's collection and the source of that number; empty if the step has no collection."""
    if (corpus := collection_of(step)) is None:
        return ""
    volume = volumes.corpus(corpus)
    name = getattr(corpus.config, "name", "") or " + ".join(getattr(corpus.config, "names", ()))
    return f"{name}: {volume.passages:,} passages, {volume.queries:,} queries, {volume.source}"


def _nearest_folder(storage: Place) -> Path:
    """The storage's folder, or its nearest parent that exists."""
    folder = Path(storage.uri).absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


LONG_ENOUGH = 15.0
"""Seconds; a shorter training tells mostly how long it takes to begin, which on Ray is 3 to 5 s."""
LOOKED_AT = 8
"""Finished trainings of each kind that are read: the first by fingerprint, which is a random sample."""


@dataclass(frozen=True)
class Pace:
    """The FLOP/s of a device that a finished training reached; on CPUs of a core, in fp32."""

    method: str
    rate: float


def finished_trainings(storage: Place, device: Device) -> Iterator[Pace]:
    """The paces of trainings on devices of this kind that are long enough and can still be read."""
    for name in (kind.name for kind in KINDS.values() if kind.trains):
        for fingerprint in (storage / name).names()[:LOOKED_AT]:
            with suppress(KeyError, ValueError, OSError, UserError):  # of an older form, or its model is gone
                done = load(storage / name / fingerprint)
                if done.result["device"] == device.kind and float(done.result["seconds"]) >= LONG_ENOUGH:
                    yield _pace_of(name, done, device)


def _pace_of(name: str, done: Artifact, device: Device) -> Pace:
    config: Any = KINDS[name].config.model_validate(done.record["config"])
    steps, workers = done.result["steps"], done.result["workers"]
    size = trained_size(config, BackboneConfig(name=str((done.place / "model").local())), 0)
    tokens = done.result["tokens"] / (steps * config.train.batch_size)
    trained = Training(config, size, tokens, steps, device.kind)
    devices = workers * (done.result["threads"] if device.kind == "cpu" else 1)
    devices *= device.bf16_gain if trained.bf16 else 1.0
    return Pace(method_of(config), trained.flops / (done.result["seconds"] * devices))


def method_of(config: Any) -> str:
    """The name of what a training minimises."""
    return str(config.objective.name if isinstance(config, PretrainConfig) else config.loss.name)


def apply_pace(device: Device, paces: Sequence[Pace]) -> Device:
    """The device at the median of these paces, since some trainings ran beside other work; the device itself if there
    are none."""
    return replace(device, utilisation=median(pace.rate for pace in paces) / device.peak) if paces else device


def encoding_flops(size: ModelSize, *, lexical: bool) -> float:
    """FLOPs of a token; a lexical view weighs all words at it."""
    return 2.0 * (size.behind + size.output * lexical)


START_S = 0.5
"""Seconds of each step beside its work: its process, its files, its tracked run."""
VOCABULARY_PER_SECOND = 4_000
"""Passages from which a core trains a tokenizer in a second."""
POSTINGS_PER_SECOND = 1e8
"""Entries of a lexical index that a core adds up in a second."""
CODES_PER_SECOND = 5e9
"""Products of two 8-bit numbers of token vectors that a core adds up in a second, unpacking and maxima included."""
BM25_PASSAGES_PER_SECOND = 1.7e8
"""Passages times queries that a core scores in a second: measured with 2,048 questions over a million passages
(docs/results/benchmarks.md)."""
INDEXED_PER_SECOND = 2_000
"""Vectors of width 384 that a core adds to a faiss index in a second, learning its centres included: IVF4096,Flat of a
million vectors, one thread."""
ENTRY_BYTES, WORD_BYTES = 8, (32 + 15) / 8
"""Bytes of an entry of a lexical vector: in memory, its word and its weight; as it is stored."""
BERT_ENTRIES, LONGEST_PAIR = 30_522, 512
"""Of a teacher's tokenizer, and tokens that it reads, where it comes from elsewhere."""
UNPRUNED = {"passages": 200, "queries": 30}
"""Words of a text's lexical view, where nothing but the regularisers limits them."""


@dataclass(frozen=True)
class Encoding:
    """The texts of one side that are encoded."""

    count: int
    tokens: float  # mean
    words: float  # of a text's lexical view
    size: ModelSize
    representation: Representation

    @property
    def width(self) -> int:
        """Numbers of a dense vector."""
        return self.representation.width or self.size.width

    @property
    def bytes(self) -> float:
        """Of a text's vectors in the storage."""
        if self.representation.tokens is not None:
            return (self.representation.tokens + 4) * self.tokens + 4
        dense = 4 * self.width if self.representation.dense else 0
        return dense + (WORD_BYTES * self.words if self.representation.lexical else 0)


def _adopted(folder: BackboneConfig) -> BackboneConfig:
    """The backbone of a folder; BERT's base size if its family is only searched with, not trained."""
    try:
        model_size(folder, 0)
    except UserError:
        return BackboneConfig(name="base")
    return folder


class Charges:
    """Computes the cost of steps on a cluster."""

    def __init__(self, storage: Place, shape: Shape, workers: int, at_once: int, paces: Sequence[Pace] = ()) -> None:
        self.volumes = Volumes(storage)
        self._shape, self._workers, self._at_once, self._paces = shape, workers, at_once, paces

    def of(self, step: Step) -> Charge:
        by_name = {"encode": self._encode, "index": self._index, "search": self._search, "search_sample": self._search}
        by_name |= {"score": self._score, "initial": self._initial, "bm25": self._bm25}
        return self._training(step) if step.kind.trains else by_name.get(step.name, self._on_cores)(step)

    def encoder(self, step: Step) -> tuple[BackboneConfig, int]:
        """The encoder that a step makes or starts from, and the entries of its tokenizer."""
        if step.name == "adopt":
            return _adopted(BackboneConfig(name=step.config.folder)), BERT_ENTRIES  # type: ignore[attr-defined]
        if step.name == "untuned":
            return self.encoder(step.inputs["start"])
        backbone: BackboneConfig = step.config.backbone  # type: ignore[attr-defined]
        if "start" not in step.inputs:
            return backbone, self.volumes.texts(step.inputs["tokens"]).vocabulary
        name, vocabulary = self.encoder(step.inputs["start"])
        return backbone.model_copy(update={"name": name.name, "fresh": name.fresh}), vocabulary

    def _training(self, step: Step) -> Charge:
        config: Any = step.config
        device, steps = self._shape.device, step.optimiser_steps - (step.resume.optimiser_steps if step.resume else 0)
        size = trained_size(config, *self.encoder(step))
        tokens = row_tokens(step, self.volumes)
        trained = Training(config, size, tokens, steps, device.kind)
        paces = [pace for pace in self._paces if pace.method == method_of(config)]
        devices = self._workers * self._at_once if device.kind == "cuda" else self._shape.count
        stays = WEIGHT + (WEIGHT + MOMENTS) * isinstance(config, PretrainConfig)  # the state to go on from
        return Charge(
            step,
            trained.flops / (devices * apply_pace(device, paces).rate(bf16=trained.bf16)),
            tokens=steps * config.train.batch_size * tokens,
            bytes=stays * size.parameters + step.optimiser_steps * (60 + 4 * config.train.batch_size),  # and a trace
            peak_bytes=(KEPT + 1) * (WEIGHT + MOMENTS) * size.parameters,
            training=trained,
        )

    def _initial(self, step: Step) -> Charge:
        return Charge(step, 0.0, bytes=WEIGHT * model_size(*self.encoder(step)).parameters)

    def _encoding(self, step: Step) -> Encoding:
        """The vectors of a step `encode` or `sample`."""
        config: Any = step.config
        if step.name == "sample":
            whole = self._encoding(step.inputs["queries"])
            return replace(whole, count=min(whole.count, config.queries))
        texts, model = self.volumes.texts(step.inputs["tokens"]), step.inputs["model"]
        representation, passages = represented_by(model), config.side == "passages"
        count = texts.volume.passages if passages else texts.volume.of_split(config.split, config.max_queries)
        tokens = min(texts.tokens if passages else texts.query_tokens, config.length or texts.tokens)
        words = representation.terms("passage" if passages else "query") or UNPRUNED[config.side]
        return Encoding(count, tokens, words, model_size(*self.encoder(model)), representation)

    def _encode(self, step: Step) -> Charge:
        encoded, bf16 = self._encoding(step), step.config.precision == "bf16"  # type: ignore[attr-defined]
        tokens = encoded.count * encoded.tokens
        flops = tokens * encoding_flops(encoded.size, lexical=encoded.representation.lexical is not None)
        seconds = flops / (self._shape.count * self._shape.device.rate(bf16=bf16))
        return Charge(step, seconds, tokens=tokens, bytes=encoded.count * encoded.bytes)

    def _index(self, step: Step) -> Charge:
        """One process builds all of an index in the host's memory."""
        config: Any = step.config
        encoded = self._encoding(step.inputs["passages"])
        size = encoded.count * dense_bytes(config.index, encoded.width)
        return Charge(step, encoded.count / INDEXED_PER_SECOND / config.threads, bytes=size, host=size)

    def _search(self, step: Step) -> Charge:
        """Dense vectors are shared by the GPUs of the cluster; words and token vectors are searched by the host's
        cores. A search of a sample holds a part of the passages at a time.
        """
        config: Any = step.config
        passages, queries = (self._encoding(step.inputs[side]) for side in ("passages", "queries"))
        representation, pairs = passages.representation, queries.count * passages.count
        dense = representation.dense is not None and config.views != "lexical"
        lexical = representation.lexical is not None and config.views != "dense"
        width = (config.width or passages.width) * dense
        postings = lexical * pairs * passages.words * queries.words / passages.size.vocabulary
        listed = list_length(step.inputs["candidates"]) if "candidates" in step.inputs else passages.count
        products = queries.count * listed * queries.tokens * passages.tokens * (representation.tokens or 0)
        on_cores = postings / POSTINGS_PER_SECOND + products / CODES_PER_SECOND
        rate = self._shape.count * self._shape.device.rate(bf16=False)
        vector = dense_bytes(config.index, width) if dense else 0.0
        on_gpu = self._shape.device.kind == "cuda" and "HNSW" not in config.index and step.name == "search"
        return Charge(
            step,
            2.0 * pairs * width / rate + on_cores / self._shape.cores,
            bytes=RANKED_BYTES * queries.count * min(config.depth, passages.count),
            host=passages.count * (vector + lexical * ENTRY_BYTES * passages.words) * (step.name == "search"),
            index=on_gpu * passages.count * vector / max(1, self._shape.count // self._at_once),
        )

    def _score(self, step: Step) -> Charge:
        """Texts are those of the corpus, cut as the teacher reads them: where BM25 lists passages for a teacher from
        elsewhere, nothing was tokenised before it.
        """
        config: Any = step.config
        lists = [source for name, source in step.inputs.items() if name.startswith(("negatives", "ranked"))]
        whole = TokensConfig(max_length=LONGEST_PAIR, query_length=LONGEST_PAIR)
        texts = self.volumes.texts(Step("tokenise", whole, {"corpus": step.inputs["corpus"]}))
        limits = (getattr(source.config, "max_queries", None) for source in lists)
        queries = min(texts.volume.of_split(config.split, most) for most in limits)
        listed = sum(list_length(source) for source in lists)
        passage = min(texts.tokens, config.passage_length or LONGEST_PAIR)
        query = min(config.query_length, texts.query_tokens)
        pairs, pair = queries * (1 + listed), pair_tokens(query, passage, LONGEST_PAIR)
        flops = pairs * pair * encoding_flops(model_size(*self.encoder(step.inputs["teacher"])), lexical=False)
        seconds = flops / (self._shape.count * self._shape.device.rate(bf16=False))
        return Charge(step, seconds, tokens=pairs * pair, bytes=PAIR_BYTES * pairs)

    def _bm25(self, step: Step) -> Charge:
        queries, size = read_and_written(step, self.volumes)
        passages = self.volumes.corpus(step.inputs["corpus"]).passages
        seconds = passages * queries / BM25_PASSAGES_PER_SECOND / min(self._workers, self._shape.cores)
        return Charge(step, seconds, bytes=size)

    def _on_cores(self, step: Step) -> Charge:
        config: Any = step.config
        texts, size = read_and_written(step, self.volumes)
        cores = 1 if step.kind.runs in ("driver", "task", "threads") else self._shape.cores
        seconds = texts / (step.kind.texts_per_second or float("inf")) / cores
        if step.name == "tokenise" and config.tokenizer is None and "like" not in step.inputs:
            read = min(self.volumes.texts(step).volume.passages, config.vocabulary_passages)
            seconds += read / VOCABULARY_PER_SECOND
        return Charge(step, seconds, bytes=size)
