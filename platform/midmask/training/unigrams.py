"""How frequent each token is in a corpus: where the bias of a fresh MLM head begins.

A head whose bias is 0 first has to learn which words are frequent; one that starts from log-probabilities knows it.
"""

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from midmask.artifact import Place
from midmask.vocabulary import Vocabulary

PASSAGES = 100_000
"""Passages that are counted, at least, from the first; enough for every frequent token."""


def unigram_log_probabilities(tokens: Place, vocabulary: Vocabulary) -> Tensor:
    """The logarithm of each token's share in the passages, every token counted once more than it stands there, so that
    all are finite; float32 [V].

    Args:
        tokens: an artifact of tokenised passages.
    """
    counts_V = np.ones(vocabulary.size, dtype=np.int64)
    counted = 0
    for name in (tokens / "passages").names():
        if counted >= PASSAGES:
            break
        with (tokens / "passages" / name).reading() as stream:
            ids = pq.read_table(stream, columns=["ids"])["ids"].combine_chunks()
        counts_V += np.bincount(ids.flatten().to_numpy(), minlength=vocabulary.size)
        counted += len(ids)
    counts_V[vocabulary.special_V.numpy()] = 1  # they are never predicted
    return torch.from_numpy(np.log(counts_V / counts_V.sum())).float()
