"""A small collection in place of a large one: the passages of all queries of a split among a sample of the others.

To encode a whole collection for every system of every round would take most of a small budget. Fewer passages are
easier to search, for all systems alike. The finalists search the whole collection for the test queries, unless that
would take too much of the budget as well.
"""

from dataclasses import dataclass
from typing import Any

from midmask.artifact import Artifact, Place, produce
from midmask.choice.traces import passages_in, queries_of, relevant_of
from midmask.corpora import CorpusConfig
from midmask.identity import fingerprint
from midmask.queries.collection import write_collection
from midmask.randomness.texts import fixed_sample

OTHERS = 2_000
"""Passages beside those of the split's queries."""

FOLDER = "samples"


@dataclass(frozen=True)
class Sample:
    """corpus: its BEIR folder. passages: their number."""

    corpus: CorpusConfig
    passages: int


@dataclass(frozen=True)
class Sampler:
    """Writes the samples of one collection, each once.

    made: the artifact of the step that made the queries. collection: its BEIR folder. name, passages: of the
    collection.
    """

    made: Artifact
    collection: Place
    name: str
    passages: int
    storage: Place

    def sample(self, split: str) -> Sample | None:
        """That of a split's queries; None where the whole collection is hardly larger."""
        if self.passages <= 2 * OTHERS:
            return None
        identity = fingerprint({"queries": self.made.fingerprint, "split": split, "others": OTHERS})
        record = {"step": FOLDER, "fingerprint": identity, "config": {}, "inputs": {}}

        def write(out: Place) -> dict[str, Any]:
            return self._write(split, out / self.name)

        found = produce(self.storage / FOLDER / identity / self.name, record, write)
        corpus = CorpusConfig(name=f"beir:{found.place / self.name}", splits="official")
        return Sample(corpus, int(found.result["passages"]))

    def _write(self, split: str, out: Place) -> dict[str, Any]:
        relevant = relevant_of(self.collection, split)
        asked = queries_of(self.collection)
        kept = {passage for own in relevant.values() for passage in own}
        others = [one.doc_id for one in passages_in(self.collection) if one.doc_id not in kept]
        kept |= set(fixed_sample(others, OTHERS))
        texts = (one for one in passages_in(self.collection) if one.doc_id in kept)
        rows = ((query, str(asked[query]["text"]), "", "") for query in relevant)
        pairs = [(query, passage) for query, own in relevant.items() for passage in own]
        write_collection(out, texts, list(rows), {split: pairs})
        return {"passages": len(kept), "queries": len(relevant)}
