"""Rows of a middle training: the data that the objective reads, and nothing else."""

from collections.abc import Mapping

from midmask.artifact import Place
from midmask.objectives import PRETRAINING, CoupledObjective, ObjectiveConfig
from midmask.training.contexts import PseudoQueryExamples, SpanExamples
from midmask.training.examples import Examples, PassageExamples
from midmask.training.excerpts import ExcerptExamples
from midmask.training.packing import PackedExamples


def pretraining_rows(
    objective: ObjectiveConfig,
    places: Mapping[str, Place],
    fingerprint: str,
    max_length: int,
    excerpt: int | None = None,
) -> Examples:
    """The rows that an objective reads. Where the loss compares rows, batches are not grouped by length: all negatives
    of a text would have its length.

    Args:
        places: artifacts by name: tokens, and what the objective reads besides: spans, pseudo_queries, weights.
        fingerprint: of the artifact whose rows are read, which their order depends on.
        max_length: tokens of a packed row. excerpt: tokens that each visit reads of a passage; none: all.

    Raises:
        ValueError: if a place that is read is not given.
    """
    reads = objective.reads()
    weights = _require_place(places, "weights") if reads.term_weights else None
    by_length = not issubclass(PRETRAINING[objective.name], CoupledObjective)
    if reads.rows == "packed":
        return PackedExamples(places["tokens"], fingerprint, max_length, weights)
    if reads.rows == "spans":
        return SpanExamples(_require_place(places, "spans"), fingerprint, reads.context)
    whole: PassageExamples | PseudoQueryExamples
    if reads.rows == "pseudo_queries":
        queries = _require_place(places, "pseudo_queries")
        whole = PseudoQueryExamples(places["tokens"], queries, fingerprint, weights, by_length)
    else:
        whole = PassageExamples(places["tokens"], fingerprint, weights, by_length)
    return whole if excerpt is None else ExcerptExamples(whole, excerpt)


def _require_place(places: Mapping[str, Place], name: str) -> Place:
    if name not in places:
        raise ValueError(f"the objective reads {name}, and the setup has no place for them")
    return places[name]
