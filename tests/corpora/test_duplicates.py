import random

import numpy as np

from midmask.corpora.duplicates import clusters, signatures, similar_pairs

WORDS = [f"w{n}" for n in range(500)]


def exact(left: str, right: str) -> float:
    sets = [{tuple(text.split()[n : n + 5]) for n in range(max(1, len(text.split()) - 4))} for text in (left, right)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def edited(words: list[str], changes: int, draw: random.Random) -> list[str]:
    copy = list(words)
    for place in draw.sample(range(len(copy)), changes):
        copy[place] = draw.choice(WORDS)
    return copy


def test_estimates_are_close_to_the_exact_similarity_and_pairs_above_are_found() -> None:
    draw = random.Random(1)
    texts = []
    for changes in range(120):
        base = [draw.choice(WORDS) for _ in range(120)]
        texts += [" ".join(base), " ".join(edited(base, changes // 12, draw))]
    minima = signatures(texts)
    agreement = (minima[::2] == minima[1::2]).mean(axis=1)
    similarity = np.array([exact(texts[n], texts[n + 1]) for n in range(0, len(texts), 2)])
    assert np.abs(agreement - similarity).max() < 0.2 and np.abs(agreement - similarity).mean() < 0.05
    found = {tuple(pair) for pair in similar_pairs(minima).tolist()}
    assert {(2 * n, 2 * n + 1) for n in np.flatnonzero(similarity > 0.7)} <= found
    assert all(left + 1 == right and left % 2 == 0 for left, right in found)


def test_clusters_equal_a_slow_closure() -> None:
    draw = np.random.default_rng(0)
    pairs = draw.integers(0, 60, (40, 2))
    reached = np.eye(60, dtype=bool)
    for left, right in pairs:
        reached[left, right] = reached[right, left] = True
    for _ in range(60):
        reached = (reached.astype(int) @ reached.astype(int)) > 0
    assert clusters(60, pairs).tolist() == reached.argmax(axis=1).tolist()
