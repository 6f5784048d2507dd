"""Which judgements are for training, for selection (dev) and for the final report (test)."""

from collections.abc import Sequence

import numpy as np

from midmask.corpora.ids import uniform

OFFICIAL = "the corpus's own splits"
BY_CLUSTER = "80/10/10 by module and near-duplicate cluster"
"""How pydocs is divided; that is part of the collection, as official splits are of others."""


def assign_splits(
    official: Sequence[str], query_ids: Sequence[str], names: set[str], seed: int
) -> tuple[list[str], str]:
    """The split of each judgement, and in words by what rule; the rule is OFFICIAL where nothing was made here.

    - train, dev and test are there: they stay as they are.
    - only dev is missing: a tenth of the queries of train, by the hash of the query id, becomes dev.
    - only test is missing: dev is halved by that hash into dev and test, for what selection has seen must not be
      reported.
    - train is missing, or there is train only: all judgements together are divided by that hash, 60/20/20.
    Other splits stay as they are, unless all are divided.

    Args:
        official: the split whose file each judgement stands in. names: all splits that have a file.
    """
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
    parts = np.asarray(["train", "dev", "test"], dtype=object)
    return list(parts[np.searchsorted([0.6, 0.8], draw, side="right")]), "60/20/20 by a hash of the query id"
