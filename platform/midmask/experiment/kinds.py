"""Every kind of step, declared once: what computes it, where it runs on a cluster, and what other packages must know of
it. A new kind is an entry here, beside the function that it names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from midmask.core.config import Config
from midmask.corpora.assemble import JoinConfig, join, prepare
from midmask.corpora.config import CorpusConfig
from midmask.evaluation.overlap import OverlapConfig, find_overlaps
from midmask.evaluation.step import EvaluateConfig, evaluate_ranked
from midmask.experiment import steps
from midmask.experiment.steps import UntunedConfig, untuned
from midmask.mining.known import NEAR_DUPLICATES, NearDuplicatesConfig
from midmask.mining.listed import ReadNegativesConfig, read_negatives
from midmask.mining.mine import DrawQueriesConfig, MineConfig, draw_queries, mine
from midmask.queries.config import QueriesConfig
from midmask.queries.document_spans import SPANS, SpansConfig
from midmask.queries.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.queries.query_model import GeneratorConfig, generator_setup
from midmask.queries.step import make_queries
from midmask.queries.terms import STATISTICS, WEIGH, StatisticsConfig, WeighConfig
from midmask.retrieve.bm25.index import BM25_INDEX, BM25_WORDS, Bm25IndexConfig, Bm25WordsConfig
from midmask.retrieve.bm25.search import Bm25Config, rank_with_bm25
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.index import IndexConfig, SampleConfig, build_index, draw_sample
from midmask.retrieve.ranked import FuseConfig, fuse_lists
from midmask.retrieve.run_file import RunFileConfig, read_run
from midmask.retrieve.search import SearchConfig, search, search_in_parts
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.teacher.score import SCORE, ReadScoresConfig, ScoreConfig, read_scores
from midmask.teacher.teach import TeachConfig, teach_setup
from midmask.text import tokens
from midmask.text.tokens import TokensConfig
from midmask.training.examples import local_reader
from midmask.training.run import Log, run_training
from midmask.training.setup import TrainingSetup

Inputs = Mapping[str, Artifact]
Runs = Literal["driver", "task", "threads", "shards", "stream", "actors", "group"]
"""Where a step is computed on a cluster:

driver   in the job's own process
task     one Ray task with one CPU
threads  one Ray task with a CPU for each of its config's threads
shards   a Ray task a shard, or actors that stay where a worker loads a model
stream   a stream of Ray Data
actors   a pool of actors, each with a part of the corpus
group    a group of Ray Train's workers
"""


@dataclass(frozen=True)
class StepKind:
    """One kind of step. Its name is part of fingerprints and the name of its folder in a store."""

    name: str
    config: type[Config]
    # f(config, inputs, out) -> small results, in one process; a training has `setup` in its place.
    compute: Callable[[Any, Inputs, Place], dict[str, Any]] | None = None
    # Of a training: what a worker needs, as plain data, from its config and inputs.
    setup: Callable[[Any, Inputs], TrainingSetup] | None = None
    runs: Runs = "task"
    # It goes through a whole collection before anything is trained, and gets the whole cluster.
    whole_collection: bool = False
    # It works on a GPU wherever there is one; all others use the CPU alone.
    on_device: bool = False
    # Its config names a place: what lies there is its identity, not the name.
    named_by_content: bool = False
    # It reads the queries of the split train, which its config does not name.
    reads_train: bool = False
    # Only searches read it: a search that is finished does not look at it again.
    intermediate: bool = False
    # For MLflow: whether it makes a collection; the model type of what it makes, if a checkpoint; what a collection is
    # to it; inputs that are in its fingerprint alone.
    is_collection: bool = False
    model: str | None = None
    context: str = "data"
    unread_inputs: tuple[str, ...] = ()
    # The job that makes it alone, if there is one; all else is evaluated.
    job: str | None = None
    # Texts that a CPU core gets through in a second: passages, or queries from `mine` on. None: it is not reckoned so.
    texts_per_second: float | None = None
    # Seconds of one of which nothing has been measured, relative to each other: they only decide what starts first.
    nominal_seconds: float = 1.0

    @property
    def trains(self) -> bool:
        return self.setup is not None

    def make(self, config: Any, inputs: Inputs, out: Place, *, log: Log) -> dict[str, Any]:
        """Computes the step in this process into `out`; safe to call again after a kill. Only a training logs.

        Returns:
            Its small results.
        """
        if self.setup is not None:
            return run_training(self.setup(config, inputs), out, local_reader, log)
        assert self.compute is not None
        return self.compute(config, inputs, out)


def _training(
    name: str, config: type[Config], setup: Callable[[Any, Inputs], TrainingSetup], model: str, **facts: Any
) -> StepKind:
    facts = {"context": "train", **facts}
    return StepKind(name, config, setup=setup, runs="group", on_device=True, model=model, **facts)


# Rates: with both cores of a machine at work on a million passages of Wikipedia (docs/results/scale.md): prepare,
# tokenise, bm25_words, bm25_index, near_duplicates; on SQuAD's 20,958 by processor time: queries, spans,
# pseudo_queries, statistics, weigh. The others are rough.
KINDS: Mapping[str, StepKind] = {
    kind.name: kind
    for kind in (
        # Collections, and what is derived from their texts
        StepKind(
            "prepare", CorpusConfig, prepare, runs="stream", whole_collection=True, named_by_content=True,
            is_collection=True, texts_per_second=25_000, nominal_seconds=10.0,
        ),
        StepKind(
            "queries", QueriesConfig, make_queries, runs="driver", whole_collection=True, texts_per_second=600,
        ),
        StepKind("join", JoinConfig, join, whole_collection=True, texts_per_second=40_000),
        StepKind(
            "tokenise", TokensConfig, tokens.tokenise, runs="shards", whole_collection=True, texts_per_second=4_500,
        ),
        StepKind(
            "spans", SpansConfig, SPANS, runs="shards", whole_collection=True, texts_per_second=1_400,
            nominal_seconds=10.0,
        ),
        StepKind(
            "pseudo_queries", PseudoQueriesConfig, PSEUDO_QUERIES, runs="shards", whole_collection=True,
            texts_per_second=1_600,
        ),
        StepKind(
            "statistics", StatisticsConfig, STATISTICS, runs="shards", whole_collection=True, texts_per_second=100_000,
        ),
        StepKind("weigh", WeighConfig, WEIGH, runs="shards", whole_collection=True, texts_per_second=100_000),
        # Models
        StepKind("initial", steps.InitialConfig, steps.initial, runs="driver", model="encoder"),
        StepKind("adopt", steps.AdoptConfig, steps.adopt, runs="driver", named_by_content=True, model="encoder"),
        _training(
            "pretrain", steps.PretrainConfig, steps.pretrain_setup, "encoder", context="pretrain",
            unread_inputs=("corpus",), job="pretrain", nominal_seconds=40.0,
        ),
        _training(
            "finetune", steps.FinetuneConfig, steps.finetune_setup, "retriever", reads_train=True, job="finetune",
            nominal_seconds=20.0,
        ),
        _training(
            "teach", TeachConfig, teach_setup, "cross-encoder", reads_train=True, job="train_teacher",
            nominal_seconds=40.0,
        ),
        _training(
            "generator", GeneratorConfig, generator_setup, "query generator", reads_train=True, job="train_generator",
            nominal_seconds=40.0,
        ),
        StepKind("untuned", UntunedConfig, untuned),
        # Search
        StepKind(
            "bm25_words", Bm25WordsConfig, BM25_WORDS, runs="shards", whole_collection=True, intermediate=True,
            texts_per_second=6_500,
        ),
        StepKind(
            "bm25_index", Bm25IndexConfig, BM25_INDEX, runs="shards", whole_collection=True, intermediate=True,
            texts_per_second=300_000,
        ),
        StepKind("bm25", Bm25Config, rank_with_bm25, runs="actors"),
        StepKind(
            "encode", EncodeConfig, encode, runs="actors", on_device=True, intermediate=True, nominal_seconds=5.0,
        ),
        StepKind("index", IndexConfig, build_index, runs="threads", intermediate=True),
        StepKind("sample", SampleConfig, draw_sample, intermediate=True),
        StepKind("search", SearchConfig, search, runs="actors", on_device=True),
        StepKind("search_sample", SearchConfig, search_in_parts),
        StepKind("fuse", FuseConfig, fuse_lists, texts_per_second=1_000),
        StepKind("read_run", RunFileConfig, read_run, runs="driver", texts_per_second=2_000),
        # Negatives and teachers' scores
        StepKind("near_duplicates", NearDuplicatesConfig, NEAR_DUPLICATES, runs="shards", texts_per_second=4_500),
        StepKind("draw_queries", DrawQueriesConfig, draw_queries, runs="driver", texts_per_second=50_000),
        StepKind("read_negatives", ReadNegativesConfig, read_negatives, runs="driver", texts_per_second=20_000),
        StepKind("mine", MineConfig, mine, context="train", job="mine_negatives", texts_per_second=5_000),
        StepKind("score", ScoreConfig, SCORE, runs="shards", on_device=True),
        StepKind("read_scores", ReadScoresConfig, read_scores, runs="driver", texts_per_second=50_000),
        StepKind("evaluate", EvaluateConfig, evaluate_ranked, context="eval", texts_per_second=3_000),
        StepKind("overlap", OverlapConfig, find_overlaps, texts_per_second=4_000, nominal_seconds=1000.0),
    )
}  # fmt: skip
"""Name -> kind."""

LOCAL = {name: kind.make for name, kind in KINDS.items()}
"""Name -> the function that computes it in this process: what a sweep's trial runs where a training has one process and
no GPU (`backend.cluster.Resources`), and what the distributed forms in `backend/` must equal."""
