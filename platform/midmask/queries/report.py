"""What became of the candidates: counts, how hard the kept queries are for BM25, and how much they give away."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midmask.corpora.writer import QRELS
from midmask.evaluation import measures
from midmask.queries.candidates import Candidate
from midmask.queries.selection import reciprocal_rank

MEASURES = ("RR@10", "nDCG@10")


def qrels_table(splits: Mapping[str, str], relevant: Mapping[str, Sequence[str]]) -> pa.Table:
    """The judgements as midmask's measures read them; sorted by split, query and passage."""
    rows = sorted((split, query_id, doc_id, 1) for query_id, split in splits.items() for doc_id in relevant[query_id])
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=QRELS)


def give_away(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Of queries that were searched: BM25's RR@10, the share that it ranks first, and the mean overlap."""
    if not candidates:
        return {}
    values = {
        "RR@10": [reciprocal_rank(one) for one in candidates],
        "first": [float(one.rank == 1) for one in candidates],
        "overlap": [one.overlap or 0.0 for one in candidates],
    }
    return {name: _mean(numbers) for name, numbers in values.items()}


def summary(
    candidates: Sequence[Candidate],
    splits: Mapping[str, str],
    qrels: pa.Table,
    ranked: pa.Table,
    *,
    before: Mapping[str, dict[str, float]],
    facts: Mapping[str, dict[str, int]],
) -> dict[str, Any]:
    """The step's result.

    Args:
        before: source -> `give_away` of the queries that were found again, before the easiest were dropped.
        facts: source -> what it counted itself.
    """
    sources: dict[str, Any] = {}
    for source in sorted({one.source for one in candidates}):
        own = [one for one in candidates if one.source == source]
        kept = [one for one in own if one.is_in]
        sources[source] = {
            "made": len(own),
            "kept": len(kept),
            "splits": dict(sorted(Counter(splits[one.query_id] for one in kept).items())),
            "dropped": _reasons(own),
            "words": _mean([float(len(one.made.text.split())) for one in kept]) if kept else None,
            "weak_labels": any(one.is_weak for one in own),
            "found": before.get(source, {}),
            "bm25": give_away(kept),
            **({"read": facts[source]} if source in facts else {}),
        }
    weak = {one.query_id for one in candidates if one.is_in and one.is_weak}
    return {
        "made": len(candidates),
        "kept": len(splits),
        "splits": {name: sum(split == name for split in splits.values()) for name in ("train", "dev", "test")},
        "dropped": _reasons(candidates),
        "weak_labels": len(weak),
        "sources": sources,
        "bm25": {split: _bm25_values(ranked, qrels, split, weak) for split in ("dev", "test")},
    }


def _reasons(candidates: Sequence[Candidate]) -> dict[str, int]:
    return dict(sorted(Counter(one.reason for one in candidates if one.reason).items()))


def _bm25_values(ranked: pa.Table, qrels: pa.Table, split: str, weak: set[str]) -> dict[str, float]:
    """BM25's measures on a split's queries, those with weak labels left out; only their number where none is left."""
    judged = qrels.filter(pc.invert(pc.is_in(qrels["query_id"], value_set=pa.array(sorted(weak), pa.string()))))
    judged = judged.filter(pc.equal(judged["split"], split))
    count = pc.count_distinct(judged["query_id"]).as_py()
    if not count:
        return {"queries": 0}
    found = measures.aggregate(measures.evaluate(ranked, judged, split, MEASURES))
    return {"queries": count, **{name: round(value, 4) for name, value in sorted(found.items())}}


def _mean(numbers: Sequence[float]) -> float:
    return round(sum(numbers) / len(numbers), 4)
