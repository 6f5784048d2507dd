"""Splits by document: what a system was trained or chosen on shares no document with what is reported."""

from collections.abc import Mapping, Sequence

import numpy as np

from midmask.corpora.duplicates import clusters
from midmask.randomness.texts import hash64

BY_DOCUMENT = "by document"
BY_PASSAGE = "by passage: there are too few documents for three splits"

ENOUGH = 0.4
"""A split needs at least so much of its share of the queries, or the division is not used."""


def split_queries(
    documents: Mapping[str, Sequence[str]],
    passages: Mapping[str, Sequence[str]],
    dev_share: float,
    test_share: float,
    seed: int,
) -> tuple[dict[str, str], str]:
    """Query -> train, dev or test, and by which rule. All queries of a group are in one split; queries are of one group
    if they have a document in common, or are joined by others that have.

    Args:
        documents: query -> the documents of its relevant passages. passages: query -> its relevant passages; they take
            the documents' part where these are too few.
    """
    splits: dict[str, str] = {}
    for members, rule in ((documents, BY_DOCUMENT), (passages, BY_PASSAGE)):
        splits = _divide(members, dev_share, test_share, seed)
        found = [sum(split == name for split in splits.values()) for name in ("train", "dev", "test")]
        wanted = [(1 - dev_share - test_share) * len(splits), dev_share * len(splits), test_share * len(splits)]
        if all(count >= max(1, ENOUGH * share) for count, share in zip(found, wanted, strict=True)):
            return splits, rule
    return splits, BY_PASSAGE


def _divide(members: Mapping[str, Sequence[str]], dev_share: float, test_share: float, seed: int) -> dict[str, str]:
    """Groups in the order of a hash of their first member's name; the first ones, test's share of the queries, are
    test, the next are dev. A group belongs where its middle query falls.
    """
    groups = _groups(members)
    names = sorted(groups)
    order = sorted(zip(hash64(names, f"queries {seed} splits").tolist(), names, strict=True))
    splits: dict[str, str] = {}
    before, whole = 0, len(members)
    for _, name in order:
        own = groups[name]
        middle = (before + len(own) / 2) / whole
        split = "test" if middle < test_share else "dev" if middle < test_share + dev_share else "train"
        splits.update(dict.fromkeys(own, split))
        before += len(own)
    return splits


def _groups(members: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The smallest member's name -> the queries that are joined by members in common."""
    queries = sorted(members)
    number: dict[str, int] = {}
    pairs = []
    for row, query_id in enumerate(queries):
        for name in members[query_id]:
            pairs.append((number.setdefault(name, row), row))
    root = clusters(len(queries), np.array(pairs, np.int64).reshape(-1, 2)).tolist()
    groups: dict[int, list[str]] = {}
    for query_id, one in zip(queries, root, strict=True):
        groups.setdefault(one, []).append(query_id)
    return {min(name for query_id in own for name in members[query_id]): own for own in groups.values()}
