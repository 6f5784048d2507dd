"""Near-duplicate texts, found by MinHash (Broder 1997) and banding, joined into clusters."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from midmask.core.arrays import Ints
from midmask.core.randomness import Hashes, hash64, numpy_stream

SHINGLE = 5
BANDS, ROWS = 32, 3
SIMILAR = 0.5
"""Estimated Jaccard similarity from which two texts are near-duplicates. With 96 hashes the estimate's deviation at a
true 0.7 is 0.047, and 32 bands of 3 overlook such a pair once in 700,000, so pairs above 0.7 end in one cluster all but
surely."""
GROUP_HEAD = 16

Signatures = NDArray[np.uint32]


def signatures(texts: Sequence[str]) -> Signatures:
    """MinHash signatures over shingles of 5 words (a shorter text is one shingle); uint32 [N, 96]."""
    hashes, lengths = shingles(texts, SHINGLE)
    starts = np.cumsum(lengths) - lengths
    factors = numpy_stream(20240607).integers(1, 2**63, BANDS * ROWS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    minima = np.empty((len(texts), len(factors)), np.uint32)
    for column, factor in enumerate(factors):
        mixed = hashes * factor
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        minima[:, column] = np.minimum.reduceat((mixed >> np.uint64(32)).astype(np.uint32), starts)
    return minima


def shingles(texts: Sequence[str], size: int) -> tuple[Hashes, Ints]:
    """One hash for each run of `size` words in a row, order of words included (a shorter text is one shingle).

    Returns:
        The hashes, text after text, uint64 [S]; and the number of each text's, int64 [N].
    """
    lengths = np.zeros(len(texts), np.int64)
    hashes = [np.empty(0, np.uint64)]
    for index, text in enumerate(texts):
        words = hash64(plain_words(text) or [""])
        lengths[index] = max(1, len(words) - size + 1)
        hashes.append(_hash_windows(words, size, int(lengths[index])))
    return np.concatenate(hashes), lengths


def plain_words(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return re.findall(r"\w+", text.lower())


def _hash_windows(words: Hashes, size: int, count: int) -> Hashes:
    """One hash per window of `size` words."""
    windows = np.zeros(count, np.uint64)
    for offset in range(min(size, len(words))):
        windows = windows * np.uint64(0x9E3779B97F4A7C15) + words[offset : offset + count]
        windows ^= windows >> np.uint64(32)
    return windows


def similar_pairs(minima: Signatures) -> NDArray[np.int64]:
    """Pairs of rows that are equal in a band and in half of all hashes; int64 [P, 2].

    In a band, a row is compared with the one before it and with the first 16 of its group: joined up, that finds a
    cluster without comparing all its members with each other.
    """
    similar = []
    for band in range(BANDS):
        key = minima[:, band * ROWS : (band + 1) * ROWS]
        order = np.lexsort(key.T[::-1])
        new = np.ones(len(order), bool)
        new[1:] = (key[order[1:]] != key[order[:-1]]).any(axis=1)
        first = np.flatnonzero(new)[np.cumsum(new) - 1]
        position = np.arange(len(order))
        for partner in [position - 1, *(first + head for head in range(GROUP_HEAD))]:
            met = (partner >= first) & (partner < position)
            pairs = np.stack([order[partner[met]], order[position[met]]], axis=1)
            agreement = (minima[pairs[:, 0]] == minima[pairs[:, 1]]).mean(axis=1)
            similar.append(pairs[agreement >= SIMILAR])
    return np.unique(np.sort(np.concatenate(similar), axis=1), axis=0)


def clusters(count: int, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lowest row of each row's cluster, pairs being joined transitively; int64 [count]."""
    from scipy.sparse import coo_array  # here: a plan is laid out without it
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    components, labels = connected_components(edges, directed=False)
    lowest: NDArray[np.int64] = np.full(components, count, np.int64)
    np.minimum.at(lowest, labels, np.arange(count))
    return np.asarray(lowest[labels])
