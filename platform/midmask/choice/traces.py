"""Reads made queries, models, times and bytes from artifacts, and writes small samples of a collection.

To encode a whole collection for every system of every round would take most of a small budget, so rounds search the
passages of all queries of a split among a sample of the others. Fewer passages are easier to search, for all systems
alike. The finalists search the whole collection for the test queries, unless that would take too much of the budget as
well.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from midmask.choice.verdict import QueryCounts
from midmask.core.config import fingerprint
from midmask.core.randomness import fixed_sample
from midmask.corpora.config import CorpusConfig
from midmask.corpora.opening import text_lines
from midmask.corpora.writer import write_beir
from midmask.experiment.costs import costs_of
from midmask.experiment.graph import Step, model_step
from midmask.queries.collection import Passage
from midmask.store.artifact import Artifact, load, produce
from midmask.store.place import Place

SHARED = ("prepare", "tokenise", "queries", "evaluate")
"""Steps that are no part of a system's price."""


@dataclass(frozen=True)
class Made:
    """Documents with made queries."""

    prepared: Artifact  # the documents' passages
    artifact: Artifact  # of the step that made the queries
    name: str  # of the collection

    @property
    def collection(self) -> Place:
        """BEIR folder of both, without the text that queries were taken from."""
        return self.artifact.place / "collection" / self.name

    @property
    def passages(self) -> int:
        return int(self.prepared.result["passages"])

    def sources(self, role: str) -> tuple[str, ...]:
        """The sources of queries that train (`train_sources`) or judge (`judge_sources`), as far as they gave any."""
        return tuple(source for source in self.artifact.result[role] if self.counts.source.get(source))

    @property
    def counts(self) -> QueryCounts:
        result = self.artifact.result
        splits = {name: int(result["splits"][name]) for name in ("train", "dev", "test")}
        kept = {source: int(counts["kept"]) for source, counts in result["sources"].items()}
        return QueryCounts(kept, int(result["made"]), int(result["kept"]), **splits)


def model_folder(evaluation: Step, storage: Place) -> str:
    """The folder of the evaluated model; "" for BM25."""
    step = model_step(evaluation)
    return "" if step is None else str((load(step.place(storage)).place / "model").local())


def seconds_of(evaluation: Step, storage: Place) -> float:
    """Seconds of all steps that only this system needs: trainings, mining, encoding, search."""
    steps = {step.fingerprint: step for step in evaluation.upstream() if step.name not in SHARED}
    return sum(float(load(step.place(storage)).result.get("seconds", 0.0)) for step in steps.values())


def bytes_per_passage(evaluation: Step, storage: Place) -> float:
    """Bytes of what is searched, per passage: vectors, and BM25's index."""
    ranked = evaluation.inputs["ranked"]
    bm25 = ranked.inputs.get("bm25", ranked)
    lexical = load(bm25.prepared["index"].place(storage)).result if bm25.name == "bm25" else None
    encoded = costs_of(evaluation, storage).bytes_per_passage or 0.0
    return encoded + (lexical["bytes"] / lexical["passages"] if lexical else 0.0)


def queries_of(collection: Place) -> dict[str, dict[str, Any]]:
    """The queries of a BEIR folder: id -> row (`text`, `metadata`)."""
    return {row["_id"]: row for row in _rows(collection / "queries.jsonl.gz")}


def passages_in(collection: Place) -> Iterator[Passage]:
    """The passages of a BEIR folder in order, read in a stream: a collection may be larger than memory."""
    for row in _rows(collection / "corpus.jsonl.gz"):
        yield Passage(row["_id"], row.get("title", ""), row["text"])


def _rows(file: Place) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for _, line in text_lines(file))


def relevant_of(collection: Place, split: str) -> dict[str, list[str]]:
    """The relevant passages in the judgements of a split: query id -> passage ids."""
    relevant: dict[str, list[str]] = {}
    for line in (collection / "qrels" / f"{split}.tsv").read().decode().splitlines()[1:]:
        query, passage, *_ = line.split("\t")
        relevant.setdefault(query, []).append(passage)
    return relevant


OTHERS = 2_000
"""Passages beside those of the split's queries."""

FOLDER = "samples"


@dataclass(frozen=True)
class Sample:
    """A sample of a collection, as a BEIR folder."""

    corpus: CorpusConfig
    passages: int  # number


def sample_of(made: Made, split: str, storage: Place) -> Sample | None:
    """The sample for a split's queries, written once; None where the whole collection is hardly larger."""
    if made.passages <= 2 * OTHERS:
        return None
    identity = fingerprint({"queries": made.artifact.fingerprint, "split": split, "others": OTHERS})
    record = {"step": FOLDER, "fingerprint": identity, "config": {}, "inputs": {}}

    def write(out: Place) -> dict[str, Any]:
        return _write_sample(made.collection, split, out / made.name)

    artifact = produce(storage / FOLDER / identity / made.name, record, write)
    corpus = CorpusConfig(name=f"beir:{artifact.place / made.name}", splits="official")
    return Sample(corpus, int(artifact.result["passages"]))


def _write_sample(collection: Place, split: str, out: Place) -> dict[str, Any]:
    sampled = {doc_id for doc_ids in relevant_of(collection, split).values() for doc_id in doc_ids}
    others = [passage.doc_id for passage in passages_in(collection) if passage.doc_id not in sampled]
    sampled |= set(fixed_sample(others, OTHERS))
    passages = (passage for passage in passages_in(collection) if passage.doc_id in sampled)
    write_with_queries(collection, [split], passages, out)
    return {"passages": len(sampled)}


def write_with_queries(collection: Place, splits: Sequence[str], passages: Iterable[Passage], out: Place) -> None:
    """Writes a BEIR folder of passages with a collection's queries and judgements of some splits."""
    relevant = {split: relevant_of(collection, split) for split in splits}
    judged = {query for queries in relevant.values() for query in queries}
    rows = (row for query, row in queries_of(collection).items() if query in judged)
    pairs = {
        split: [(query, doc_id, 1) for query, doc_ids in queries.items() for doc_id in doc_ids]
        for split, queries in relevant.items()
    }
    write_beir(out, passages, rows, pairs)
