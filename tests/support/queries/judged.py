"""Pairs of a small collection, and lists in which many passages have the same score, as a consistency filter reads
them.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from midmask.queries.pseudo_queries import PAIRS, PSEUDO_QUERIES, PseudoQueriesConfig, query_id
from midmask.retrieve import ranked
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.retrieve.collection import made, texts_of

Inputs = dict[str, Artifact]
Pairs = list[tuple[str, str]]
"""(passage, query), in the order of the collection."""


def write_pairs(inputs: Inputs, folder: Path) -> tuple[Artifact, Pairs]:
    """Pseudo-queries: the first and the last words of each passage, and none for every fifth."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs: Pairs = []
    for row, (doc_id, text) in enumerate(texts_of(inputs["corpus"]).items()):
        words = text.split()
        if row % 5:
            pairs += [(doc_id, " ".join(words[:4])), (doc_id, " ".join(words[-2:]))]
    (folder / "queries.tsv").write_text("".join(f"{doc_id}\t{query}\n" for doc_id, query in pairs))
    config = PseudoQueriesConfig(source=f"file:{folder}/queries.tsv", max_length=12)
    return made(PSEUDO_QUERIES, config, inputs, Place(str(folder / "pairs"))), pairs


def write_tied_lists(pairs: Pairs, doc_ids: list[str], place: Place) -> tuple[Artifact, list[int]]:
    """Lists of 40 passages a query with the scores 0 … 5, and the rank of each pair's passage in Python's own order, 0
    where it is not in the list. Every seventh query has no list.
    """
    draw = np.random.default_rng(5)
    rows: list[tuple[str, str, float]] = []
    ranks = []
    for number, (own, _) in enumerate(pairs):
        chosen = {*draw.choice(doc_ids, 40, replace=False).tolist(), *([own] if number % 3 else [])}
        scores = {doc_id: int(draw.integers(6)) + 2 * (doc_id == own) for doc_id in sorted(chosen)}
        best = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id)) if number % 7 else []
        ranks.append(best.index(own) + 1 if own in best else 0)
        rows += [(query_id(number), doc_id, scores[doc_id]) for doc_id in draw.permutation(best).tolist()]
    table = pa.table([list(column) for column in zip(*rows, strict=True)], names=["query_id", "doc_id", "score"])
    ranked.write(place / "ranked" / f"{PAIRS}.parquet", [ranked.order(table)])
    return Artifact(place, {"fingerprint": "ranked", "result": {}}), ranks
