"""Which judgements are for training, for selection (dev) and for the final report (test)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from midmask.corpora.corpus import Corpus
from midmask.corpora.ids import uniform

OFFICIAL = "the corpus's own splits"
BY_CLUSTER = "80/10/10 by module and near-duplicate cluster"
"""How pydocs is divided; that is part of the collection, as official splits are of others."""

FIXED = frozenset({"dl19", "dl20"})
"""Splits that are for the final report alone: TREC DL's judged queries are never trained on or selected with."""


def is_slice(split: str) -> bool:
    """`test.head` is a slice of `test`: some of its queries, or all of them with other judgements."""
    return "." in split


def known_splits(corpus: Corpus, rule: Literal["complete", "official"]) -> set[str]:
    """The splits that a corpus will have once it is prepared, as far as the names of its files tell; empty: it has no
    queries. A file without a usable row can still leave a split empty.
    """
    named = {piece.split for piece in (*corpus.qrels, *corpus.queries) if piece.split} | corpus.unions.keys()
    if corpus.qrels and rule == "complete" and not corpus.unions and not named <= FIXED:
        return named | {"train", "dev", "test"}
    return named


def assign_splits(
    official: Sequence[str], query_ids: Sequence[str], names: set[str], seed: int
) -> tuple[list[str], str]:
    """The split of each judgement, and in words by what rule; the rule is OFFICIAL where nothing was made here.

    - train, dev and test are there: they stay as they are.
    - only dev is missing: a tenth of the queries of train, by the hash of the query id, becomes dev.
    - only test is missing: dev is halved by that hash into dev and test, for what selection has seen must not be
      reported.
    - train is missing, or there is train only: all judgements together are divided by that hash, 60/20/20.
    Other splits stay as they are, unless all are divided. Slices and TREC DL's splits always stay.

    Args:
        official: the split whose file each judgement stands in. names: all splits that have a file.
    """
    names = {name for name in names if name not in FIXED and not is_slice(name)}
    if names >= {"train", "dev", "test"} or not names:
        return list(official), OFFICIAL
    unique, inverse = np.unique(np.asarray(query_ids, dtype=object), return_inverse=True)
    draw = uniform([str(query_id) for query_id in unique], f"split {seed}")[inverse]
    own = np.asarray(official, dtype=object)
    if names >= {"train", "test"}:
        return list(
            np.where((own == "train") & (draw < 0.1), "dev", own)
        ), "dev is a tenth of train by a hash of the query id"
    if names >= {"train", "dev"}:
        return list(
            np.where((own == "dev") & (draw < 0.5), "test", own)
        ), "test is half of dev by a hash of the query id"
    parts = np.asarray(["train", "dev", "test"], dtype=object)[np.searchsorted([0.6, 0.8], draw, side="right")]
    stay = np.asarray([split in FIXED or is_slice(split) for split in official], dtype=bool)
    return list(np.where(stay, own, parts)), "60/20/20 by a hash of the query id"
