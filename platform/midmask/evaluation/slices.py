"""Measures by slice: `test.head` is a slice of `test`, some of its queries, or the same ones with other judgements.

A slice is a split by name and by data (`qrels.parquet`), so nothing else needs to know of it: its values bear the name
CORPUS/SPLIT.SLICE, and a qrels file `test.NAME.tsv` in any layout makes one. It is evaluated from the ranked list of
the split it belongs to, and no query is searched for twice. TripClick: test.head, test.head-dctr, test.torso,
test.tail.
"""

import logging
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from midmask.corpora.splits import is_slice
from midmask.evaluation import measures

log = logging.getLogger(__name__)


def slices_of(qrels: pa.Table, split: str) -> list[str]:
    """The slices of a split, by name, sorted."""
    names = pc.unique(qrels["split"]).to_pylist()
    return sorted(name for name in names if is_slice(name) and name.startswith(f"{split}."))


def evaluate_slices(
    ranked: pa.Table, qrels: pa.Table, split: str, names: Sequence[str], searched: Sequence[str]
) -> dict[str, pa.Table]:
    """slice -> (query_id, measure, value) of its queries among those searched, by its own judgements.

    Queries of a slice that were not searched (a sample was, or the slice is no part of its split) do not count and are
    counted in the log; a slice without any searched query is left out, which the log says.

    Args:
        ranked: the split's list. qrels: of all splits. searched: the split's evaluated queries, with results or not.
    """
    found: dict[str, pa.Table] = {}
    for name in slices_of(qrels, split):
        own = qrels.filter(pc.equal(qrels["split"], name))
        inside = own.filter(pc.is_in(own["query_id"], value_set=pa.array(searched, pa.string())))
        lost = pc.count_distinct(own["query_id"]).as_py() - pc.count_distinct(inside["query_id"]).as_py()
        if lost:
            log.warning("%d queries of the slice %s were not searched and do not count", lost, name)
        if len(inside):
            listed = ranked.filter(pc.is_in(ranked["query_id"], value_set=inside["query_id"]))
            found[name] = measures.evaluate(listed, inside, name, names)
        else:
            log.warning("no query of the slice %s was searched", name)
    return found
