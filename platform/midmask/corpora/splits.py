"""Which judgements are for training, for selection (dev) and for the final report (test)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from midmask.core.randomness import uniform

OFFICIAL = "the corpus's own splits"
BY_CLUSTER = "80/10/10 by module and near-duplicate cluster"
"""How pydocs is divided; that is part of the collection, as official splits are of others."""

FIXED = frozenset({"dl19", "dl20"})
"""Splits that are for the final report alone: TREC DL's judged queries are never trained on or selected with."""


def is_slice(split: str) -> bool:
    """`test.head` is a slice of `test`: some of its queries, or all of them with other judgements."""
    return "." in split


@dataclass(frozen=True)
class Rule:
    """How judgements were divided, in words, and which splits hold others than their files: made here."""

    words: str
    made: tuple[str, ...] = ()


def assign_splits(
    official: Sequence[str], query_ids: Sequence[str], names: set[str], seed: int
) -> tuple[list[str], Rule]:
    """The split of each judgement, and by what rule.

    - train, dev and test are there: they stay as they are.
    - only dev is missing: a tenth of the queries of train, by the hash of the query id, becomes dev.
    - only test is missing: dev is halved by that hash into dev and test, for what selection has seen must not be
      reported.
    - train is missing, or there is train only: all judgements together are divided by that hash, 60/20/20.
    Other splits stay as they are, unless all are divided. Slices and TREC DL's splits always stay.

    Args:
        official: the split of the file that has the judgement. names: all splits that have a file.
    """
    names = {name for name in names if name not in FIXED and not is_slice(name)}
    if names >= {"train", "dev", "test"} or not names:
        return list(official), Rule(OFFICIAL)
    unique, inverse = np.unique(np.asarray(query_ids, dtype=object), return_inverse=True)
    draw = uniform([str(query_id) for query_id in unique], f"split {seed}")[inverse]
    splits = np.asarray(official, dtype=object)
    if names >= {"train", "test"}:
        tenth = np.where((splits == "train") & (draw < 0.1), "dev", splits)
        return list(tenth), Rule("dev is a tenth of train by a hash of the query id", ("dev", "train"))
    if names >= {"train", "dev"}:
        halved = np.where((splits == "dev") & (draw < 0.5), "test", splits)
        return list(halved), Rule("test is half of dev by a hash of the query id", ("dev", "test"))
    parts = np.asarray(["train", "dev", "test"], dtype=object)[np.searchsorted([0.6, 0.8], draw, side="right")]
    stay = np.asarray([split in FIXED or is_slice(split) for split in official], dtype=bool)
    rule = Rule("60/20/20 by a hash of the query id", ("dev", "test", "train"))
    return list(np.where(stay, splits, parts)), rule
