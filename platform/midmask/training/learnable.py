"""Refuses a training whose rows leave nothing to learn, before it starts.

What a configuration alone shows is refused earlier (`ObjectiveConfig.check_learns`, `StageConfig.check`); a training
whose first steps have no gradient, by the run itself.
"""

import numpy as np

from midmask.errors import UserError, how_to_set
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.objectives.finetuning.ranking import RankingConfig
from midmask.objectives.objective import ObjectiveConfig
from midmask.training.examples import TextColumns, TextRows, open_examples, plan_of
from midmask.training.setup import TrainingSetup


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
    seen = set[bytes]()
    for step in range(min(setup.stop, plan.steps_per_epoch)):
        texts = source.read(plan.rows(step), train.seed, 0)
        seen.update(_keys(texts["passage"]))
        if _tells_apart(config, texts, source.group) or (config.remembers_rows and len(seen) > 1):
            return
    remedy = "give a collection of different texts"
    if field != "pretrain":
        stage = field.removesuffix(".train").removesuffix(".teacher")
        mined = how_to_set({f"{stage}.negatives": ["bm25"], f"{stage}.per_query": 1})
        remedy = f"mine negatives, {mined}, or give judgements of different passages for different queries"
    raise UserError(
        f"{field}: no text can be told from another, because all of a row or a batch are equal, or their teacher's "
        f"scores are; so nothing can be learned; {remedy}"
    )


def _keys(text: TextRows) -> list[bytes]:
    return [piece.tobytes() for piece in text.pieces()]


def _tells_apart(config: ObjectiveConfig, texts: TextColumns, group: int) -> bool:
    """Whether some row of a step has a text that it can be told from."""
    passages = _keys(texts["passage"])  # of all groups, the positive of each group first
    if not isinstance(config, RankingConfig | ListwiseRanking.Config):
        return len(set(passages)) > 1
    hard_Q = np.array([len(set(passages[at : at + group])) > 1 for at in range(0, len(passages), group)])
    if isinstance(config, RankingConfig) and config.needs_teacher:
        scores = texts["passage"].teacher
        return scores is not None and bool((hard_Q & (np.ptp(scores.reshape(-1, group), axis=1) > 0)).any())
    if hard_Q.any():
        return True
    in_batch = isinstance(config, RankingConfig) and config.candidates in ("all", "positives")
    return in_batch and len(set(_keys(texts["query"]))) > 1 and len(set(passages[::group])) > 1
