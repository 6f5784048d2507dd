"""The cost of each kind of step: tokens, FLOPs or seconds of a CPU core, memory of a device, bytes in the storage.

A training's work follows the mean length of its texts, its memory the longest.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from midmask.encoders.backbone import BackboneConfig
from midmask.errors import UserError
from midmask.estimate.counting import Row, count_encoding, count_scoring
from midmask.estimate.rates import (
    BM25_ID_BYTES,
    BM25_SHARD_BYTES,
    EF_CONSTRUCTION,
    INDEX_FLOPS_PER_SECOND,
    PAIR_BYTES,
    RANKED_BYTES,
    bm25_seconds,
    bm25_size,
    checkpoint_bytes,
    count_pairs,
    dense_bytes,
    index_bytes,
    index_flops,
    maxsim_seconds,
    read_and_written,
    training_bytes,
    vector_bytes,
    vocabulary_seconds,
)
from midmask.estimate.sizes import Sizes, encoder_sizes
from midmask.estimate.trainings import Lengths, Memory, Training, fit, pair_tokens, training
from midmask.estimate.volumes import QUERY_TOKENS, TextVolumes, Volumes
from midmask.experiment.graph import Step
from midmask.experiment.searching import represented_by
from midmask.experiment.steps import FinetuneConfig, PretrainConfig
from midmask.queries.query_model import GeneratorConfig
from midmask.retrieve.search import PART
from midmask.store.place import Place
from midmask.teacher.teach import TeachConfig
from midmask.text.tokens import ROW_GROUP, TokensConfig


def mean_lengths(step: Step, volumes: Volumes) -> Lengths:
    """Mean lengths of a step's texts, read from what is finished or from what is known of the collection."""
    config: Any = step.config
    texts = volumes.texts(step.inputs["tokens"])
    if isinstance(config, FinetuneConfig | GeneratorConfig):
        return Lengths(min(texts.tokens, config.passage_length), min(texts.query_tokens, config.query_length))
    if isinstance(config, TeachConfig):
        return Lengths(texts.tokens, min(texts.query_tokens, config.query_length))
    longest = longest_lengths(step)
    if "spans" in step.inputs:
        done = volumes.find_finished(step.inputs["spans"])
        span = done.result["tokens_per_span"] if done else min(longest.passage, texts.tokens / 2 + 1)
        return Lengths(span, span)
    if config.objective.reads().rows == "packed":
        return Lengths(longest.passage, 0.0)
    return Lengths(min(texts.tokens, longest.passage), min(longest.query, QUERY_TOKENS))


def longest_lengths(step: Step) -> Lengths:
    """Maximum number of tokens of a row's texts."""
    config: Any = step.config
    if isinstance(config, FinetuneConfig | GeneratorConfig):
        return Lengths(config.passage_length, config.query_length)
    if isinstance(config, TeachConfig):
        return Lengths(config.loss.max_length, config.query_length)
    if "spans" in step.inputs:
        span = step.inputs["spans"].config.span_length  # type: ignore[attr-defined]
        return Lengths(span, span)
    passage = config.excerpt or step.inputs["tokens"].config.max_length  # type: ignore[attr-defined]
    if (queries := step.inputs.get("pseudo_queries")) is None:
        return Lengths(passage, QUERY_TOKENS)
    made = queries.inputs.get("pairs", queries)  # of which a filter may have kept a part
    return Lengths(passage, made.config.max_length)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Charge:
    """The cost of one step. Sizes are in bytes, times in seconds."""

    step: Step
    bytes: float  # of the artifact in the storage
    tokens: float = 0.0  # that models read
    flops: float = 0.0  # on devices
    core_seconds: float = 0.0  # of work that divides by the cores: all, or as `one_core` and `by_workers` say
    alone_seconds: float = 0.0  # of work on one core, before the others can begin
    one_core: bool = False  # core_seconds are of one core
    by_workers: bool = False  # core_seconds divide by the workers, a core each
    peak_bytes: float = 0.0  # in the storage while the step runs, besides `bytes`
    memory: Memory | None = None  # of each device, for trainings
    training: Training | None = None
    fp32: bool = False  # the FLOPs are in float32, without tensor cores
    bf16: bool = False  # the step's config says bf16
    host: float = 0.0  # of the machine's memory, for indexes
    host_of_a_core: float = 0.0  # of the machine's memory, for each process of a step with a process a core
    index: float = 0.0  # of GPU memory, shared by all GPUs of the step


POSTINGS_PER_SECOND = 1e8
"""Entries of a lexical index that a core adds up in a second."""
LONGEST_PAIR = 512
"""Maximum number of tokens that an adopted teacher reads."""
BERT_ENTRIES = 30_522
UNPRUNED = {"passages": 200, "queries": 30}
"""Words of a text's lexical view, where nothing but the regularisers limits them."""


class Charges:
    """Computes the cost of steps, given the finished steps in a storage. `notes`: assumptions made.

    Args:
        kind: of the devices, cpu or cuda.
        workers: that a training is spread over.
        room: bytes of each worker's device, which decide how many rows go through a model at once; none: unlimited.
    """

    def __init__(self, storage: Place, kind: str, workers: int, room: float | None = None) -> None:
        self.volumes = Volumes(storage)
        self.notes: dict[str, None] = {}
        self._kind, self._workers, self._room = kind, workers, room

    def of(self, step: Step) -> Charge:
        by_name: dict[str, Callable[[Step], Charge]] = {
            "encode": self._encode,
            "index": self._index,
            "search": self._search,
            "search_sample": self._search_sample,
            "score": self._score,
            "initial": self._initial,
        }
        charge = self._training if step.kind.trains else by_name.get(step.name, self._on_cores)
        return charge(step)

    def encoder(self, step: Step) -> tuple[BackboneConfig, int]:
        """The encoder that a step makes or starts from, and the entries of its tokenizer."""
        if step.name == "adopt":
            return self._read_adopted(step), BERT_ENTRIES
        if step.name in ("untuned", "merge"):
            return self.encoder(step.inputs["start"])
        backbone: BackboneConfig = step.config.backbone  # type: ignore[attr-defined]
        if "start" not in step.inputs:
            return backbone, self.volumes.texts(step.inputs["tokens"]).vocabulary
        name, vocabulary = self.encoder(step.inputs["start"])
        return backbone.model_copy(update={"name": name.name, "fresh": name.fresh}), vocabulary

    def _read_adopted(self, step: Step) -> BackboneConfig:
        """The backbone of an adopted folder; BERT's base size if its family is only searched with, not trained."""
        folder = BackboneConfig(name=step.config.folder)  # type: ignore[attr-defined]
        try:
            encoder_sizes(folder, 0)
        except UserError as error:
            self.notes[f"{folder.name}: taken to be of BERT's base size ({error})"] = None
            return BackboneConfig(name="base")
        return folder

    def sizes(self, step: Step) -> Sizes:
        return encoder_sizes(*self.encoder(step))

    def _training(self, step: Step) -> Charge:
        config: Any = step.config
        encoder, vocabulary = self.encoder(step)
        done = step.resume.optimiser_steps if step.resume else 0
        lengths, steps = mean_lengths(step, self.volumes), step.optimiser_steps - done
        trained = training(config, encoder, vocabulary, lengths, steps, kind=self._kind)
        if not trained.counted.is_whole:
            name = config.objective.name if isinstance(config, PretrainConfig) else config.loss.name
            self.notes[f"{name}: its loss needs numbers to be counted, so only its encoder's work is estimated"] = None
        rows, parameters = config.train.batch_size, trained.counted.parameters
        trained, memory = fit(trained, longest_lengths(step), workers=self._workers, room=self._room, kind=self._kind)
        stays = isinstance(config, PretrainConfig)
        size = training_bytes(parameters, steps=step.optimiser_steps, rows=rows, state_stays=stays)
        return Charge(
            step,
            tokens=trained.rows * trained.tokens,
            flops=trained.flops(self._workers),
            bytes=size,
            peak_bytes=checkpoint_bytes(parameters),
            memory=memory,
            training=trained,
            bf16=config.train.precision == "bf16",
        )

    def _initial(self, step: Step) -> Charge:
        return Charge(step, bytes=4 * self.sizes(step).parameters)

    def _encoding_volumes(self, step: Step) -> tuple[TextVolumes, int, float, float]:
        """(texts, their number, tokens of each, words of each in a lexical view) of a step `encode` or `sample`."""
        if step.name == "sample":
            drawn: Any = step.config
            texts, count, tokens, terms = self._encoding_volumes(step.inputs["queries"])
            return texts, min(count, drawn.queries), tokens, terms
        config: Any = step.config
        texts = self.volumes.texts(step.inputs["tokens"])
        representation = represented_by(step.inputs["model"])
        passages = config.side == "passages"
        count = texts.volume.passages if passages else texts.volume.of_split(config.split, config.max_queries)
        if "asked" in step.inputs:
            count = count_pairs(step.inputs["asked"], self.volumes)
        tokens = min(texts.tokens if passages else texts.query_tokens, config.length or texts.tokens)
        terms = config.terms or representation.terms("passage" if passages else "query") or UNPRUNED[config.side]
        return texts, count, tokens, terms

    def _encode(self, step: Step) -> Charge:
        _, count, tokens, terms = self._encoding_volumes(step)
        model = step.inputs["model"]
        sizes, representation = self.sizes(model), represented_by(model)
        each = count_encoding(representation, *self.encoder(model), Row.of(tokens, 0).passage)
        return Charge(
            step,
            tokens=count * tokens,
            flops=count * each,
            fp32=step.config.precision != "bf16",  # type: ignore[attr-defined]
            bf16=step.config.precision == "bf16",  # type: ignore[attr-defined]
            bytes=count * vector_bytes(representation, sizes, terms=terms, tokens=tokens),
        )

    def _index(self, step: Step) -> Charge:
        """The cost of an index: one process builds all of it in the host's memory, beside its training vectors."""
        config: Any = step.config
        model = step.inputs["passages"].inputs["model"]
        _, count, _, _ = self._encoding_volumes(step.inputs["passages"])
        width = represented_by(model).width or self.sizes(model).width
        rows = min(count, config.training_rows or 0)
        size = dense_bytes(config.index, width)
        candidates = config.ef_construction or EF_CONSTRUCTION
        built = index_flops(config.index, width=width, passages=count, rows=rows, candidates=candidates)
        return Charge(
            step,
            core_seconds=built / INDEX_FLOPS_PER_SECOND / config.threads,
            one_core=True,
            host=count * size + 4 * rows * width,
            bytes=count * size,
        )

    def _search(self, step: Step) -> Charge:
        config: Any = step.config
        model = step.inputs["passages"].inputs["model"]
        sizes, representation = self.sizes(model), represented_by(model)
        _, passages, passage_tokens, passage_terms = self._encoding_volumes(step.inputs["passages"])
        _, queries, query_tokens, query_terms = self._encoding_volumes(step.inputs["queries"])
        dense = representation.dense is not None and config.views != "lexical"
        lexical = representation.lexical is not None and config.views != "dense"
        passage_terms = min(passage_terms, config.passage_terms or passage_terms)
        query_terms = min(query_terms, config.query_terms or query_terms)
        postings = queries * passages * query_terms * passage_terms / sizes.vocabulary
        width = (config.width or representation.width or sizes.width) * dense
        scored = min(passages, _list_length(step.inputs["candidates"])) if "candidates" in step.inputs else passages
        late = maxsim_seconds(queries * scored * query_tokens * passage_tokens, representation.tokens or 0)
        host, index = index_bytes(config.index, width=width, terms=passage_terms * lexical)
        return Charge(
            step,
            fp32=True,
            host=passages * host,
            index=passages * index if self._kind == "cuda" else 0.0,
            flops=2.0 * queries * passages * width,
            core_seconds=lexical * postings / POSTINGS_PER_SECOND + late,
            bytes=RANKED_BYTES * queries * min(config.depth, passages),
        )

    def _search_sample(self, step: Step) -> Charge:
        """The cost of a search that holds a part of the passages at once, and none on a GPU."""
        whole = self._search(step)
        _, passages, _, _ = self._encoding_volumes(step.inputs["passages"])
        return replace(whole, host=whole.host * min(1.0, ROW_GROUP * PART / passages), index=0.0)

    def _score(self, step: Step) -> Charge:
        config: Any = step.config
        mined = [source for name, source in step.inputs.items() if name.startswith("negatives")]
        ranked = [source for name, source in step.inputs.items() if name.startswith("ranked")]
        texts = self.volumes.texts(self._tokens(step))
        queries = texts.volume.of_split(
            config.split, min(filter(None, map(_most_queries, mined + ranked)), default=None)
        )
        listed = sum(map(_list_length, mined)) + sum(
            min(_list_length(source_list), config.depth or _list_length(source_list)) for source_list in ranked
        )
        teacher = step.inputs["teacher"]
        longest = teacher.config.loss.max_length if isinstance(teacher.config, TeachConfig) else LONGEST_PAIR
        passage = min(texts.tokens, config.passage_length or longest)
        pair = pair_tokens(min(config.query_length, texts.query_tokens), passage, config.max_length or longest)
        pairs = queries * (1 + listed)
        query = min(config.query_length, texts.query_tokens)
        row = Row.of(pair - query + 1, query)
        each = count_scoring(*self.encoder(teacher), row.context, row.passage)
        return Charge(step, tokens=pairs * pair, flops=pairs * each, fp32=True, bytes=PAIR_BYTES * pairs)

    def _tokens(self, step: Step) -> Step:
        """The nearest tokens upstream, which tell how long texts are. Where BM25 lists passages for a teacher from
        elsewhere nothing is tokenised before it: then tokens of the corpus, as many as its passages have.
        """
        tokenised = [source for source in step.upstream() if source.name == "tokenise"]
        whole = TokensConfig(max_length=LONGEST_PAIR, query_length=LONGEST_PAIR)
        return tokenised[-1] if tokenised else Step("tokenise", whole, {"corpus": step.inputs["corpus"]})

    def _on_cores(self, step: Step) -> Charge:
        count, size = read_and_written(step, self.volumes)
        seconds = count / step.kind.texts_per_second if step.kind.texts_per_second else 0.0
        host = 0.0
        if step.name == "bm25":
            passages, queries = bm25_size(step, self.volumes)
            seconds = bm25_seconds(queries, passages)
            host = BM25_ID_BYTES * passages
        return Charge(
            step,
            core_seconds=seconds,
            alone_seconds=vocabulary_seconds(step, self.volumes),
            one_core=step.kind.runs in ("driver", "task", "threads"),
            by_workers=step.kind.runs == "actors",
            bytes=size,
            host=host,
            host_of_a_core=BM25_SHARD_BYTES if step.name in ("bm25_words", "bm25_index") else 0.0,
        )


def _most_queries(step: Step) -> int | None:
    """The limit that a list of candidates, or what it was mined from, puts on its queries."""
    return getattr(step.config, "max_queries", None)


def _list_length(step: Step) -> int:
    """Candidates per query in mined negatives, or in a ranked list."""
    config: Any = step.config
    return int(config.per_query if hasattr(config, "per_query") else getattr(config, "depth", 1))
