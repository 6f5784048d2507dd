"""Splits by document: what a system was trained or chosen on shares no document with what is reported.

Passages are divided before queries are made of them, since what a source makes depends on what it is for (`roles`).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from midmask.corpora.duplicates import clusters
from midmask.queries.collection import CollectionFacts
from midmask.queries.config import QueriesConfig
from midmask.randomness.texts import hash64

BY_DOCUMENT = "by document"
BY_PASSAGE = "by passage: there are too few documents for three splits"

ENOUGH = 0.4
"""A split needs at least so much of its share of the passages, or the division is not used."""


def split_passages(known: CollectionFacts, config: QueriesConfig) -> tuple[dict[str, str], str]:
    """Passage -> train, dev or test, and by which rule; without those that have too many copies to be asked for."""
    asked = [row for row in range(len(known.doc_ids)) if known.sizes[int(known.cluster[row])] <= config.copies]
    members = known.members(sorted({int(known.cluster[row]) for row in asked}))
    copies = {known.doc_ids[row]: members[int(known.cluster[row])] for row in asked}
    documents = {doc_id: [known.document_of(one) for one in own] for doc_id, own in copies.items()}
    return split_by_document(documents, copies, config.dev_share, config.test_share, config.seed)


def split_by_document(
    documents: Mapping[str, Sequence[str]],
    passages: Mapping[str, Sequence[str]],
    dev_share: float,
    test_share: float,
    seed: int,
) -> tuple[dict[str, str], str]:
    """Passage -> train, dev or test, and by which rule. All passages of a group are in one split; passages are of one
    group if they have a document in common, or are joined by others that have.

    Args:
        documents: passage -> its document and those of its copies. passages: passage -> itself and its copies; they
            take the documents' part where these are too few.
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
    """Groups in the order of a hash of their first member's name; the first ones, test's share of the passages, are
    test, the next are dev. A group belongs where its middle passage falls.
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
    """The smallest member's name -> the passages that are joined by members in common."""
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
