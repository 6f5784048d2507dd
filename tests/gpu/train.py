"""Part `train`: a backbone with fresh weights, middle training (RetroMAE) on a collection's passages, fine-tuning with
in-batch negatives, dense and SPLADE, and the measures of an exact search of dev; beside fine-tuning alone.

These are midmask's own steps in one process, without Ray. The search is this program's, since faiss may be missing; it
adds up products in float32 on the device.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from midmask.artifact import Artifact, Place, load
from midmask.experiment.graph import Graph
from midmask.experiment.plan import Plan, plan
from midmask.experiment.run import Runner, Silent
from midmask.experiment.step import Step
from midmask.experiment.steps import LOCAL
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.retrieve.blocks import SELECTION, blocks_in, passage_blocks
from midmask.retrieve.selection import read_qrels
from midmask.retrieve.views import Views, read_views
from midmask.training.table import TokenTable
from tests.gpu.page import table
from tests.gpu.search import CUTOFF, measures, search

SYSTEMS = {
    "none, dense": ("none", "in_batch"),
    "RetroMAE, dense": ("retromae", "in_batch"),
    "none, SPLADE": ("none", "in_batch_splade"),
    "RetroMAE, SPLADE": ("retromae", "in_batch_splade"),
}
"""System -> its recipe and its protocol."""

HEAD = ("system", "nDCG@10", "RR@10", "dev queries", "last loss", "tokens a second in training", "seconds")

QUERIES_AT_ONCE = 512


@dataclass(frozen=True)
class Sizes:
    """How much is trained. queries: of dev, at most. rows: of a step of middle training and of fine-tuning."""

    backbone: str
    vocabulary: int
    length: int
    pretrain_steps: int
    finetune_steps: int
    rows: tuple[int, int]
    queries: int | None

    def changes(self, corpus: str) -> dict[str, Any]:
        """The fields of a recipe that differ from its defaults, by path."""
        pretrain, finetune = self.rows
        return {
            "corpus.name": corpus,
            "backbone.name": self.backbone,
            "tokens.vocabulary_size": self.vocabulary,
            "tokens.max_length": self.length,
            "pretrain.steps": self.pretrain_steps,
            "pretrain.batch_size": pretrain,
            "pretrain.learning_rate": 5e-4,
            "pretrain.health_every": 0,
            "stages.0.train.steps": self.finetune_steps,
            "stages.0.train.batch_size": finetune,
            "stages.0.train.learning_rate": 2e-4,
            "stages.0.passage_length": self.length,
            "evaluation.max_queries": self.queries,
        }


WHOLE = Sizes("small", 8192, 128, 1500, 800, (128, 128), None)
REDUCED = Sizes("tiny", 400, 32, 6, 4, (8, 8), 20)


def train(corpus: str, storage: Place, sizes: Sizes, device: torch.device, until: float) -> tuple[str, bool]:
    """The part's section, and whether every system was measured.

    Args:
        corpus: as `corpus.name`. until: of `time.monotonic`, when trainings stop where they are.
    """
    rows = [_row(name, recipe(*which, corpus, sizes), storage, device, until) for name, which in SYSTEMS.items()]
    missing = [row[0] for row in rows if row[1] == NOT_REACHED]
    said = f"Not measured, for lack of time: {'; '.join(missing)}.\n\n" if missing else ""
    about = (
        f"`{sizes.backbone}`, {sizes.pretrain_steps:,} steps of {sizes.rows[0]} rows, then {sizes.finetune_steps:,} of "
        f"{sizes.rows[1]} queries; texts of at most {sizes.length} tokens; {corpus.rpartition('/')[2]}."
    )
    return f"{about}\n\n{said}{table(HEAD, rows)}", not missing


def recipe(name: str, protocol: str, corpus: str, sizes: Sizes) -> Any:
    """A recipe at these sizes, with this fine-tuning."""
    return override(PROTOCOLS[protocol]().on(RECIPES[name](), "demo"), sizes.changes(corpus))


NOT_REACHED = "not measured"


def _row(name: str, made: Any, storage: Place, device: torch.device, until: float) -> Sequence[str]:
    began = time.monotonic()
    planned = plan(made)
    sides = planned.evaluation(made.evaluation).inputs["ranked"].inputs
    runner = Runner(storage, LOCAL, Silent())
    runner.run_until(Graph.left_in(storage, [sides["passages"], sides["queries"]]), until)
    if not all(sides[side].is_finished(storage) for side in ("passages", "queries")):
        return (name, NOT_REACHED, *["-"] * (len(HEAD) - 2))
    found = evaluate(planned, sides, storage, device)
    trained = load(planned.stages[-1].place(storage)).result
    speed = trained["tokens"] / trained["seconds"]
    measured = (f"{found['nDCG@10']:.4f}", f"{found['RR@10']:.4f}", f"{found['queries']:,.0f}")
    return name, *measured, f"{trained['loss']:.4f}", f"{speed:,.0f}", f"{time.monotonic() - began:.0f}"


def evaluate(planned: Plan, sides: Mapping[str, Step], storage: Place, device: torch.device) -> dict[str, float]:
    """The measures of an exact search of dev with views that are there, and the number of its queries."""
    corpus, tokens = (load(step.place(storage)) for step in (planned.corpus, planned.tokens))
    passages = _views(load(sides["passages"].place(storage)), len(passage_blocks(tokens.place)))
    encoded = load(sides["queries"].place(storage))
    queries = _views(encoded, len(blocks_in([encoded.place / SELECTION])))
    with (encoded.place / SELECTION).reading() as stream:
        names = pq.read_table(stream, columns=["query_id"])["query_id"].to_pylist()
    relevant = _relevant(corpus, tokens, str(encoded.result["split"]), names)
    found = [
        search(_slice(queries, at), passages, CUTOFF, device, torch.float32)[1].cpu()
        for at in range(0, len(names), QUERIES_AT_ONCE)
    ]
    return {**measures(torch.cat(found), relevant), "queries": len(names)}


def _views(encoded: Artifact, blocks: int) -> Views:
    """The views of all blocks of an encoding."""
    return Views.concat([read_views(encoded.place, f"{block:05d}", encoded.result["views"]) for block in range(blocks)])


def _slice(views: Views, at: int) -> Views:
    stop = at + QUERIES_AT_ONCE
    dense_ND = None if views.dense_ND is None else views.dense_ND[at:stop]
    return Views(dense_ND, None if views.lexical is None else views.lexical.slice(at, stop))


def _relevant(corpus: Artifact, tokens: Artifact, split: str, names: list[str]) -> list[set[int]]:
    """For each query the rows of its relevant passages."""
    qrels = read_qrels(corpus)
    judged = qrels.filter(pc.and_(pc.equal(qrels["split"], split), pc.greater_equal(qrels["grade"], 1)))
    judged = judged.filter(pc.is_in(judged["query_id"], value_set=pa.array(names)))
    rows = TokenTable(tokens.place / "passages").rows_of(judged["doc_id"]).tolist()
    relevant: dict[str, set[int]] = {name: set() for name in names}
    for query, row in zip(judged["query_id"].to_pylist(), rows, strict=True):
        relevant[query].add(row)
    return [relevant[name] for name in names]
