"""Refuses a training whose rows leave nothing to learn, before it starts, and one whose first steps have no gradient.

What a configuration alone shows is refused earlier (`ObjectiveConfig.check_learns`, `StageConfig.check`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from midmask.errors import UserError, how_to_set
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.ranking import RankingConfig
from midmask.objectives.objective import ObjectiveConfig
from midmask.training.examples import TextColumns, TextRows, open_examples, plan_of
from midmask.training.pairs import PairExamples
from midmask.training.setup import TrainingSetup

PATIENCE = 100
"""First steps of a training of which one must have a gradient."""


def refuse_few_rows(setup: TrainingSetup, field: str) -> None:
    """Raises UserError if a step takes more rows than there are.

    Args:
        field: where the recipe has the training's batch, such as `stages.0.train`.
    """
    batch_size, count = setup.train.batch_size, open_examples(setup.rows).count
    if batch_size <= count:
        return
    kind = "rows" if field == "pretrain" else "train queries with a relevant passage"
    few = f"{field}.batch_size = {batch_size}: the collection has only {count} {kind}"
    if count < 2:
        raise UserError(f"{few}, and at least 2 are needed to tell them apart; give a collection with more")
    raise UserError(f"{few}; set {field}.batch_size={count}, or a smaller number above 1")


def refuse_unlearnable(setup: TrainingSetup, field: str) -> None:
    """Reads the rows of the training's steps, an epoch at most, until one has a text to be told from.

    Raises:
        UserError: if none has, so that nothing would be learned, or as `refuse_few_rows`.
    """
    refuse_few_rows(setup, field)
    config, train = setup.objective, setup.train
    if not (isinstance(config, RankingConfig | ListwiseRanking.Config) or config.compares_rows):
        return
    source, plan = open_examples(setup.rows), plan_of(setup.rows, train.batch_size, train.seed)
    seen = _Seen()
    for step in range(min(setup.stop, plan.steps_per_epoch)):
        rows = _Rows(source.read(plan.rows(step), train.seed, 0), source.group)
        seen.add(rows)
        if _tells_apart(config, rows) or (config.remembers_rows and len(seen.passages) > 1):
            return
    stage = field.removesuffix(".train")
    if getattr(config, "needs_teacher", False) and not seen.has_order:
        raise UserError(
            f"{stage}.teacher: its scores of a query's passages are all equal, for every query, so there is no order "
            "that could be learned; name another teacher or other scores, or learn from judgements alone: "
            f"{how_to_set({f'{stage}.loss': {'name': 'contrastive'}})}"
        )
    remedy = ""
    if len(seen.queries) > 1 and _has_other_passages(setup):
        mine = how_to_set({f"{stage}.negatives": ["bm25"], f"{stage}.per_query": 1})
        remedy = f"mine negatives, {mine}, or "
    raise UserError(f"{field}: {seen.fault()}, so nothing can be learned; {remedy}give a collection of different texts")


def _has_other_passages(setup: TrainingSetup) -> bool:
    """Whether passages drawn at random differ from the relevant ones, where none are drawn so far."""
    rows = setup.rows
    if not isinstance(rows, PairExamples) or rows.per_query:
        return False
    drawn = replace(rows, per_query=1).open()
    return _tells_apart(setup.objective, _Rows(drawn.read(np.arange(min(drawn.count, 64)), 0, 0), drawn.group))


class _Rows:
    """The texts of a step, as bytes."""

    def __init__(self, texts: TextColumns, group: int) -> None:
        self.group = group
        self.passages = _keys(texts["passage"])  # of all groups, the positive of each group first
        # Empty if a row is a passage alone, or two spans of a document
        self.positives = self.passages[::group]
        self.queries = _keys(texts["query"]) if "query" in texts else []
        scores = texts["passage"].scores
        self.has_order_Q = np.ptp(scores.reshape(-1, group), axis=1) > 0 if scores is not None else None

    def hard(self, query: int) -> bool:
        """Whether a query has a negative of its own that is no copy of its positive."""
        passages = self.passages[query * self.group : (query + 1) * self.group]
        return len(set(passages)) > 1


def _keys(text: TextRows) -> list[bytes]:
    return [piece.tobytes() for piece in text.pieces()]


def _tells_apart(config: ObjectiveConfig, rows: _Rows) -> bool:
    """Whether some row of a step has a text that it can be told from."""
    if not isinstance(config, RankingConfig | ListwiseRanking.Config):
        return len(set(rows.passages)) > 1
    hard_Q = np.array([rows.hard(query) for query in range(len(rows.positives))])
    if isinstance(config, RankingConfig) and config.needs_teacher:
        return rows.has_order_Q is not None and bool((hard_Q & rows.has_order_Q).any())
    if hard_Q.any():
        return True
    in_batch = isinstance(config, RankingConfig) and config.candidates in ("all", "positives")
    return in_batch and len(set(rows.queries)) > 1 and len(set(rows.positives)) > 1


class _Seen:
    """The different texts of all steps so far."""

    def __init__(self) -> None:
        self.queries: set[bytes] = set()
        self.positives: set[bytes] = set()
        self.passages: set[bytes] = set()
        self.has_order = False

    def add(self, rows: _Rows) -> None:
        self.queries.update(rows.queries)
        self.positives.update(rows.positives)
        self.passages.update(rows.passages)
        self.has_order = self.has_order or (rows.has_order_Q is not None and bool(rows.has_order_Q.any()))

    def fault(self) -> str:
        """The reason why the rows leave nothing to learn, in words."""
        if len(self.passages) == 1 and not self.queries:
            return "all texts are equal"
        if len(self.queries) == 1:
            return "all train queries are equal"
        if len(self.positives) == 1:
            return "all train queries have the same relevant passage, or equal ones"
        return "no query has a passage beside its relevant one that differs from it, in any batch"


class GradientWatch:
    """Ends a training whose first steps have no gradient.

    Args:
        setup: of the training. parts: names of the objective's terms.
    """

    def __init__(self, setup: TrainingSetup, parts: Sequence[str]) -> None:
        self._setup, self._parts = setup, parts
        self.idle = 0  # steps from the first one on

    def look(self, row: dict[str, Any]) -> None:
        """Reads the numbers of a step, as the trace has them.

        Raises:
            UserError: if neither this step nor any before it had a gradient, and none is left or `PATIENCE` are over.
        """
        targets = any(row[f"part/{name}"] is not None for name in self._parts)
        if row["step"] != self.idle or (targets and row["gradient_norm"] != 0.0):
            return
        self.idle += 1
        if self.idle < min(PATIENCE, self._setup.stop):
            return
        config = self._setup.objective
        why, remedy = "the loss is the same whatever the weights are", "change the rows or the weights of its terms"
        if not targets:
            why, remedy = "no text has a token to predict", "give longer texts"
            if hasattr(config, "encoder_mask_ratio"):
                remedy += ", or hide more of them: set objective.encoder_mask_ratio=0.15 or more"
        raise UserError(
            f"{self._setup.path}: none of the first {self.idle} steps had a gradient (loss {row['loss']:g}; "
            f"{config.name}): {why}, so nothing is learned; {remedy}"
        )
