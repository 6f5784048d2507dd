"""Measured costs of an evaluation (seconds, hours, tokens, bytes, latency), summed over the records of all steps behind
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midmask.experiment.graph import Step
from midmask.store.artifact import load
from midmask.store.place import Place


@dataclass(frozen=True)
class Costs:
    """The cost of an evaluation: that of computing its steps, each counted once, also if others share them."""

    train_seconds: float  # of middle training, fine-tuning and teachers, by the clock
    cpu_hours: float  # of all steps, by the clock times the threads that worked
    gpu_hours: float  # likewise of GPUs
    pretrain_tokens: int  # true tokens that were read, pads not counted
    finetune_tokens: int
    bytes_per_passage: float | None  # of what is searched of the encoded collection; none for BM25
    search_ms_per_query: float | None  # by the clock, without building or opening an index; none: it was not said
    # What an approximate search found of an exact one's best passages, on a sample of its queries; none for an exact
    # search, and for cutoffs beyond its depth
    index_recall_at_10: float | None = None
    index_recall_at_100: float | None = None
    index_recall_at_depth: float | None = None

    def metrics(self) -> dict[str, float]:
        """Values by their names in tracked runs (`cost/train_seconds`); unknown ones are left out."""
        return {f"cost/{name}": float(value) for name, value in vars(self).items() if value is not None}


def costs_of(step: Step, storage: Place) -> Costs:
    """The costs of an evaluation that lies in this storage. Steps whose artifacts have been deleted since are left out,
    and so is a prefix that a training went on from: its record holds the prefix's seconds too.
    """
    finished = [node for node in step.upstream(resumed=False) if node.is_finished(storage)]
    records = [(node, load(node.place(storage)).result) for node in finished]
    trainings = [(node.name, result) for node, result in records if node.kind.trains]
    on_gpu = any(result.get("device") == "cuda" for _, result in trainings)
    hours = {True: 0.0, False: 0.0}
    for node, result in records:
        gpu = on_gpu and node.kind.on_device
        threads = 1 if gpu else int(result.get("threads", getattr(node.config, "threads", 1)))
        hours[gpu] += float(result.get("seconds", 0.0)) * int(result.get("workers", 1)) * threads / 3600
    results = {node.fingerprint: result for node, result in records}
    return Costs(
        train_seconds=sum(float(result["seconds"]) for _, result in trainings),
        cpu_hours=hours[False],
        gpu_hours=hours[True],
        pretrain_tokens=sum(int(result["tokens"]) for name, result in trainings if name == "pretrain"),
        finetune_tokens=sum(int(result["tokens"]) for name, result in trainings if name == "finetune"),
        **_search_costs(step.inputs["ranked"], results),
    )


def _search_costs(ranked: Step, results: Mapping[str, dict[str, Any]]) -> dict[str, float | None]:
    """Bytes and latency of a search with an encoder; BM25's are not measured."""
    if ranked.name == "fuse":  # BM25's part of the search is left out
        ranked = ranked.inputs["encoder"]
    if ranked.name != "search":
        return {"bytes_per_passage": None, "search_ms_per_query": None}
    result = results.get(ranked.fingerprint, {})
    queries = sum(split["queries"] for split in result.get("splits", {}).values())
    encoded = results.get(ranked.inputs["passages"].fingerprint, {})
    return {
        "bytes_per_passage": result.get("bytes_per_passage", encoded.get("bytes_per_passage")),
        "search_ms_per_query": 1000 * float(result["query_seconds"]) / queries if queries else None,
        **{f"index_recall_{name}": share for name, share in result.get("recall", {}).items() if name != "queries"},
    }
